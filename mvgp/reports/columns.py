"""What each table of a study must hold: its columns, their kinds and ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..text import from_cell


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
