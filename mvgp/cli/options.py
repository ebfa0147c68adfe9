"""Options that commands share, and how their texts are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..datasets import LinkSet
from ..errors import InputError
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
    if value is not None and value < least:
        raise InputError(f"{name}: expected a whole number of at least {least}, got {value}")
