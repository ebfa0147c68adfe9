"""MeanProblem: a loss on the observed pairs, and the kernels through which B reaches them."""

from __future__ import annotations

from functools import cached_property

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import check_float_tensor, check_instance, shown
from ..errors import InputError
from ..linalg.bounds import spectral_bounds
from ..linalg.checks import check_operator
from ..linalg.complete_rows import CompleteRows, RowBlock
from ..linalg.csr import BLOCK, Pattern
from ..linalg.factor import Factor
from .losses import Loss, SingleLoss


class MeanProblem:
    r"""minimise :math:`f(\psi_T) + h(B)` over B, with :math:`\psi = G_M B G_N^T`.

    Solvers keep B in *dual coordinates*, :math:`B = G_M^T A G_N`: then :math:`\psi = K_M A K_N`, the gradient of
    the loss in B has the dual coordinates :math:`\Theta` (the sparse matrix of theta), and no root is needed.

    :param row_op: K_M (M, M).
    :param col_op: K_N (N, N).
    :param pattern: where the T observed pairs are.
    :param loss: f.
    """

    def __init__(
        self, row_op: LinearOperator, col_op: LinearOperator, pattern: Pattern | CompleteRows, loss: Loss
    ) -> None:
        check_instance(row_op, "row_op", LinearOperator, "a LinearOperator")
        check_instance(col_op, "col_op", LinearOperator, "a LinearOperator")
        check_instance(pattern, "pattern", (Pattern, CompleteRows), "a Pattern or CompleteRows")
        for op, name, size in ((row_op, "row_op", pattern.shape[0]), (col_op, "col_op", pattern.shape[1])):
            if tuple(check_operator(op, name).shape) != (size, size):
                raise InputError(f"{name}: expected shape {(size, size)} as in the pattern, got {tuple(op.shape)}")
        if isinstance(loss, type) or not callable(loss):
            raise InputError(f"loss: expected a Loss, a function of psi, got {shown(loss)}")
        self.row_op, self.col_op, self.pattern, self.loss = row_op, col_op, pattern, loss
        self.dtype: torch.dtype = row_op.dtype
        self.device: torch.device = row_op.device
        everything = [torch.arange(size, device=self.device) for size in pattern.shape]
        self._rows = Factor(row_op, everything[0], everything[0])
        self._cols = Factor(col_op, everything[1], everything[1])
        self._lazy_rows = self._rows.lazy_seconds(BLOCK) < self._rows.dense_seconds(BLOCK)
        self._lazy_cols = self._cols.lazy_seconds(BLOCK) < self._cols.dense_seconds(BLOCK)

    def rows_times(self, dense: Tensor) -> Tensor:
        """(M, b): K_M times (M, b), densely or lazily, whichever is cheaper."""
        check_float_tensor(dense, "dense", (self.shape[0], None))
        return self._rows.apply(dense, self._lazy_rows)

    def cols_times(self, dense: Tensor) -> Tensor:
        """(N, b): K_N times (N, b)."""
        check_float_tensor(dense, "dense", (self.shape[1], None))
        return self._cols.apply(dense, self._lazy_cols)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.pattern.shape

    def lipschitz(self) -> float:
        """A bound on the Lipschitz constant of the gradient in B."""
        high_rows, high_cols = spectral_bounds(self.row_op)[1], spectral_bounds(self.col_op)[1]
        return high_rows * high_cols * self.loss.curvature

    @cached_property
    def single(self) -> MeanProblem:
        """The same problem in single precision."""
        rows, cols = self.row_op.to(torch.float32), self.col_op.to(torch.float32)
        return MeanProblem(rows, cols, self.pattern, SingleLoss(self.loss))

    @cached_property
    def short_root(self) -> Tensor:
        """(D, D) double precision: a root of the kernel of the shorter side, rows if both are as long."""
        factor = self._rows if self.shape[0] <= self.shape[1] else self._cols
        values, vectors = torch.linalg.eigh(factor.dense.double())
        return vectors * values.clamp_min(0).sqrt()

    def sparse(self, theta: Tensor) -> tuple[Tensor | RowBlock, Tensor | RowBlock]:
        """Theta (M, N) and its transpose, as CSR tensors."""
        return self.pattern.matrix(theta), self.pattern.matrix_t(theta)


def times(sparse: Tensor | RowBlock, dense: Tensor) -> Tensor:
    """A CSR tensor times a dense matrix, in blocks of columns that stay in cache; a dense block at once."""
    if isinstance(sparse, RowBlock) or dense.shape[1] <= BLOCK:
        return sparse @ dense
    out = dense.new_empty(sparse.shape[0], dense.shape[1])
    for start in range(0, dense.shape[1], BLOCK):
        out[:, start : start + BLOCK] = sparse @ dense[:, start : start + BLOCK].contiguous()
    return out
