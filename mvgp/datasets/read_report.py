"""ReadReport: what was read from tables, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class FileReport:
    """What one file held.

    :param file: its name.
    :param what: its role: "pairs", "row edges", "column edges", "row names", "column names".
    :param lines: below the header, without comments and blank lines.
    :param header: the fields of the header, none if the first line was data.
    :param duplicates: lines that repeat an earlier one; of edges in either direction.
    :param self_links: edges from an id to itself, dropped.
    :param matched: how many of its ids are among those of the pairs; of names, among those of pairs and edges.
    :param ids: how many different ids there are.
    """

    file: str
    what: str
    lines: int
    header: tuple[str, ...] | None
    duplicates: int = 0
    self_links: int = 0
    matched: int = 0
    ids: int = 0

    def __str__(self) -> str:
        parts = [f"{self.lines:,} lines", "no header" if self.header is None else f"header {' | '.join(self.header)}"]
        if self.duplicates:
            parts.append(f"{self.duplicates:,} duplicates merged")
        if self.self_links:
            parts.append(f"{self.self_links:,} self-links dropped")
        if self.what != "pairs":
            where = "in use" if self.what.endswith("names") else "in the pairs"
            parts.append(f"{self.matched:,} of {self.ids:,} ids are {where}")
        return f"{self.what}: {self.file}, " + ", ".join(parts)


@dataclass(frozen=True)
class ReadReport:
    """What was read, and what the filters left out. Prints as a few lines of text.

    :param files: one for each file.
    :param filters: "paper" or "none".
    :param dropped_rows: without a link in the row graph.
    :param dropped_cols: without a link in the column graph.
    :param dropped_links: pairs of a dropped row or column.
    """

    files: tuple[FileReport, ...]
    filters: str
    dropped_rows: int = 0
    dropped_cols: int = 0
    dropped_links: int = 0

    def __str__(self) -> str:
        what = (
            f"filters {self.filters}: dropped {self.dropped_rows:,} rows and {self.dropped_cols:,} columns without a "
        )
        what += f"link in their graph, and {self.dropped_links:,} pairs with them"
        return "\n".join([*map(str, self.files), what])

    def summary(self) -> str:
        """One line: the files, and what was dropped."""
        files = ", ".join(f"{file.what} {file.file}" for file in self.files)
        return f"{files}; filters {self.filters}" + (
            f" dropped {self.dropped_links:,} pairs" if self.dropped_links else ""
        )

    def with_dropped(self, rows: int, cols: int, links: int) -> ReadReport:
        """The same, and what the filters did."""
        return replace(self, dropped_rows=rows, dropped_cols=cols, dropped_links=links)
