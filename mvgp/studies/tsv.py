"""Tables of a study as tab-separated text, and back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ..datasets.table_error import shown
from ..errors import InputError
from ..storage.regular import open_regular
from ..text import from_cell, to_cell

Table = list[dict[str, Any]]
# columns of words, of whole numbers, and of 0 and 1
TEXT = ("model", "metric", "model_a", "model_b", "setting", "failure", "row_id", "row_name", "col_id", "col_name")
COUNTS = ("folds", "fold", "place", "rank", "iterations", "wins", "losses", "ties", "tasks", "k", "count")
FLAGS = ("chosen", "held_out")


def to_text(columns: list[str], table: Table) -> str:
    """A header and a line for each entry; what is not defined is empty, texts are made harmless (:mod:`mvgp.text`)."""
    lines = ["\t".join(columns)]
    lines += ["\t".join(_cell(entry[name]) for name in columns) for entry in table]
    return "\n".join(lines) + "\n"


def from_file(path: Path) -> Table:
    """The entries of a file as :func:`to_text` has made it; undefined numbers are NaN."""
    try:
        with open_regular(path) as file:
            first, *lines = file.read().decode().split("\n")[:-1]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected a table of a study, got {error}") from None
    columns = first.split("\t")
    if len(set(columns)) < len(columns):
        raise InputError(f"{path}, line 1: expected each column once, got {first!r:.200}")
    table = []
    for number, line in enumerate(lines, 2):
        cells = line.split("\t")
        if len(cells) != len(columns):
            raise InputError(f"{path}, line {number}: expected {len(columns)} columns, got {len(cells)}")
        table.append({name: _value(path, number, name, cell) for name, cell in zip(columns, cells, strict=True)})
    return table


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return to_cell(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, bool | int) else f"{value:.10g}"


def _value(path: Path, number: int, name: str, cell: str) -> Any:
    if name in TEXT:
        return from_cell(cell)
    try:
        if name in (*COUNTS, *FLAGS):
            return int(cell)
        return float(cell) if cell else math.nan
    except ValueError:
        raise InputError(f"{path}, line {number}, {name}: expected a number, got {shown(cell)}") from None
