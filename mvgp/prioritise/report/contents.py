"""What a study directory holds: its description and its tables."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...storage.files import open_regular, read_json
from ...text import from_cell


@dataclass(frozen=True)
class Column:
    """One column of a table.

    :param name: in the header.
    :param kind: ``"text"``, ``"number"`` or ``"integer"``.
    :param optional: whether a cell may be empty (or ``nan``): it is read as None.
    :param low: smallest value.
    :param high: largest value.
    """

    name: str
    kind: str
    optional: bool = False
    low: float = -math.inf
    high: float = math.inf

    @property
    def expected(self) -> str:
        """What a cell should be, for messages."""
        what = {"text": "a text", "number": "a number", "integer": "a whole number"}[self.kind]
        if self.low > -math.inf and self.high < math.inf:
            what += f" from {self.low:g} to {self.high:g}"
        elif self.low > -math.inf:
            what += f" of at least {self.low:g}"
        return what + (" or nothing" if self.optional else "")

    def parse(self, cell: str) -> Any:
        """The value of a cell, None if it is empty and may be; a ValueError if it is not what was expected."""
        if self.kind == "text":
            return from_cell(cell)
        value = float(cell) if cell.strip() else math.nan
        if math.isnan(value) and self.optional:
            return None
        if not math.isfinite(value) or not self.low <= value <= self.high:
            raise ValueError(cell)
        if self.kind == "integer":
            if value != int(value):
                raise ValueError(cell)
            return int(value)
        return value


def _text(*names: str) -> list[Column]:
    return [Column(name, "text") for name in names]


def _number(*names: str, optional: bool = False, low: float = -math.inf, high: float = math.inf) -> list[Column]:
    return [Column(name, "number", optional, low, high) for name in names]


def _count(*names: str, low: float = 0, high: float = math.inf, optional: bool = False) -> list[Column]:
    return [Column(name, "integer", optional, low, high) for name in names]


TABLES: dict[str, list[Column]] = {
    "metrics": [
        *_text("model", "metric"),
        *_number("mean", optional=True),
        *_number("std", optional=True, low=0),
        *_count("folds"),
    ],
    "comparisons": [
        *_text("metric", "model_a", "model_b"),
        *_number("mean_a", "mean_b", "difference"),
        *_number("low", "high", optional=True),
        *_number("t_pvalue", "wilcoxon_pvalue", optional=True, low=0, high=1),
        *_count("wins", "losses", "ties", "tasks"),
    ],
    "curves": [
        *_text("model"),
        *_count("k", low=1),
        *_number("precision", "recall", "map", low=0, high=1),
        *_number("precision_std", "recall_std", "map_std", optional=True, low=0),
    ],
    "path": [
        *_text("model"),
        *_count("fold"),
        *_number("trace_share", optional=True, low=0, high=1),
        *_number("strength", optional=True, low=0),
        *_text("metric"),
        *_number("score", optional=True),
        *_number("standard_error", optional=True, low=0),
        *_number("rank", "relative_gap", "iterations", optional=True),
        *_count("chosen", high=1),
    ],
    "choices": [*_text("model"), *_count("fold"), *_text("setting"), *_number("score", optional=True)],
    "grids": [
        *_text("model"),
        *_count("fold"),
        *_text("setting", "metric"),
        *_number("score", "standard_error", optional=True),
        *_count("chosen", high=1),
    ],
    "calibration": [
        *_text("model"),
        *_number("low", "high", low=0, high=1),
        *_number("mean_probability", "share", optional=True, low=0, high=1),
        *_count("count"),
    ],
    "candidates": [
        *_text("row_id", "row_name"),
        *_count("rank", low=1),
        *_text("col_id", "col_name"),
        *_number("score"),
        *_number("std", optional=True, low=0),
        *_number("p_top", optional=True, low=0, high=1),
        *_count("k", low=1, optional=True),
        *_text("model"),
        *_count("held_out", high=1),
    ],
}

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


FORMAT = 1


@dataclass(frozen=True)
class StudyContents:
    """A study as its directory describes it.

    :param title: of the study.
    :param settings: of the study, by name.
    :param data: source and sizes of the data, by name.
    :param versions: of the libraries, by name.
    :param finished: whether all units of work are done.
    :param units_done: units of work that are.
    :param units_total: units of work there are.
    :param seconds: of work so far.
    :param notes: what a reader should know, such as fits that missed their tolerance.
    :param saved: when the description was written.
    :param tables: those that are there, by name.
    """

    title: str
    settings: dict[str, Any]
    data: dict[str, Any]
    versions: dict[str, Any]
    finished: bool
    units_done: int
    units_total: int
    seconds: float
    notes: tuple[str, ...]
    saved: datetime
    tables: dict[str, Table]

    @property
    def num_folds(self) -> int:
        """Number of folds behind the metrics; 0 if there are none yet."""
        return max((row["folds"] for row in self.tables.get("metrics", ())), default=0)


def read_study(directory: Path) -> StudyContents:
    """Read ``study.json`` and the tables of a study directory.

    :param directory: of the study; tables that are not there are left out.
    """
    path = directory / "study.json"
    try:
        description = _description(path)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{directory}: expected the directory of a study, got no study.json in it") from None
    units = _entry(path, description["units"], "units", {"done": int, "total": int})
    tables = {}
    for name, columns in TABLES.items():
        file = directory / "tables" / f"{name}.tsv"
        if os.path.lexists(file):
            tables[name] = read_table(file, columns)
    return StudyContents(
        title=description["title"],
        settings=description["settings"],
        data=description["data"],
        versions=description["versions"],
        finished=description["finished"],
        units_done=units["done"],
        units_total=units["total"],
        seconds=float(description["seconds"]),
        notes=tuple(str(note) for note in description.get("notes", ())),
        saved=datetime.fromtimestamp(int(os.stat(path).st_mtime), UTC),
        tables=tables,
    )


def _description(path: Path) -> dict[str, Any]:
    description = read_json(path)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        got = description.get("format") if isinstance(description, dict) else type(description).__name__
        raise InputError(f"{path}: expected a study of format {FORMAT}, got {got!r}")
    if not isinstance(description.get("notes", []), list):
        raise InputError(f"{path}: expected 'notes' of the study to be list, got {description['notes']!r:.200}")
    kinds = {"title": str, "settings": dict, "data": dict, "versions": dict, "finished": bool, "units": dict}
    return _entry(path, description, "the study", {**kinds, "seconds": (int, float)})


def _entry(path: Path, entries: dict[str, Any], where: str, kinds: dict[str, Any]) -> dict[str, Any]:
    for name, kind in kinds.items():
        value = entries.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise InputError(f"{path}: expected {name!r} of {where} to be {names}, got {value!r:.200}")
    return entries
