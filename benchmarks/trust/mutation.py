"""Mutation testing: would the tests notice if a line were wrong?

    python -m benchmarks.trust.mutation linalg --sample 60 --seed 0

A mutant is mvgp with one small change (``benchmarks/trust/mutants.py``): another operator, comparison or constant, a
condition turned round, a statement dropped, arguments exchanged. Each mutant has a process of its own, forked from one that
has imported mvgp and the tests. There the code of the changed function is replaced, and the test files that run its line are
run, those of its own package first, until a test fails (killed) or none does (survived). One that takes five times as long as
the tests did before, or dies, is killed. Which files run a line is known from ``benchmarks.trust.lines_run``; files that it has
not seen are run if they are of the package itself.

Each mutant is a line in ``benchmarks/results/trust/mutation.jsonl``. A run that was stopped is resumed, ``--again`` tries
survivors again. Survivors that are no fault are listed with reasons in ``benchmarks/trust/equivalent.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import itertools
import json
import os
import pkgutil
import random
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.book.machine import ROOT, commit
from benchmarks.trust.lines_run import FOLDER, LIBRARIES, files_of_lines, test_files
from benchmarks.trust.mutants import Mutant, mutants, mutated
from benchmarks.trust.processes import Ended, in_child

PACKAGES = ("linalg", "likelihoods", "mean", "posteriors", "metrics")
NOTES = ROOT / "benchmarks/results/trust/mutation.jsonl"
REASONS = Path(__file__).with_name("equivalent.json")
PATIENCE, LEAST = 5.0, 60.0  # times the seconds of the tests, and at least so many
MEMORY = 12 * 2**30  # bytes of address space
BUDGET = 90.0  # seconds of test files of other packages that a mutant may cost, the quickest files first
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", "--tb=short")


def package_mutants(package: str, root: Path = ROOT) -> list[Mutant]:
    """Every mutant of a package."""
    files = sorted((root / "mvgp" / package).glob("*.py"))
    return [one for path in files for one in mutants(root, str(path.relative_to(root)))]


def chosen(package: str, sample: int | None, seed: int) -> list[Mutant]:
    """A random sample, the same for the same seed as long as the code is; all if no size is given."""
    every = package_mutants(package)
    if sample is None or sample >= len(every):
        return every
    return random.Random(f"{package} {seed}").sample(every, sample)


class Order:
    """Which test files to run for a line, and how long they take, as far as that was measured."""

    def __init__(self, seconds: dict[str, float], lines: dict[str, dict[int, list[str]]]) -> None:
        self.seconds, self.lines = seconds, lines

    def files(self, mutant: Mutant) -> list[str]:
        """Those of the package first; among each, those named after the file, then the quickest."""
        package, stem = mutant.path.split("/")[1], Path(mutant.path).stem
        own = set(test_files([f"tests/{package}"]))
        running = set(self.lines.get(mutant.path, {}).get(mutant.line, ())) | (own - self.seconds.keys())
        quick = lambda name: (stem not in name, self.seconds.get(name, 0.0))  # noqa: E731
        first, others, spent = sorted(running & own, key=quick), [], 0.0
        for name in sorted(running - own, key=quick):
            spent += self.seconds.get(name, 0.0)
            if spent <= BUDGET or not (first or others):
                others.append(name)
        return first + others


def preload(folders: list[str]) -> None:
    """Import everything that tests need."""
    for name in LIBRARIES:
        importlib.import_module(name)
    importlib.import_module("tests.conftest")  # notes settings of libraries, which botorch changes when it is imported
    import mvgp

    for found in pkgutil.walk_packages(mvgp.__path__, "mvgp."):
        with contextlib.suppress(ImportError):
            importlib.import_module(found.name)
    import pytest

    from tests import randomness

    randomness.set_up_hypothesis()  # settings of tests are made when their files are imported
    for name in test_files(folders):
        with contextlib.suppress(ImportError, pytest.skip.Exception):
            importlib.import_module(name.removesuffix(".py").replace("/", "."))


def living() -> dict[tuple[str, str, int], list[types.FunctionType]]:
    """The function objects of mvgp, decorated or not, by file, name and line."""
    found: dict[tuple[str, str, int], list[types.FunctionType]] = {}
    for one in gc.get_objects():
        if type(one) is types.FunctionType and one.__code__.co_filename.startswith(str(ROOT / "mvgp")):
            code = one.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(one)
    return found


def trial(mutant: Mutant | None, files: list[str], objects: dict[Any, list[types.FunctionType]]) -> dict[str, Any]:
    """Run test files with a change, or without one; called in a child. The outcome, and the first test that fails."""
    import pytest

    if mutant is not None:
        changed = mutated(ROOT, mutant)
        if changed is None:
            return {"outcome": "the same code"}
        found = objects.get((str(ROOT / mutant.path), *changed[0]), [])
        if not found:
            return {"outcome": "no such function"}
        for one in found:
            one.__code__ = changed[1]
    failed: list[str] = []

    class Recorder:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid)

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid)

    code = int(pytest.main([*OPTIONS, *files], plugins=[Recorder()]))
    return {
        "outcome": "killed" if code else "survived",
        "by": failed[0] if failed else f"exit code {code}" if code else "",
    }


class Sound:
    """Test files that pass without a change, here: the others would kill everything."""

    def __init__(self, path: Path, here: str) -> None:
        self.path, self.here = path, here
        found = json.loads(path.read_text()) if path.exists() else {}
        self.known: dict[str, dict[str, Any]] = found.get("files", {}) if found.get("commit") == here else {}

    def __contains__(self, name: str) -> bool:
        if name not in self.known:
            ended = in_child(lambda: trial(None, [name], {}), 1800, MEMORY)
            found = judged(ended)
            self.known[name] = {"passes": found["outcome"] == "survived", "seconds": round(ended.processor_seconds, 2)}
            self.path.write_text(json.dumps({"commit": self.here, "files": self.known}, indent=1))
            if not self.known[name]["passes"]:
                print(f"left out: {name} fails without a change: {found['by']}", flush=True)
        return bool(self.known[name]["passes"])


def judged(ended: Ended) -> dict[str, Any]:
    """A child that died, or that found no end, has noticed the change as well."""
    if ended.value is None:
        return {"outcome": "killed", "by": ended.trouble}
    return dict(ended.value)


def attempted(
    mutant: Mutant, files: list[str], order: Order, objects: dict[Any, list[types.FunctionType]]
) -> dict[str, Any]:
    """What becomes of a mutant."""
    if not files:
        return {"outcome": "no test runs it", "files": 0, "seconds": 0.0}
    limit = max(LEAST, PATIENCE * sum(order.seconds.get(name, 10.0) for name in files))
    ended = in_child(lambda: trial(mutant, files, objects), limit, MEMORY)
    return judged(ended) | {"files": len(files), "seconds": round(ended.processor_seconds, 1)}


def known() -> dict[str, dict[str, Any]]:
    """What was noted, by mutant; the last word counts."""
    lines = NOTES.read_text().splitlines() if NOTES.exists() else []
    return {one["mutant"]: one for one in map(json.loads, lines)}


def reasons() -> dict[str, str]:
    """Why a surviving mutant is no gap in the tests, by mutant."""
    return json.loads(REASONS.read_text()) if REASONS.exists() else {}


def summarise() -> dict[str, Any]:
    """Counts by package, and the survivors with their reasons."""
    told, found = reasons(), {}
    for one in known().values():
        package = found.setdefault(
            one["package"], {"mutants": 0, "tried": 0, "killed": 0, "explained": {}, "survivors": []}
        )
        package["tried"] += 1
        if one["outcome"] == "killed":
            package["killed"] += 1
        elif one["mutant"] in told:
            package["explained"][one["mutant"]] = told[one["mutant"]]
        else:
            package["survivors"].append(one["mutant"])
    for name, package in found.items():
        package["mutants"] = len(package_mutants(name))
        package["survivors"].sort()
    commits = sorted({one["commit"] for one in known().values()})
    return {"commits": commits, "packages": dict(sorted(found.items()))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", choices=PACKAGES)
    parser.add_argument("--sample", type=int, help="so many mutants of each package, drawn by --seed; all without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="try survivors again, after a test was written")
    parser.add_argument("--show", action="store_true", help="list what was found, run nothing")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    if options.show:
        for name, one in summarise()["packages"].items():
            rest = f"{len(one['explained'])} explained, {len(one['survivors'])} survived"
            print(
                f"{name}: {one['killed']} of {one['tried']} killed, {rest}; {one['mutants']} mutants",
                *one["survivors"],
                sep="\n  ",
            )
        return
    notes = [json.loads(path.read_text()) for path in FOLDER.glob("tests.*.json")]
    order = Order({one["file"]: one["seconds"] for one in notes}, files_of_lines() if notes else {})
    NOTES.parent.mkdir(parents=True, exist_ok=True)
    done, here = known(), commit()
    sound = Sound(NOTES.with_name("sound.json"), here)
    folders = ["tests/" + name for name in PACKAGES] + ["tests/models", "tests/hyperparameters"]
    preload(folders)
    objects = living()
    gc.freeze()
    drawn = [chosen(package, options.sample, options.seed) for package in options.packages]
    side_by_side = [one for row in itertools.zip_longest(*drawn) for one in row if one is not None]
    counts: Counter[tuple[str, bool]] = Counter()
    for mutant in side_by_side:  # a run that is stopped has some of each package
        package, found = mutant.path.split("/")[1], done.get(mutant.name)
        if found is None or (options.again and found["outcome"] != "killed"):
            found = attempted(mutant, [name for name in order.files(mutant) if name in sound], order, objects)
            found |= {"mutant": mutant.name, "package": package, "line": mutant.line, "commit": here}
            with open(NOTES, "a") as file:
                file.write(json.dumps(found) + "\n")
            why = f" by {found['by']}" if found.get("by") else ""
            print(f"{found['outcome']}{why}: {mutant.name}, line {mutant.line} ({found['seconds']} s)", flush=True)
        counts[package, found["outcome"] == "killed"] += 1
    for package in options.packages:
        print(f"{package}: {counts[package, True]} killed, {counts[package, False]} not", flush=True)


if __name__ == "__main__":
    main()
