"""Positive pairs, however they are given: what queries and metrics take as held-out or excluded items."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import check_index
from ..errors import InputError
from .checks import check_no_duplicates


def positive_pairs(given: Any, shape: tuple[int, int], name: str) -> tuple[Tensor, Tensor]:
    """(P,) rows and (P,) columns of distinct pairs, on the CPU, row-major sorted.

    :param given: an ``ObservedMatrix``, whose entries above 0 count, anything else with ``rows`` and ``cols``, or a
        pair (rows, cols) of vectors (P,); ``None`` for no pairs.
    :param shape: (M, N).
    :param name: for messages.
    """
    given_rows, given_cols = _parts(given, shape, name)
    rows = check_index(given_rows, shape[0], f"{name} rows").cpu()
    cols = check_index(given_cols, shape[1], f"{name} cols").cpu()
    if len(rows) != len(cols):
        raise InputError(f"{name}: rows and cols differ in length: {len(rows)} and {len(cols)}")
    cells, order = torch.sort(rows * shape[1] + cols, stable=True)
    check_no_duplicates(cells, order, shape[1])
    return rows[order], cols[order]


def _parts(given: Any, shape: tuple[int, int], name: str) -> tuple[Any, Any]:
    if given is None:
        return (), ()
    if hasattr(given, "rows") and hasattr(given, "cols"):
        if tuple(getattr(given, "shape", shape)) != shape:
            raise InputError(f"{name}: expected shape {shape} as in the scores, got {tuple(given.shape)}")
        values = getattr(given, "values", None)
        if isinstance(values, Tensor):
            return given.rows[values > 0], given.cols[values > 0]
        return given.rows, given.cols
    if isinstance(given, tuple | list) and len(given) == 2:
        return given[0], given[1]
    raise InputError(f"{name}: expected an ObservedMatrix or a pair (rows, cols), got {type(given).__name__}")
