"""python -m benchmarks.book: measure and write ``docs/benchmark_book.md``; an interrupted run goes on where it was.

Without every usual chapter the page goes to benchmarks/results/ instead: numbers of another run are not mixed with these.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .chapters import CHAPTERS
from .machine import ROOT
from .page import write_page
from .results import Results
from .run import run_book, wanted


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.book", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="every chapter at tiny sizes, for testing; needs --out")
    parser.add_argument(
        "--out", type=Path, help="folder of page, figures and results instead of docs/ and benchmarks/results/"
    )
    parser.add_argument("--fresh", action="store_true", help="measure everything anew")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing, write the page from the results there are"
    )
    parser.add_argument(
        "--chapters",
        nargs="+",
        default=[],
        choices=[one.name for one in CHAPTERS],
        metavar="NAME",
        help="measure these: " + ", ".join(one.name + (" (slow)" if one.slow else "") for one in CHAPTERS),
    )
    parser.add_argument("--threads", type=int, help="of every contestant (default: 2; 1 at tiny sizes)")
    parser.add_argument("--memory", type=float, default=10.0, help="GiB that a contestant may need (default: 10)")
    found = parser.parse_args(arguments)
    if found.quick and found.out is None:
        parser.error("--quick needs --out: tiny sizes are not for the documentation")
    return found


def main(arguments: list[str]) -> int:
    given = parsed(arguments)
    folder = given.out / "results" if given.out else ROOT / "benchmarks" / "results"
    try:
        if given.page:
            results = Results.load(folder)
        else:
            results = run_book(
                CHAPTERS,
                folder,
                quick=given.quick,
                threads=given.threads or (1 if given.quick else 2),
                memory_gib=given.memory,
                rounds=2 if given.quick else 5,
                fresh=given.fresh,
                named=given.chapters,
            )
    except KeyboardInterrupt:
        print(
            f"interrupted; what is finished is kept in {folder}, the same command goes on with the rest",
            file=sys.stderr,
        )
        return 130
    whole = all(results.of(chapter.name) for chapter in wanted(CHAPTERS, [], quick=False))
    out = given.out or (ROOT / "docs" if whole else folder)
    failed = write_page(CHAPTERS, results, out)
    for chapter in CHAPTERS:
        if chapter.name in given.chapters:
            print(f"\n{chapter.title}\n\n{chapter.tell(results.of(chapter.name), given.quick).text}")
    print(f"{out / 'benchmark_book.md'} written")
    for title in failed:
        print(f"failed: {title}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
