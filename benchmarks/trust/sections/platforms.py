"""The fast part of the test suite on stand-ins for other machines, with the interpreter that runs this."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from benchmarks.book.machine import ROOT
from benchmarks.trust.plan import Found, Line

SETTINGS = (
    {},
    {"ATEN_CPU_CAPABILITY": "default"},
    {"ATEN_CPU_CAPABILITY": "avx2"},
    {"MKL_CBWR": "COMPATIBLE"},
)
COUNTS = re.compile(r"(\d+) (passed|failed|error|skipped)")
FAST = ("-m", "not slow")


def suites(first: int, count: int, seed: int) -> Found:
    """The fast tests with each setting; each run is a try."""
    found = Found()
    for number in range(first, first + count):
        setting = SETTINGS[number % len(SETTINGS)]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MVGP_TEST_SEED": str(seed),
            **setting,
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *FAST]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        add_suite(found, " ".join(f"{name}={value}" for name, value in setting.items()) or "as it is", done)
    return found


def add_suite(found: Found, name: str, done: subprocess.CompletedProcess[str]) -> None:
    """The tests of one run."""
    lines = done.stdout.strip().splitlines()
    counts = {word: int(number) for number, word in COUNTS.findall(lines[-1] if lines else "")}
    failed = [line.split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    found.tried += 1
    found.counts[f"{name}: passed"] += counts.get("passed", 0)
    found.counts[f"{name}: skipped"] += counts.get("skipped", 0)
    found.failures += [f"{name}: {one}" for one in failed]
    if done.returncode and not failed:
        found.failures.append(f"{name}: exit code {done.returncode}: {(done.stderr or done.stdout)[-300:]}")


LINES = [
    Line("platforms/suites", "fast tests with other code paths of torch and MKL", len(SETTINGS), 1, suites, limit=3600)
]
