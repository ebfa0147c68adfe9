"""Positive pairs, however they are given: what queries and metrics take as held-out or excluded items."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..checks import check_index, check_names, check_part, check_shape
from ..errors import InputError
from ..linalg.patterns import CompleteRows
from .observed import check_no_duplicates


class PositiveUnlabelled:
    """Positive pairs of an M x N matrix; every other item of a row that has a positive is in its list, unlabelled.

    No negatives are sampled: the whole list enters with weight ``weight``, the positives with weight 1. Rows
    without a positive say nothing and are left out.

    :param rows: (P,) row of each positive, in [0, M).
    :param cols: (P,) column of each positive, in [0, N).
    :param shape: (M, N).
    :param weight: of an unlabelled item, in (0, 1].
    :param row_names: M distinct names, optional.
    :param col_names: N distinct names, optional.

    Example:
        >>> import mvgp
        >>> links = mvgp.PositiveUnlabelled([0, 2, 2], [1, 0, 3], shape=(3, 5), weight=0.05)
        >>> len(links), links.num_cells
        (3, 10)

    """

    def __init__(
        self,
        rows: Any,
        cols: Any,
        shape: Any,
        weight: float = 0.05,
        *,
        row_names: Any = None,
        col_names: Any = None,
    ) -> None:
        self.shape = check_shape(shape)
        given_rows = check_index(rows, self.shape[0], "rows")
        given_cols = check_index(cols, self.shape[1], "cols")
        if given_rows.numel() != given_cols.numel() or given_rows.numel() == 0:
            raise InputError(
                f"expected as many rows as cols, at least one, got {given_rows.numel()} and {given_cols.numel()}"
            )
        key, order = torch.sort(given_rows * self.shape[1] + given_cols, stable=True)
        check_no_duplicates(key, order, self.shape[1])
        self.rows, self.cols = given_rows[order], given_cols[order]
        self.weight = check_part(weight, "weight")
        self.row_names = check_names(row_names, self.shape[0], "row_names")
        self.col_names = check_names(col_names, self.shape[1], "col_names")

    def __len__(self) -> int:
        return int(self.rows.numel())

    def __repr__(self) -> str:
        return f"PositiveUnlabelled({len(self)} positives of {self.shape[0]} x {self.shape[1]}, weight {self.weight:g})"

    @cached_property
    def pattern(self) -> CompleteRows:
        """Every cell of the rows that have a positive."""
        return CompleteRows(self.rows.unique(), self.shape)

    @property
    def num_cells(self) -> int:
        """How many cells are in some list."""
        return len(self.pattern)

    @cached_property
    def positions(self) -> Tensor:
        """(P,): where the positives are among the cells of :attr:`pattern`."""
        return torch.searchsorted(self.pattern.chosen, self.rows) * self.shape[1] + self.cols


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
