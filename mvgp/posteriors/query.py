r"""The cells a posterior is asked about, and its mean there: :math:`\psi(m, n) = k_M(m)\, A\, k_N(n)^T`."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..linalg.pairs import CompleteRows, PairIndex, Pattern
from ..linalg.spectra import columns, diagonal_at, product_seconds
from ..priors.matrix_gp import Axis, MatrixGP
from ..tensor_checks import check_cells

LINE_BATCH = 256  # rows or columns whose scores are computed at a time


class AxisQuery:
    """Positions on one axis: its own inputs, or new ones.

    :param axis: kernel and inputs.
    :param op: (n, n) covariance of the axis's own inputs.
    :param inputs: (q, d) new inputs; ``None`` for the axis's own.
    """

    def __init__(self, axis: Axis, op: LinearOperator, inputs: Any = None) -> None:
        self.axis, self.op = axis, op
        self.inputs = None if inputs is None else axis.new_inputs(inputs)
        self._cross = None if self.inputs is None else axis.cross(self.inputs)

    @property
    def is_new(self) -> bool:
        """Whether the positions are new inputs."""
        return self.inputs is not None

    def __len__(self) -> int:
        return len(self.axis) if self.inputs is None else int(self.inputs.shape[0])

    def cross(self) -> LinearOperator:
        """(q, n): covariance between the positions and the axis's own inputs."""
        return self.op if self._cross is None else self._cross

    def in_precision(self, op: LinearOperator) -> AxisQuery:
        """The same positions with the covariance ``op`` in another precision."""
        fresh = copy.copy(self)
        fresh.op = op
        fresh._cross = None if self._cross is None else self._cross.to(op.dtype)
        return fresh

    def covariance(self) -> LinearOperator:
        """(q, q): covariance among the positions."""
        return self.op if self.inputs is None else self.axis.block(self.inputs)

    def columns(self, which: Tensor) -> Tensor:
        """(n, k): covariance between the axis's own inputs and the positions ``which`` (k,)."""
        return columns(self.op, which) if self._cross is None else columns(self._cross.mT, which)

    def diagonal(self, which: Tensor) -> Tensor:
        """(k,): prior variance factor at the positions ``which`` (k,)."""
        if self.inputs is None:
            return diagonal_at(self.op, which)
        return self.axis.kernel(self.inputs[which], diag=True)

    def extended(self) -> tuple[LinearOperator, int]:
        """Covariance of the axis's own inputs followed by the new ones, and where the positions start."""
        if self.inputs is None:
            return self.op, 0
        return self.axis.block(torch.cat([self.axis.inputs, self.inputs])), len(self.axis)


class Query:
    """Q cells (row position, column position).

    :param prior: the prior.
    :param ops: its covariances (K_M, K_N).
    :param rows: (Q,) positions on the row axis, or among ``row_inputs``.
    :param cols: (Q,) positions on the column axis, or among ``col_inputs``.
    """

    def __init__(
        self,
        prior: MatrixGP,
        ops: tuple[LinearOperator, LinearOperator],
        rows: Any,
        cols: Any,
        row_inputs: Any = None,
        col_inputs: Any = None,
    ) -> None:
        self.prior = prior
        self.row_side = AxisQuery(prior.row_axis, ops[0], row_inputs)
        self.col_side = AxisQuery(prior.col_axis, ops[1], col_inputs)
        shape = (len(self.row_side), len(self.col_side))
        self.pairs = PairIndex(*check_cells(rows, cols, shape), shape)

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def is_new(self) -> bool:
        """Whether any position is a new input."""
        return self.row_side.is_new or self.col_side.is_new

    def part(self, which: Tensor) -> Query:
        """Some of the cells, at positions ``which`` (q,)."""
        fresh = copy.copy(self)
        fresh.pairs = self.pairs[which]
        return fresh

    def in_precision(self, ops: tuple[LinearOperator, LinearOperator]) -> Query:
        """The same cells under covariances in another precision."""
        fresh = copy.copy(self)
        fresh.row_side, fresh.col_side = self.row_side.in_precision(ops[0]), self.col_side.in_precision(ops[1])
        return fresh

    def prior_mean(self) -> Tensor:
        """(Q,)"""
        mean = self.prior.mean_module
        rows = None if self.row_side.is_new else self.pairs.rows
        return mean.at(rows, None if self.col_side.is_new else self.pairs.cols).expand(len(self))

    def prior_variance(self) -> Tensor:
        """(Q,)"""
        return self.row_side.diagonal(self.pairs.rows) * self.col_side.diagonal(self.pairs.cols)


class SparseCoefficients:
    """A (M, N) with one of the ``values`` (T,) for each observed pair; whole rows are held as a dense block."""

    def __init__(self, pattern: Pattern | CompleteRows, values: Tensor) -> None:
        self.pattern, self.values = pattern, values
        self._matrix, self._matrix_t = pattern.matrix(values), pattern.matrix_t(values)

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseCoefficients:
        return SparseCoefficients(self.pattern, copy.deepcopy(self.values, memo))  # torch copies no CSR tensors

    def __reduce__(self) -> tuple[Any, ...]:
        return SparseCoefficients, (self.pattern, self.values)

    def times(self, dense: Tensor) -> Tensor:
        """(M, k): A times (N, k)."""
        return self._matrix @ dense

    def times_t(self, dense: Tensor) -> Tensor:
        """(N, k): A^T times (M, k)."""
        return self._matrix_t @ dense


@dataclass(frozen=True, eq=False)
class LowRankCoefficients:
    """A (M, N) = left right^T: the trace-constrained mean."""

    left: Tensor  # (M, R)
    right: Tensor  # (N, R)

    def times(self, dense: Tensor) -> Tensor:
        """(M, k): A times (N, k)."""
        return self.left @ (self.right.mT @ dense)

    def times_t(self, dense: Tensor) -> Tensor:
        """(N, k): A^T times (M, k)."""
        return self.right @ (self.left.mT @ dense)


Coefficients = SparseCoefficients | LowRankCoefficients


def row_scores(coefficients: Coefficients, row_side: AxisQuery, col_side: AxisQuery, rows: Tensor) -> Tensor:
    """(R, N*): psi at the row positions ``rows`` (R,), all column positions; one chunk of rows' memory."""
    inner = coefficients.times_t(row_side.columns(rows).contiguous())  # (N, R)
    return col_side.cross()._matmul(inner).mT


def pair_means(coefficients: Coefficients, query: Query) -> Tensor:
    """(Q,): psi at the query's cells, chunk by chunk along the axis with the cheaper products."""
    rows, cols, pairs = query.row_side, query.col_side, query.pairs
    by_rows = product_seconds(cols.cross(), 64) * len(pairs.active_rows)
    flipped = product_seconds(rows.cross(), 64) * len(pairs.active_cols) < by_rows
    active, local = (pairs.active_cols, pairs.local_cols) if flipped else (pairs.active_rows, pairs.local_rows)
    across = pairs.rows if flipped else pairs.cols
    out = torch.empty(len(query), dtype=rows.op.dtype, device=rows.op.device)
    for start in range(0, len(active), LINE_BATCH):
        chosen = active[start : start + LINE_BATCH]
        if flipped:
            inner = coefficients.times(cols.columns(chosen).contiguous())  # (M, k)
            scores = rows.cross()._matmul(inner)  # (M*, k)
        else:
            scores = row_scores(coefficients, rows, cols, chosen).mT  # (N*, k)
        here = (local >= start) & (local < start + LINE_BATCH)
        out[here] = scores[across[here], local[here] - start]
    return out
