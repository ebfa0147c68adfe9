"""Lines and branches that the tests run, and the time of each test file.

    python -m benchmarks.trust.lines_run [tests/linalg ...] [--fresh]

Needs the package ``coverage``. Every test file runs in a process of its own, forked from one that has imported PyTorch but
nothing of mvgp. What a file has run is kept in ``benchmarks/results/trust/coverage``, so that a run that was stopped is
resumed; ``--fresh`` forgets it. Code that tests run in processes of their own is not seen.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.book.machine import ROOT, commit
from benchmarks.trust.processes import in_child

FOLDER = ROOT / "benchmarks/results/trust/coverage"
SUMMARY = FOLDER / "summary.json"
LIBRARIES = (
    "gpytorch", "linear_operator", "numpy", "pandas", "scipy.optimize", "scipy.sparse", "scipy.special", "torch",
    "hypothesis", "pytest", "matplotlib", "linear_operator.test.linear_operator_test_case",
)  # fmt: skip
TOOLKIT = (
    "data", "kernels", "linalg", "priors", "likelihoods", "mean", "posteriors", "models", "metrics", "hyperparameters",
    "storage", "testing",
)  # fmt: skip
IMPORTED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # hypothesis was imported before pytest began
LIMIT = 1800.0  # seconds for a file


def test_files(names: list[str]) -> list[str]:
    """Test files below the names, relative to the root."""
    found: set[Path] = set()
    for name in names:
        path = ROOT / name
        found |= set(path.rglob("test_*.py")) if path.is_dir() else {path}
    return sorted(str(path.relative_to(ROOT)) for path in found)


def run_one(name: str, target: Path) -> dict[str, Any]:
    """Run the tests of a file; what they ran goes to ``target``. Called in a child."""
    import coverage
    import pytest

    tool = coverage.Coverage(
        data_file=str(target), branch=True, source=[str(ROOT / "mvgp")], context=name, config_file=False
    )
    counts = {"passed": 0, "failed": 0, "skipped": 0}

    class Counter:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.outcome != "passed":
                counts[report.outcome] += 1

    tool.start()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *IMPORTED, name], plugins=[Counter()])
    tool.stop()
    tool.save()
    return {"exit": int(code), **counts}


def run(names: list[str], fresh: bool) -> None:
    """Run the files that have not been run."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in test_files(names):
        stem = name.removesuffix(".py").replace("/", ".")
        target, note = FOLDER / f"{stem}.coverage", FOLDER / f"{stem}.json"
        if note.exists() and target.exists() and not fresh:
            continue
        target.unlink(missing_ok=True)
        ended = in_child(lambda name=name, target=target: run_one(name, target), LIMIT)
        found = {
            "file": name,
            "commit": commit(),
            "seconds": round(ended.processor_seconds, 2),
            "trouble": ended.trouble,
        }
        found |= ended.value or {}
        note.write_text(json.dumps(found) + "\n")
        print(f"{name}: {found['seconds']:.1f} s of the processor, {ended.value or ended.trouble}", flush=True)
        if ended.trouble or (ended.value or {}).get("failed"):
            print(ended.output[-3000:], flush=True)


def combined() -> Any:
    """The data of all files that were run."""
    import coverage

    tool = coverage.Coverage(
        data_file=str(FOLDER / "combined"), branch=True, source=[str(ROOT / "mvgp")], config_file=False
    )
    tool.combine([str(path) for path in sorted(FOLDER.glob("*.coverage"))], keep=True)
    tool.save()
    return tool


def summarise() -> dict[str, Any]:
    """Lines and branches by package, and seconds by test file."""
    tool = combined()
    packages: dict[str, list[int]] = {}
    for path in sorted((ROOT / "mvgp").rglob("*.py")):
        parts = path.relative_to(ROOT / "mvgp").parts
        numbers = tool._analyze(str(path)).numbers
        found = packages.setdefault(parts[0] if len(parts) > 1 else "mvgp", [0, 0, 0, 0])
        for at, number in enumerate(
            (numbers.n_statements, numbers.n_missing, numbers.n_branches, numbers.n_missing_branches)
        ):
            found[at] += number
    notes = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("tests.*.json"))]
    every = test_files(["tests"])
    names = ("lines", "lines_missed", "branches", "branches_missed")
    return {
        "commits": sorted({note["commit"] for note in notes}),
        "files_run": len(notes),
        "files": len(every),
        "failed": sum(note.get("failed", 0) for note in notes) + sum(bool(note["trouble"]) for note in notes),
        "packages": {name: dict(zip(names, found, strict=True)) for name, found in packages.items()},
        "seconds": {note["file"]: note["seconds"] for note in notes},
    }


def files_of_lines() -> dict[str, dict[int, list[str]]]:
    """Test files that run a line, by path relative to the root and line number."""
    data = combined().get_data()
    found = {}
    for path in data.measured_files():
        lines = data.contexts_by_lineno(path)
        found[os.path.relpath(path, ROOT)] = {line: [name for name in names if name] for line, names in lines.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["tests"], help="test files or folders")
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for name in LIBRARIES:
        importlib.import_module(name)
    if any(name == "mvgp" or name.startswith("mvgp.") for name in sys.modules):
        raise SystemExit("mvgp was imported before its lines could be counted")
    run(options.names, options.fresh)
    found = summarise()
    SUMMARY.write_text(json.dumps(found, indent=1) + "\n")
    for name, one in found["packages"].items():
        lines, branches = one["lines"] or 1, one["branches"] or 1
        print(
            f"{name:16} lines {1 - one['lines_missed'] / lines:7.1%} of {one['lines']:5}, "
            f"branches {1 - one['branches_missed'] / branches:7.1%} of {one['branches']:5}"
        )


if __name__ == "__main__":
    main()
