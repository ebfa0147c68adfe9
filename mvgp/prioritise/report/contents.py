"""What a study directory holds: its description and its tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...storage.files import read_json
from ..tables.typed import Column, TypedTable, read_typed


def _columns(kind: str, *names: str, **limits: Any) -> list[Column]:
    return [Column(name, kind, **limits) for name in names]


_text, _number = partial(_columns, "text"), partial(_columns, "number")
_known = partial(_number, optional=True)  # a number, or nothing
_size, _share = partial(_known, low=0), partial(_number, low=0, high=1)
_count = partial(_columns, "integer", low=0)

TABLES: dict[str, list[Column]] = {
    "metrics": [*_text("model", "metric"), *_known("mean"), *_size("std"), *_count("folds")],
    "comparisons": [
        *_text("metric", "model_a", "model_b"),
        *_number("mean_a", "mean_b", "difference"),
        *_known("low", "high"),
        *_share("t_pvalue", "wilcoxon_pvalue", optional=True),
        *_count("wins", "losses", "ties", "tasks"),
    ],
    "curves": [
        *_text("model"),
        *_count("k", low=1),
        *_share("precision", "recall", "map"),
        *_size("precision_std", "recall_std", "map_std"),
    ],
    "path": [
        *_text("model", "metric"),
        *_count("fold"),
        *_share("trace_share", optional=True),
        *_size("strength", "standard_error"),
        *_known("score", "rank", "relative_gap", "iterations"),
        *_count("chosen", high=1),
    ],
    "choices": [*_text("model"), *_count("fold"), *_text("setting"), *_known("score")],
    "grids": [
        *_text("model", "setting", "metric"),
        *_count("fold"),
        *_known("score", "standard_error"),
        *_count("chosen", high=1),
    ],
    "calibration": [
        *_text("model"),
        *_share("low", "high"),
        *_share("mean_probability", "share", optional=True),
        *_count("count"),
    ],
    "candidates": [
        *_text("row_id", "row_name", "col_id", "col_name", "model"),
        *_count("rank", low=1),
        *_number("score"),
        *_size("std"),
        *_share("p_top", optional=True),
        *_count("k", low=1, optional=True),
        *_count("held_out", high=1),
    ],
}


def read_table(path: Path, columns: Sequence[Column]) -> TypedTable:
    """Read and check a table that has these columns, and perhaps others, which stay text."""
    known = {column.name: column for column in columns}
    return read_typed(path, lambda name: known.get(name, Column(name, "text")), required=known)


FORMAT = 1
KINDS = {"title": str, "settings": dict, "data": dict, "versions": dict, "finished": bool, "units": dict}


@dataclass(frozen=True)
class StudyContents:
    """A study as its directory describes it; ``notes`` are what a reader should know, ``saved`` when it was written."""

    title: str
    settings: dict[str, Any]
    data: dict[str, Any]
    versions: dict[str, Any]
    finished: bool
    units_done: int
    units_total: int
    seconds: float  # of work so far
    notes: tuple[str, ...]
    saved: datetime
    tables: dict[str, TypedTable]  # those that are there, by name

    @property
    def num_folds(self) -> int:
        """Number of folds behind the metrics; 0 if there are none yet."""
        return max((row["folds"] for row in self.tables.get("metrics", ())), default=0)


def read_study(directory: Path) -> StudyContents:
    """Read ``study.json`` and the tables of a study directory; tables that are not there are left out."""
    path = directory / "study.json"
    try:
        description = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{directory}: expected the directory of a study, got no study.json in it") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        got = description.get("format") if isinstance(description, dict) else type(description).__name__
        raise InputError(f"{path}: expected a study of format {FORMAT}, got {got!r}")
    notes = description.setdefault("notes", [])
    _check_entries(path, description, "the study", {**KINDS, "seconds": (int, float), "notes": list})
    _check_entries(path, description["units"], "units", {"done": int, "total": int})
    files = {name: directory / "tables" / f"{name}.tsv" for name in TABLES}
    return StudyContents(
        **{name: description[name] for name in KINDS if name != "units"},
        units_done=description["units"]["done"],
        units_total=description["units"]["total"],
        seconds=float(description["seconds"]),
        notes=tuple(map(str, notes)),
        saved=datetime.fromtimestamp(int(os.stat(path).st_mtime), UTC),
        tables={name: read_table(file, TABLES[name]) for name, file in files.items() if os.path.lexists(file)},
    )


def _check_entries(path: Path, entries: dict[str, Any], where: str, kinds: dict[str, Any]) -> None:
    for name, kind in kinds.items():
        value = entries.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise InputError(f"{path}: expected {name!r} of {where} to be {names}, got {value!r:.200}")
