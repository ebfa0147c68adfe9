"""python -m benchmarks.book: measure and write ``docs/benchmark_book.md``; an interrupted run goes on where it was."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .chapters import CHAPTERS
from .machine import ROOT
from .page import write_page
from .results import Results
from .run import run_book


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.book", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for testing; needs --out")
    parser.add_argument(
        "--out", type=Path, help="folder of page, figures and results instead of docs/ and benchmarks/results/"
    )
    parser.add_argument("--fresh", action="store_true", help="measure everything anew")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing, write the page from the results there are"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], choices=[one.name for one in CHAPTERS], help="measure these chapters"
    )
    parser.add_argument("--threads", type=int, default=2, help="of every contestant (default: 2)")
    parser.add_argument("--memory", type=float, default=10.0, help="GiB that a contestant may need (default: 10)")
    found = parser.parse_args(arguments)
    if found.quick and found.out is None:
        parser.error("--quick needs --out: tiny sizes are not for the documentation")
    return found


def main(arguments: list[str]) -> int:
    given = parsed(arguments)
    out = given.out or ROOT / "docs"
    folder = given.out / "results" if given.out else ROOT / "benchmarks" / "results"
    try:
        if given.page:
            failed = write_page(CHAPTERS, Results.load(folder), out)
        else:
            failed = run_book(
                CHAPTERS,
                out,
                folder,
                quick=given.quick,
                threads=given.threads,
                memory_gib=given.memory,
                rounds=2 if given.quick else 5,
                fresh=given.fresh,
                only=given.only,
            )
    except KeyboardInterrupt:
        print(
            f"interrupted; what is finished is kept in {folder}, the same command goes on with the rest",
            file=sys.stderr,
        )
        return 130
    print(f"{out / 'benchmark_book.md'} written")
    for title in failed:
        print(f"failed: {title}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
