"""ReadReport: what was read from tables, what the filters have left out, and what was not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FileReport:
    """What was read from one file.

    :param file: its name.
    :param what: its role: "pairs", "row edges", "column edges", "row features", "column features", "row names",
        "column names".
    :param lines: below the header, without comments and blank lines.
    :param header: the fields of the header; None if the first line was data.
    :param duplicates: lines that repeat an earlier one; of edges in either direction.
    :param self_links: edges from an id to itself, dropped.
    :param matched: how many of its ids are among those of the pairs; of names, among all that were read before.
    :param ids: how many different ids there are.
    :param columns: how many features.
    :param missing: rows, or columns, of the set that have no features there, and get the mean of each.
    """

    file: str
    what: str
    lines: int
    header: tuple[str, ...] | None
    duplicates: int = 0
    self_links: int = 0
    matched: int = 0
    ids: int = 0
    columns: int = 0
    missing: int = 0

    def __str__(self) -> str:
        names = self.header and (self.header if len(self.header) <= 4 else (*self.header[:3], "..."))
        parts = [f"{self.lines:,} lines", "no header" if names is None else f"header {' | '.join(names)}"]
        if self.duplicates:
            parts.append(f"{self.duplicates:,} duplicates merged")
        if self.self_links:
            parts.append(f"{self.self_links:,} self-links dropped")
        if self.what != "pairs":
            where = "in use" if self.what.endswith("names") else "in the pairs"
            parts.append(f"{self.matched:,} of {self.ids:,} ids are {where}")
        if self.columns:
            sign = ", of which the cosine keeps the sign alone" if self.columns == 1 else ""
            parts.append(f"{counted(self.columns, 'feature')}{sign}")
            side = self.what.split()[0]
            parts.append(
                f"{counted(self.missing, side)} without features {'has' if self.missing == 1 else 'have'} zeros"
            )
        return f"{self.what}: {self.file}, " + ", ".join(parts)


@dataclass(frozen=True)
class Dropped:
    """A row, or a column, that the filters left out.

    :param id: its id.
    :param name: its name; the id if it has none.
    :param links: how many known links went with it.
    """

    id: str
    name: str
    links: int


@dataclass(frozen=True)
class ReadReport:
    """What was read, and what the filters left out; ``print`` shows it as a few lines of text.

    :param files: one for each file.
    :param filters: "linked", "paper" or "none".
    :param shape: numbers of rows and columns that are kept.
    :param links: known links that are kept.
    :param row_drops: rows that the filters left out.
    :param col_drops: columns that the filters left out.
    :param dropped_links: pairs of a dropped row or column.

    Example:
        >>> from mvgp.prioritise.tables import Dropped, FileReport, ReadReport
        >>> file = FileReport("pairs.tsv", "pairs", 4, None)
        >>> print(ReadReport((file,), "paper", (2, 3), 3, (Dropped("d9", "Gout", 1),), (), 1))
        pairs: pairs.tsv, 4 lines, no header
        2 rows x 3 columns, 3 links; filters paper dropped 1 row, 0 columns and 1 link

    """

    files: tuple[FileReport, ...]
    filters: str
    shape: tuple[int, int] = (0, 0)
    links: int = 0
    row_drops: tuple[Dropped, ...] = ()
    col_drops: tuple[Dropped, ...] = ()
    dropped_links: int = 0

    @property
    def dropped_rows(self) -> int:
        """How many rows the filters left out."""
        return len(self.row_drops)

    @property
    def dropped_cols(self) -> int:
        """How many columns the filters left out."""
        return len(self.col_drops)

    def find_dropped_row(self, text: str) -> Dropped | None:
        """The dropped row with this id, or this name, or this name in any case; None if there is none."""
        return _find(text.strip(), self.row_drops)

    def keeping(self, dropped: Dropped) -> str:
        """The filters that keep what was dropped: "linked" if it has a known link, otherwise "none"."""
        return "linked" if dropped.links else "none"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.files), self.counts()])

    def counts(self) -> str:
        """One line: rows, columns and links that are kept, and those that were dropped."""
        kept = f"{self.shape[0]:,} rows x {self.shape[1]:,} columns, {self.links:,} links"
        rows, cols = counted(self.dropped_rows, "row"), counted(self.dropped_cols, "column")
        return f"{kept}; filters {self.filters} dropped {rows}, {cols} and {counted(self.dropped_links, 'link')}"

    def summary(self) -> str:
        """One line: the files, and what was dropped."""
        files = ", ".join(f"{file.what} {file.file}" for file in self.files)
        dropped = f" dropped {self.dropped_links:,} pairs" if self.dropped_links else ""
        return f"{files}; filters {self.filters}{dropped}"


def _find(text: str, drops: Sequence[Dropped]) -> Dropped | None:
    keys = (
        (text, lambda one: one.id),
        (text, lambda one: one.name),
        (text.casefold(), lambda one: one.name.casefold()),
    )
    return next((one for wanted, key in keys for one in drops if key(one) == wanted), None)


def counted(count: int, noun: str) -> str:
    """A number with its noun: "1 row", "2,000 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
