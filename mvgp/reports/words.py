"""What rows and columns are called in the page."""

from __future__ import annotations

from dataclasses import dataclass


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
