"""Tables that mvgp has written, read again and checked (:func:`read_typed`): tab-separated, with a header."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...text import from_cell
from .reader import TableError, read_content, shortened, split_columns, split_lines


@dataclass(frozen=True)
class Column:
    """A column of ``kind`` "text", "number" (finite), "integer" or "float" (any number; an empty cell is NaN).

    A cell that is ``optional`` may be empty (or ``nan``): it is read as None.
    """

    name: str
    kind: str
    optional: bool = False
    low: float = -math.inf
    high: float = math.inf

    def parse(self, cell: str) -> Any:
        """The value of a cell; None if the cell is empty and may be; a ValueError says what was expected."""
        if self.kind == "text":
            return from_cell(cell)
        with contextlib.suppress(ValueError):
            value = float(cell) if cell.strip() else math.nan
            if self.kind == "float":
                return value
            if math.isnan(value) and self.optional:
                return None
            if self.low <= value <= self.high and math.isfinite(value):
                if self.kind == "number":
                    return value
                if value == int(value):
                    return int(value)
        what = "a whole number" if self.kind == "integer" else "a number"
        if self.low > -math.inf and self.high < math.inf:
            what += f" from {self.low:g} to {self.high:g}"
        elif self.low > -math.inf:
            what += f" of at least {self.low:g}"
        raise ValueError(f"expected {what}{' or nothing' if self.optional else ''}, got {shortened(cell)}")


@dataclass(frozen=True)
class TypedTable:
    """A table that was read and checked: a dictionary for each line, and the bytes of the file."""

    rows: list[dict[str, Any]]
    content: bytes

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def distinct(self, column: str) -> list[Any]:
        """The values of a column, each once, in order of appearance."""
        return list(dict.fromkeys(row[column] for row in self.rows))

    def groups(self, *columns: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
        """Rows with the same values of some columns, in order of appearance."""
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row[column] for column in columns), []).append(row)
        return groups


def read_typed(path: Path, column_of: Callable[[str], Column], required: Collection[str] = ()) -> TypedTable:
    """Read and check a table that mvgp has written.

    :param column_of: the column for each name of the header.
    :param required: names that the header must have; it may have more.
    """
    content = read_content(path)
    lines = split_lines(path, content)
    if not lines or not lines[0].strip():
        names = f" with the columns {', '.join(required)}" if required else ""
        raise TableError(path, f"expected a header{names}, got an empty line", 1)
    header = tuple(lines[0].split("\t"))
    for name in header:
        if header.count(name) > 1:
            raise TableError(path, f"expected each column once, got {name!r} {header.count(name)} times", 1)
    missing = [name for name in required if name not in header]
    if missing:
        raise TableError(path, f"expected the columns {', '.join(missing)}, got {', '.join(header)}", 1)
    for number, line in enumerate(lines, 1):
        count = line.count("\t") + 1
        if count != len(header):
            raise TableError(path, f"expected {len(header)} columns as in the header, got {count}", number)
    columns = [column_of(name) for name in header]
    rows: list[dict[str, Any]] = []
    entries = zip(*split_columns(path, lines, range(len(header)), len(header), "\t"), strict=True)
    next(entries)  # the header
    for number, cells in enumerate(entries, 2):
        rows.append({})
        for column, cell in zip(columns, cells, strict=True):
            try:
                rows[-1][column.name] = column.parse(cell)
            except ValueError as error:
                raise TableError(path, str(error), number, column.name) from None
    return TypedTable(rows, content)
