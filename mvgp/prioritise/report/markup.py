"""How values become text of the page: templates, escaping, and the forms of numbers and words."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...errors import InputError

# characters that no page or SVG may hold: control characters, halves of surrogate pairs, non-characters
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

NONE = "\u2013"  # a dash where there is no value
MINUS = "\u2212"


def render(template: str, **values: Any) -> str:
    """Fill in a template of the folder ``assets``; whatever is not marked as safe there is escaped.

    :param template: name of its file.
    :param values: that it shows.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise InputError("pages: expected jinja2, got none; pip install 'mvgp[cli]'") from error

    def finalize(value: Any) -> Any:
        return value if hasattr(value, "__html__") else Markup(html.escape(clean(value)))

    environment = Environment(
        loader=PackageLoader("mvgp.prioritise.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,  # autoescape alone would keep forbidden characters
    )
    filters = (decimal, significant, signed, pvalue, plain, grouped, duration, embedded_json)
    environment.filters |= {function.__name__: function for function in filters}
    return environment.get_template(template).render(values)


def clean(value: object) -> str:
    """Text without the characters that no page may hold."""
    return FORBIDDEN.sub("\ufffd", str(value))


def embedded_json(value: Any) -> str:
    r"""Compact JSON that can stand inside a script element.

    Example:
        >>> print(embedded_json(["</script>"]))
        ["\u003c/script\u003e"]

    """
    from jinja2.utils import htmlsafe_json_dumps
    from markupsafe import Markup

    written = htmlsafe_json_dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(clean(written))


def decimal(value: float | None, digits: int = 4) -> str:
    """A number with so many decimals and a true minus; a dash if there is none."""
    return NONE if value is None else f"{value:.{digits}f}".replace("-", MINUS)


def signed(value: float) -> str:
    """A difference with four decimals and its sign."""
    return ("+" if value > 0 else "") + decimal(value)


def significant(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, zeros at its end included; a dash if there is none."""
    return NONE if value is None else f"{value:#.{digits}g}".removesuffix(".").replace("-", MINUS)


def num_decimals(values: Iterable[float | None], digits: int = 4) -> int:
    """Decimals with which the largest of some numbers has so many digits, so that a column of them lines up.

    Example:
        >>> num_decimals([2.5, -31.0, None]), num_decimals([0.002]), num_decimals([])
        (2, 6, 3)

    """
    largest = max((abs(value) for value in values if value is not None), default=0) or 1.0
    return min(10, max(0, digits - 1 - math.floor(math.log10(largest))))


def pvalue(value: float | None) -> str:
    """A p-value: two digits, and no more zeros than anyone reads."""
    if value is None:
        return NONE
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def grouped(value: Any) -> str:
    """A count with its thousands apart; anything else as it is."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def plain(value: Any) -> str:
    """A value of a description, as text."""
    if isinstance(value, list) and not any(isinstance(part, list | dict) for part in value):
        return ", ".join(plain(part) for part in value)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def duration(seconds: float) -> str:
    """A time in a unit that fits it."""
    if seconds < 120:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


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
