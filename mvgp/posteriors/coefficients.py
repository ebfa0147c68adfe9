r"""Representer coefficients A of a posterior mean: :math:`\psi(m, n) = k_M(m)\, A\, k_N(n)^T`."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch
from torch import Tensor

from ..linalg import cost
from ..linalg.csr import Pattern
from .query import AxisQuery, Query

CHUNK = 256  # rows or columns whose scores are computed at a time


class Coefficients(Protocol):
    """A (M, N), known by its products."""

    def times(self, dense: Tensor) -> Tensor:
        """(M, k): A times (N, k)."""
        ...

    def times_t(self, dense: Tensor) -> Tensor:
        """(N, k): A^T times (M, k)."""
        ...


class SparseCoefficients:
    """A with one number for each observed pair: the plain posterior mean, equation (2).

    :param pattern: where the T pairs are in the M x N matrix.
    :param values: (T,).
    """

    def __init__(self, pattern: Pattern, values: Tensor) -> None:
        self.pattern, self.values = pattern, values
        self._matrix, self._matrix_t = pattern.matrix(values), pattern.matrix_t(values)

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseCoefficients:
        return SparseCoefficients(self.pattern, copy.deepcopy(self.values, memo))  # torch copies no CSR tensors

    def __reduce__(self) -> tuple[Any, ...]:
        return SparseCoefficients, (self.pattern, self.values)

    def times(self, dense: Tensor) -> Tensor:
        """See :class:`Coefficients`."""
        return self._matrix @ dense

    def times_t(self, dense: Tensor) -> Tensor:
        """See :class:`Coefficients`."""
        return self._matrix_t @ dense


class LowRankCoefficients:
    """A = left right^T: the trace-constrained mean.

    :param left: (M, R).
    :param right: (N, R).
    """

    def __init__(self, left: Tensor, right: Tensor) -> None:
        self.left, self.right = left, right

    def times(self, dense: Tensor) -> Tensor:
        """See :class:`Coefficients`."""
        return self.left @ (self.right.mT @ dense)

    def times_t(self, dense: Tensor) -> Tensor:
        """See :class:`Coefficients`."""
        return self.right @ (self.left.mT @ dense)


def row_scores(coefficients: Coefficients, row_side: AxisQuery, col_side: AxisQuery, rows: Tensor) -> Tensor:
    """(R, N*): psi at the row positions ``rows`` (R,), all column positions; one chunk of rows' memory."""
    inner = coefficients.times_t(row_side.columns(rows).contiguous())  # (N, R)
    return col_side.cross()._matmul(inner).mT


def pair_means(coefficients: Coefficients, query: Query) -> Tensor:
    """(Q,): psi at the query's cells, chunk by chunk along the axis with the cheaper products."""
    rows, cols, pairs = query.row_side, query.col_side, query.pairs
    by_rows = cost.product_seconds(cols.cross(), 64) * len(pairs.active_rows)
    by_cols = cost.product_seconds(rows.cross(), 64) * len(pairs.active_cols)
    flipped = by_cols < by_rows
    active, local = (pairs.active_cols, pairs.local_cols) if flipped else (pairs.active_rows, pairs.local_rows)
    across = pairs.rows if flipped else pairs.cols
    out = torch.empty(len(query), dtype=rows.op.dtype, device=rows.op.device)
    for start in range(0, len(active), CHUNK):
        chosen = active[start : start + CHUNK]
        if flipped:
            inner = coefficients.times(cols.columns(chosen).contiguous())  # (M, k)
            scores = rows.cross()._matmul(inner)  # (M*, k)
        else:
            scores = row_scores(coefficients, rows, cols, chosen).mT  # (N*, k)
        here = (local >= start) & (local < start + CHUNK)
        out[here] = scores[across[here], local[here] - start]
    return out
