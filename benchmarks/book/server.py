"""The process that has imported everything once and is copied for every measurement.

Its arguments are the modules of contestants, with their package. It reads one JSON object a line (function, settings, limit, memory_gib, rounds) and answers
with one a line. Copies (fork) start with the same memory and none of the threads, caches and garbage of a contestant that ran before; a copy that does nothing is
what memory is counted from.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.fx.experimental.symbolic_shapes  # half a second of imports that GPyTorch's first solve would pay for

from .measurement import DONE, FAILED, LARGE, OVER

SHORT = 2.0  # seconds; what takes less is timed again, until it has taken this long
POLL = 0.02  # seconds
PAGE = os.sysconf("SC_PAGE_SIZE")


def nothing() -> Callable[[], dict]:
    """What memory is counted from."""
    return dict


def main(modules: list[str]) -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    warnings.simplefilter("ignore")
    found = {name.rsplit(".", 1)[1]: importlib.import_module(name) for name in modules}
    found["server"] = sys.modules[__name__]
    for line in sys.stdin:
        answers.write(json.dumps(_measured(json.loads(line), found)) + "\n")
        answers.flush()


def _measured(job: dict[str, Any], modules: dict[str, Any]) -> dict[str, Any]:
    """What a copy of this process found, or why it did not."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        began = time.perf_counter()
        child = os.fork()
        if child == 0:
            _work(job, modules, file.name)
        status, code, usage = _wait(child, began + job["limit"], job["memory_gib"])
        found: dict[str, Any] = {"process_seconds": time.perf_counter() - began, "peak_mib": usage.ru_maxrss / 1024}
        if status != DONE:
            return {**found, "status": status}
        text = file.read()
    if not text:
        return {**found, "status": FAILED, "message": f"ended {_how(code)} without an answer"}
    return {**found, **json.loads(text)}


def _wait(child: int, deadline: float, memory_gib: float) -> tuple[str, int, resource.struct_rusage]:
    """Whether it ended by itself, or why it was ended; its exit code; and what it used."""
    while True:
        found, status, usage = os.wait4(child, os.WNOHANG)
        if found:
            return DONE, os.waitstatus_to_exitcode(status), usage
        late = time.perf_counter() > deadline
        if late or _resident(child) > memory_gib * 2**30:
            os.kill(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            return OVER if late else LARGE, os.waitstatus_to_exitcode(status), usage
        time.sleep(POLL)


def _resident(process: int) -> int:
    """Bytes of memory that a process has now; 0 where the system does not tell."""
    try:
        with open(f"/proc/{process}/statm") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with status {code}"


def _work(job: dict[str, Any], modules: dict[str, Any], path: str) -> None:
    """In the copy: set the problem up, time the answer, write it down, and end without cleaning up."""
    try:
        answer = json.dumps(_timed(job, modules))
    except BaseException as error:
        answer = json.dumps({"status": FAILED, "message": f"{type(error).__name__}: {error}"})
        traceback.print_exc()
    with open(path, "w") as file:
        file.write(answer)
    sys.stderr.flush()
    os._exit(0)


def _timed(job: dict[str, Any], modules: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    module, name = job["function"].split(":")
    run = getattr(modules[module], name)(**job["settings"])
    _forget_peak()
    best, values, rounds, spent = float("inf"), {}, 0, 0.0
    while rounds == 0 or (rounds < job["rounds"] and spent < SHORT):
        began = time.perf_counter()
        found = run()
        seconds = time.perf_counter() - began
        rounds, spent = rounds + 1, spent + seconds
        if seconds < best:
            best, values = seconds, found
    return {"status": DONE, "seconds": best, "rounds": rounds, "values": values}


def _forget_peak() -> None:
    """Let the peak of memory begin now, after the problem was set up; where the system cannot, it is counted in."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


if __name__ == "__main__":
    main(sys.argv[1:])
