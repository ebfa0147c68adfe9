"""The suite on stand-ins for other machines: ten seeds, each with another setting of processor, threads or load.

``python tests/everywhere.py`` runs them one after the other and prints a line for each: command, passed, failed, seconds.
Finished runs are noted in ``--notes`` (JSON lines) and are not repeated by the next call; failed ones are. Anything after
``--`` is given to pytest. Exits with 1 when a run has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped)")
BUSY = "while True: pass"
# seed, environment, processes of pytest, busy processes beside them. Other code paths of torch and MKL stand in for other
# processors. Only a setting that is said here is in the environment of a run, whatever the caller has. Threads that wait
# sleep instead of spinning where there are more of them than cores.
TWO_THREADS = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}
RUNS = (
    (1, {}, 2, 0),
    (2, {"ATEN_CPU_CAPABILITY": "default"}, 2, 0),
    (3, {"ATEN_CPU_CAPABILITY": "avx2"}, 2, 0),
    (4, {"MKL_CBWR": "COMPATIBLE"}, 2, 0),
    (5, {"MKL_CBWR": "AVX2"}, 2, 0),
    (6, TWO_THREADS, 2, 0),
    (7, {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}, 2, 1),
    (8, {**TWO_THREADS, "MKL_CBWR": "AVX2"}, 2, 0),
    (9, {**TWO_THREADS, "ATEN_CPU_CAPABILITY": "avx2"}, 2, 0),
    (10, {}, 2, 2),
)
SETTINGS = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MVGP_TEST_SEED")


def command_of(seed, settings, processes, busy, extra):
    """As one would type it, and its parts."""
    given = {"OMP_NUM_THREADS": "1", **settings, "MVGP_TEST_SEED": str(seed)}
    parts = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), *extra]
    words = [f"{name}={value}" for name, value in given.items()] + ["python", *parts[1:]]
    return " ".join(words) + (f"  # beside {busy} busy processes" if busy else ""), given, parts


@contextlib.contextmanager
def load(busy):
    """So many processes that do nothing as fast as they can."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def counts(text):
    """What the last line of pytest says."""
    found = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for number, word in COUNTED.findall(text.splitlines()[-1] if text.strip() else ""):
        found["failed" if word.startswith("error") else word] += int(number)
    return found


def run(given, parts, busy, output):
    """Run pytest with its output in a file."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS} | given
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    began = time.monotonic()
    with load(busy), open(output, "w") as file:
        code = subprocess.run(
            parts, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode
    return {"exit": code, **counts(output.read_text()), "seconds": round(time.monotonic() - began)}


def finished(notes):
    """Commands that have passed, with what was noted."""
    lines = notes.read_text().splitlines() if notes.exists() else []
    found = (json.loads(line) for line in lines if line.strip())
    return {one["command"]: one for one in found if one["exit"] == 0}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notes", type=Path, default=ROOT / "build" / "everywhere.jsonl")
    parser.add_argument("--seeds", type=int, nargs="*", help="only these of the runs; all when left out")
    parser.add_argument("extra", nargs="*", help="arguments of pytest, after --")
    given = parser.parse_args(arguments)
    given.notes.parent.mkdir(parents=True, exist_ok=True)
    known, failures = finished(given.notes), 0
    for seed, settings, processes, busy in RUNS:
        if given.seeds and seed not in given.seeds:
            continue
        command, environment, parts = command_of(seed, settings, processes, busy, given.extra)
        found = known.get(command)
        if found is None:
            output = given.notes.with_name(f"{given.notes.stem}_{seed}.txt")
            found = {"command": command, **run(environment, parts, busy, output)}
            with open(given.notes, "a") as file:
                file.write(json.dumps(found) + "\n")
        told = f"{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped, {found['seconds']} s"
        print(f"{command}: {told}" + (" (before)" if command in known else ""), flush=True)
        failures += found["exit"] != 0
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
