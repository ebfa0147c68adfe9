"""Read a table of a study: tab-separated text with a header; what is wrong is told with file, line and column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..storage.regular import open_regular
from .columns import Column

SHOWN = 60  # characters of a wrong cell in a message


@dataclass(frozen=True)
class Table:
    """A table that was read and checked.

    :param path: of its file.
    :param header: names of all columns, in the order of the file.
    :param rows: one dictionary for each line; columns that the schema does not name stay text.
    :param content: the bytes of the file.
    """

    path: Path
    header: tuple[str, ...]
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
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            found.setdefault(tuple(row[column] for column in columns), []).append(row)
        return found


def read_table(path: Path, columns: Sequence[Column]) -> Table:
    """Read and check a table.

    :param path: of the file.
    :param columns: that it must have; it may have more.
    """
    try:
        with open_regular(path) as file:
            content = file.read()
    except OSError as error:
        raise InputError(f"{path}: expected a table of a study, got {error.strerror or error}") from error
    lines = [line.removesuffix("\r") for line in _decode(path, content).split("\n")]  # a name may hold U+2028
    if lines[-1] == "":
        lines.pop()
    if not lines or not lines[0].strip():
        raise InputError(f"{path}, line 1: expected a header with the columns {_names(columns)}, got an empty line")
    header = tuple(lines[0].split("\t"))
    for name in header:
        if header.count(name) > 1:
            raise InputError(f"{path}, line 1: expected each column once, got {name!r} {header.count(name)} times")
    missing = [column for column in columns if column.name not in header]
    if missing:
        raise InputError(f"{path}, line 1: expected the columns {_names(missing)}, got {', '.join(header)}")
    checked = {column.name: column for column in columns}
    plan = [checked.get(name, Column(name, "text")) for name in header]
    return Table(path, header, [_row(path, number, line, plan) for number, line in enumerate(lines[1:], 2)], content)


def _decode(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: expected text in UTF-8, got the byte {content[error.start]:#04x}"
        ) from error


def _row(path: Path, number: int, line: str, plan: Sequence[Column]) -> dict[str, Any]:
    cells = line.split("\t")
    if len(cells) != len(plan):
        raise InputError(f"{path}, line {number}: expected {len(plan)} columns as in the header, got {len(cells)}")
    row: dict[str, Any] = {}
    for column, cell in zip(plan, cells, strict=True):
        try:
            row[column.name] = column.parse(cell)
        except ValueError as error:
            shown = repr(cell if len(cell) <= SHOWN else cell[:SHOWN] + "…")
            raise InputError(
                f"{path}, line {number}, column {column.name}: expected {column.expected}, got {shown}"
            ) from error
    return row


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(column.name for column in columns)
