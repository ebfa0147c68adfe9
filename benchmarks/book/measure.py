"""Measuring: a server process, limits of time and memory, and the memory of a process that does nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .measurement import FAILED, LARGE, OVER, Measurement, Outcome

ROOT = Path(__file__).resolve().parents[2]
CONTESTANTS = tuple(
    f"benchmarks.book.contestants.{name}"
    for name in (
        "grid",
        "scaling",
        "completion",
        "svm",
        "pointwise",
        "ranking",
        "variance",
        "products",
        "projection",
        "mean",
        "burer_monteiro",
        "large",
        "scale",
        "learned",
    )
)
NOTHING = Measurement("nothing", "server:nothing", limit=60.0)


class Meter:
    """Runs measurements one at a time. A context manager; at its end the server is gone.

    :param threads: of every contestant.
    :param memory_gib: what a contestant may need.
    :param rounds: most repetitions of what is short.
    :param modules: of contestants, with their package.
    """

    def __init__(self, threads: int, memory_gib: float, rounds: int, modules: Sequence[str] = CONTESTANTS) -> None:
        self.threads, self.memory_gib, self.rounds, self.modules = threads, memory_gib, rounds, modules
        self._server: subprocess.Popen[str] | None = None
        self._start_mib = 0.0

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def run(self, wanted: Measurement, smaller: Outcome | None = None) -> Outcome:
        """What came of it; ``smaller`` is the outcome of ``wanted.after``."""
        if wanted.needs_gib > self.memory_gib:
            return Outcome(wanted.name, wanted.key, LARGE, message=f"would need {wanted.needs_gib:.0f} GiB")
        if smaller is not None and not smaller.done:
            return Outcome(
                wanted.name, wanted.key, smaller.status, message=f"not started: {smaller.status} at a smaller size"
            )
        answer = self._ask(wanted)
        if answer["status"] == OVER:
            answer["message"] = f"over the limit of {wanted.limit:.0f} s"
        if answer["status"] == LARGE:
            answer["message"] = f"needs more than {self.memory_gib:g} GiB"
        return Outcome(wanted.name, wanted.key, start_mib=self._start_mib, **answer)

    def _ask(self, wanted: Measurement) -> dict[str, Any]:
        server = self._server if self._server is not None else self._started()
        job = {"function": wanted.function, "settings": wanted.settings, "limit": wanted.limit}
        job |= {"memory_gib": self.memory_gib, "rounds": self.rounds}
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            line = server.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._ended()
            return {"status": FAILED, "message": f"the measuring process ended with status {code}"}
        return json.loads(line)

    def _started(self) -> subprocess.Popen[str]:
        """The server, and the memory of a copy of it that does nothing."""
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, str(self.threads))}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.book.server", *self.modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
            start_new_session=True,  # an interrupt is for us; we end it
        )
        self._start_mib = self._ask(NOTHING).get("peak_mib", 0.0)
        if self._server is None:
            raise RuntimeError("the measuring process could not be started; its message is above")
        return self._server

    def _stop(self) -> None:
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)  # its copy too, if one is at work
            self._ended()

    def _ended(self) -> int:
        """Exit code of the server, after it has ended and its pipes are closed."""
        server, self._server = self._server, None
        assert server is not None
        with contextlib.suppress(BrokenPipeError), server:
            pass
        return server.returncode
