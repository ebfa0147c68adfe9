"""Tables on the screen: drawn by rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...errors import InputError
from ...storage.files import check_output_directory, check_output_file
from ...text import visible
from ..ranking.rows import RankedRow
from ..studies.settings import LARGEST, shown
from ..tables.link_set import LinkSet
from ..tables.reader import MAX_BYTES
from .streams import say

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


def check_output(path: Path | None, option: str, others: Iterable[Path | None] = ()) -> None:
    """A file in a directory that is there, and none of the others, which are read or written, too."""
    if path is None or str(path) == "-":
        return
    try:
        target = check_output_file(path)
    except InputError as error:
        hint = " (--out - writes to standard output)" if str(path) == "/dev/stdout" else ""
        raise InputError(f"{option}: {error}{hint}") from None
    for one in others:
        if one is not None and str(one) != "-" and _same(os.fspath(one), target):
            raise InputError(f"{option}: expected a file of its own, got {path}, which is read or written as well")


def check_directory(path: Path, option: str) -> None:
    """A directory, or a place for one."""
    try:
        check_output_directory(path)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def _same(one: str, target: str) -> bool:
    try:
        return os.path.realpath(one) == target or os.path.samefile(one, target)
    except (OSError, ValueError):  # one of them is not there
        return False


def show_row(row: RankedRow) -> None:
    """A ranked list, under the row's id and name."""
    console = Console()
    if not console.is_terminal:
        print(f"{row}\n")
        return
    show_table(row.title(), *row.cells(), left=("id", "name"))


def show_line(text: str) -> None:
    """One line of results."""
    print(visible(text))


def show_table(title: str, headings: Sequence[str], lines: Sequence[Sequence[str]], left: Sequence[str] = ()) -> None:
    """A table with a title; columns are flush right, but for those of ``left``."""
    console, title, headings = Console(), visible(title), [visible(name) for name in headings]
    lines = [[visible(text) for text in line] for line in lines]
    if not console.is_terminal:
        every = [list(headings), *map(list, lines)]
        widths = [max(len(line[place]) for line in every) for place in range(len(headings))]
        print(title)
        for cells in every:
            fields = zip(headings, cells, widths, strict=True)
            print("  ".join(f"{text:<{w}}" if name in left else f"{text:>{w}}" for name, text, w in fields).rstrip())
        print()
        return
    table = Table(title=Text(title), title_justify="left")
    for name in headings:
        table.add_column(Text(name), justify="left" if name in left else "right")
    for line in lines:
        table.add_row(*(Text(text) for text in line))
    console.print(table)
