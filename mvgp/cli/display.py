"""Tables on the screen: drawn by rich on a terminal, plain text elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..prioritise import RankedRow
from ..text import visible


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
