"""What a study directory holds: its description and its tables."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...storage.files import read_json
from ..tables.reader import Column, TypedTable, read_typed


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

Table = TypedTable


def read_table(path: Path, columns: Sequence[Column]) -> Table:
    """Read and check a table. Columns that are not among those stated stay text.

    :param path: of the file.
    :param columns: that it must have; it may have more.
    """
    known = {column.name: column for column in columns}
    return read_typed(path, lambda name: known.get(name, Column(name, "text")), required=known)


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
