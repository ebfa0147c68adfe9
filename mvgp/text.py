"""Text from data, made harmless for terminals and for the cells of tables; and descriptions, shown in any place.

A name can contain anything: escape sequences that rewrite a terminal, marks that reverse the direction of writing, a
leading ``=`` that a spreadsheet takes for a formula.
"""

from __future__ import annotations

import html
import re
import textwrap
from dataclasses import dataclass
from typing import Any

# control characters (C0, DEL, C1), marks of the direction of writing, separators of lines, halves of surrogate pairs
UNSAFE = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
FORMULAS = "=+-@\uff1d\uff0b\uff0d\uff20"  # also as full-width characters
QUOTES = "'\""  # the first is the mark of to_cell, the second makes readers of tables join cells

WIDTH = 100  # characters of a line of a description

_IN_TEXT = re.compile(f"[{UNSAFE}]")
_IN_CELL = re.compile(rf"[\\{UNSAFE}]")
_ESCAPE = re.compile(r"\\(?:[\\tnr]|x[0-9a-f]{2}|u[0-9a-f]{4})")


def visible(text: str) -> str:
    r"""Text for a terminal: characters that are invisible or have an effect are written as ``\x1b``, ``\u202e``, ....

    :param text: any.

    Example:
        >>> from mvgp.text import visible
        >>> print(visible("a\x1b[31mb"), visible("[red]"))
        a\x1b[31mb [red]

    """
    return _IN_TEXT.sub(_escape, text)


def to_cell(text: str) -> str:
    r"""Text as a cell of a tab-separated table: with the escapes of :func:`visible`, the backslash itself included.

    An apostrophe goes before a text that begins with ``= + - @`` or with a quote, spaces aside.

    :param text: any.

    Example:
        >>> from mvgp.text import from_cell, to_cell
        >>> print(to_cell("=1+1"), to_cell("a\tb"), to_cell("C:\\x"), to_cell("IL-4"))
        '=1+1 a\tb C:\\x IL-4
        >>> from_cell(to_cell("=1+1\x1b")) == "=1+1\x1b"
        True

    """
    cell = _IN_CELL.sub(_escape, text)
    return f"'{cell}" if _is_marked(cell) else cell


def from_cell(cell: str) -> str:
    r"""The text that :func:`to_cell` has written as a cell.

    An apostrophe that :func:`to_cell` does not write, before an ordinary letter or alone, is part of the text.

    :param cell: of a table that mvgp has written.

    Example:
        >>> from mvgp.text import from_cell
        >>> from_cell("'@home"), from_cell(r"a\\b"), from_cell("'t Hooft")
        ('@home', 'a\\b', "'t Hooft")

    """
    text = cell[1:] if cell.startswith("'") and _is_marked(cell[1:]) else cell
    return _ESCAPE.sub(lambda match: match.group().encode().decode("unicode_escape"), text)


def _is_marked(cell: str) -> bool:
    """Whether an apostrophe is put before it."""
    return cell.lstrip().startswith((*FORMULAS, *QUOTES))


def _escape(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()


@dataclass(frozen=True)
class Description:
    """What :func:`mvgp.describe` has to say: text by ``print``, a table in a terminal with rich, HTML in a notebook.

    :param title: the object, in a line.
    :param lines: what is said about it, and its name, such as ``("certificate", "relative gap ...")``.
    """

    title: str
    lines: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.lines), default=0)
        out = [self.title]
        for name, text in self.lines:
            rest = " " * (width + 4)
            first = f"  {name:<{width}}  "
            options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
            out += textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, **options) or [first]
        return "\n".join(out)

    __repr__ = __str__

    def __rich__(self) -> Any:
        """For ``rich.print``, and for a console of rich."""
        from rich.table import Table
        from rich.text import Text

        table = Table(
            title=Text(self.title, style="bold"), title_justify="left", show_header=False, box=None, pad_edge=False
        )
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in self.lines:
            table.add_row(Text(name), Text(text))
        return table

    def _repr_html_(self) -> str:
        """For a notebook."""
        cell = "text-align: left; vertical-align: top; padding: 0.1em 1em 0.1em 0"
        rows = "".join(
            f'<tr><th scope="row" style="{cell}; white-space: nowrap">{html.escape(name)}</th>'
            f'<td style="{cell}">{html.escape(text)}</td></tr>'
            for name, text in self.lines
        )
        caption = f'<caption style="text-align: left; font-weight: bold">{html.escape(self.title)}</caption>'
        return f'<table class="mvgp-description">{caption}<tbody>{rows}</tbody></table>'
