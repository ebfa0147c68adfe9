"""Options that commands share, and how their texts are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..datasets import LinkSet
from ..datasets.text_lines import MAX_BYTES
from ..errors import InputError
from ..studies.study_checks import LARGEST, shown
from .notes import say

Pairs = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Known links: row id, column id. TSV or CSV, or gzip'd.")
]
RowEdges = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Graph of the rows: two ids, and perhaps a weight.")
]
ColEdges = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Graph of the columns: two ids, and perhaps a weight.")
]
RowNames = Annotated[Path | None, typer.Option(metavar="FILE", help="Names of rows: id, name.")]
ColNames = Annotated[Path | None, typer.Option(metavar="FILE", help="Names of columns: id, name.")]
Filters = Annotated[
    str,
    typer.Option(
        metavar="paper|none", help="Keep only rows and columns with a link in their graph (paper), or all (none)."
    ),
]
MaxSize = Annotated[
    int, typer.Option("--max-size", metavar="MIB", help="Largest size of a table in MiB, after decompression.")
]
SIZE = MAX_BYTES // 2**20
WithinRows = Annotated[
    bool, typer.Option("--within-rows", help="Sample negatives in each row that has links, not over all cells.")
]
Seed = Annotated[int, typer.Option(help="Of everything random: the same seed gives the same numbers.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks, only results.")]


def tell_links(links: LinkSet) -> None:
    """What was read, in a few lines."""
    if links.report is not None:
        for line in str(links.report).splitlines():
            say(line)
    say(f"{links.shape[0]:,} rows x {links.shape[1]:,} columns, {len(links):,} links")


def numbers(text: str, name: str) -> tuple[float, ...]:
    """From ``1,0.8,0.6``."""
    try:
        return tuple(float(one) for one in text.split(","))
    except ValueError:
        raise InputError(f"{name}: expected numbers with commas between them, got {text!r}") from None


def count_or_numbers(text: str, name: str) -> int | tuple[float, ...]:
    """How many, as ``30``; or the numbers themselves, as ``0.5,0.2,0.1``."""
    try:
        return int(text)
    except ValueError:
        return numbers(text, name)


def check_at_least(value: int | None, least: int, name: str) -> None:
    """A whole number from ``least`` on, if it is given."""
    if value is not None and not least <= value <= LARGEST:
        raise InputError(f"{name}: expected a whole number of at least {least}, at most {LARGEST}, got {shown(value)}")


def check_seed(seed: int) -> None:
    """A seed that torch and numpy take."""
    check_at_least(seed, 0, "--seed")


def size(mib: int) -> int:
    """In bytes."""
    check_at_least(mib, 1, "--max-size")
    return mib * 2**20


def named(before: str, check: Callable[[Any], object], value: object) -> None:
    """A check of the library, whose message begins with the name of its argument, for an option of the same name."""
    try:
        check(value)
    except InputError as error:
        raise InputError(f"{before}{error}") from None
