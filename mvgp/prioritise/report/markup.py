"""What rows and columns are called in the page."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# characters that no page or SVG may hold: control characters, halves of surrogate pairs, non-characters
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

NONE = "\u2013"  # a dash where there is no value
MINUS = "\u2212"


def text(value: object) -> str:
    """Text with markup made harmless, for content and for quoted attributes.

    Example:
        >>> text('<b title="x">')
        '&lt;b title=&quot;x&quot;&gt;'

    """
    return html.escape(FORBIDDEN.sub("\ufffd", str(value)), quote=True)


def name(value: object) -> str:
    """A name from data: its direction of writing stays its own."""
    return f"<bdi>{text(value)}</bdi>"


def embedded_json(value: Any) -> str:
    r"""Compact JSON that can stand inside a script element.

    Example:
        >>> print(embedded_json(["</script>"]))
        ["\u003c/script\u003e"]

    """
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    written = FORBIDDEN.sub("\ufffd", written)
    return written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def decimal(value: float | None, digits: int = 4) -> str:
    """A number with so many decimals and a true minus; a dash if there is none."""
    return NONE if value is None else f"{value:.{digits}f}".replace("-", MINUS)


def significant(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, zeros at its end included; a dash if there is none."""
    return NONE if value is None else f"{value:#.{digits}g}".removesuffix(".").replace("-", MINUS)


def places(values: Iterable[float | None], digits: int = 4) -> int:
    """Decimals with which the largest of some numbers has so many digits, so that a column of them lines up.

    Example:
        >>> places([2.5, -31.0, None]), places([0.002]), places([])
        (2, 6, 3)

    """
    largest = max((abs(value) for value in values if value is not None), default=0) or 1.0
    return min(10, max(0, digits - 1 - math.floor(math.log10(largest))))


def pvalue(value: float | None) -> str:
    """A p-value: two digits, and no more zeros than anyone reads."""
    if value is None:
        return NONE
    return "&lt; 0.0001" if value < 1e-4 else f"{value:.2g}"


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    :param content: HTML.
    :param key: what the cell is sorted by; None sorts last.
    :param number: whether it is a number, set to the right.
    :param css: more classes.
    """

    content: str
    key: object = None
    number: bool = False
    css: str = ""

    def html(self, tag: str = "td") -> str:
        """The cell as HTML."""
        classes = " ".join(filter(None, ["n" if self.number else "", self.css]))
        shown = f' class="{classes}"' if classes else ""
        key = "" if self.key is None else f' data-key="{text(self.key)}"'
        scope = ' scope="row"' if tag == "th" else ""
        return f"<{tag}{scope}{shown}{key}>{self.content}</{tag}>"


def name_cell(value: object, css: str = "") -> Cell:
    """A cell with a name."""
    return Cell(name(value), value, css=css)


def number_cell(content: str, key: float | None) -> Cell:
    """A cell with a number."""
    return Cell(content, None if key is None else repr(key), number=True)


@dataclass(frozen=True)
class Heading:
    """The head of a column.

    :param content: HTML.
    :param number: whether numbers follow, set to the right.
    :param first: which way it is sorted first: ``"up"``, ``"down"``, or ``""`` if it cannot be sorted by.
    """

    content: str
    number: bool = True
    first: str = "down"


def table(
    caption: str,
    headings: Sequence[Heading],
    rows: Sequence[Sequence[Cell]],
    *,
    css: str = "",
    attributes: Sequence[str] | None = None,
    identity: str = "",
    label: str = "",
) -> str:
    """A table that scrolls inside its own frame; its first column heads the lines.

    :param caption: HTML.
    :param headings: of the columns.
    :param rows: cells of each line.
    :param css: classes of the table and of its frame.
    :param attributes: of each line, as HTML.
    :param identity: id of the table.
    :param label: of the frame, as plain text; the caption when left out.
    """
    head = "".join(
        f'<th scope="col" class="{"n" if h.number else "t"}" data-sort="{h.first}">{h.content}</th>' for h in headings
    )
    extra = attributes if attributes is not None else [""] * len(rows)
    body = "\n".join(
        f"<tr{' ' + more if more else ''}>"
        + "".join(cell.html("td" if place else "th") for place, cell in enumerate(cells))
        + "</tr>"
        for cells, more in zip(rows, extra, strict=True)
    )
    label = text(label) or re.sub(r"<[^>]+>", "", caption)
    return (
        f'<div class="scroll {css}" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="{css}"{f" id={identity}" if identity else ""}><caption><div>{caption}</div></caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


@dataclass(frozen=True)
class Words:
    """What a row and a column are called, in the singular.

    Example:
        >>> Words("disease", "gene").rows, Words("city", "day").cols, Words("city", "day").rows
        ('diseases', 'days', 'cities')

    """

    row: str
    col: str

    @property
    def rows(self) -> str:
        """More than one row."""
        return _plural(self.row)

    @property
    def cols(self) -> str:
        """More than one column."""
        return _plural(self.col)


def _plural(word: str) -> str:
    if word.endswith("y") and word[-2:-1] not in ("", "a", "e", "i", "o", "u"):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")
