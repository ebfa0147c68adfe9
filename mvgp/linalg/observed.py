"""PairLinearOperator: the covariance between two lists of cells of a Kronecker prior."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from linear_operator import LinearOperator, to_linear_operator
from torch import Tensor

from ..checks import check_instance
from ..errors import InputError
from .blocks import block, diagonal_at
from .checks import check_operator, check_right, check_samples
from .pair_product import PairProduct, Plan
from .pairs import PairIndex
from .roots import root


class PairLinearOperator(LinearOperator):
    r""":math:`P_L (K_M \otimes K_N) P_R^T`: entry (q, t) is K_M[m_q, m_t] K_N[n_q, n_t].

    With both lists the observed pairs it is :math:`K_{TT}` of equations (2) and (3). Rows and columns
    without a pair are dropped, and the product runs by the plan that the cost model finds cheapest.

    :param row_op: K_M (M1, M2), tensor or operator.
    :param col_op: K_N (N1, N2), tensor or operator.
    :param left: cells of the result.
    :param right: cells of the right-hand side; the same as ``left`` when left out.
    :param plan: overrides the choice of the cost model.
    """

    def __init__(
        self,
        row_op: Tensor | LinearOperator,
        col_op: Tensor | LinearOperator,
        left: PairIndex,
        right: PairIndex | None = None,
        plan: Plan | None = None,
    ) -> None:
        row_op, col_op = (
            to_linear_operator(check_operator(op, name)) for op, name in ((row_op, "row_op"), (col_op, "col_op"))
        )
        check_instance(left, "left", PairIndex, "a PairIndex")
        check_instance(left if right is None else right, "right", PairIndex, "a PairIndex")
        out, into = left.shape, (left if right is None else right).shape
        for axis, (op, name) in enumerate(((row_op, "row_op"), (col_op, "col_op"))):
            if tuple(op.shape[-2:]) != (out[axis], into[axis]):
                wanted = (out[axis], into[axis])
                raise InputError(f"{name}: expected shape {wanted} as in the pairs, got {tuple(op.shape[-2:])}")
        if row_op.dtype != col_op.dtype:
            raise InputError(f"col_op: expected {row_op.dtype} as in row_op, got {col_op.dtype}")
        if row_op.batch_shape != col_op.batch_shape:
            batch = torch.broadcast_shapes(row_op.batch_shape, col_op.batch_shape)
            row_op, col_op = row_op._expand_batch(batch), col_op._expand_batch(batch)
        super().__init__(row_op, col_op, left=left, right=right, plan=plan)
        self.row_op, self.col_op, self.left = row_op, col_op, left
        self.right = left if right is None else right
        self._plan = plan

    @cached_property
    def product(self) -> PairProduct:
        """The machinery of products, with its cached dense pieces."""
        return PairProduct(self.row_op, self.col_op, self.left, self.right)

    @property
    def plan(self) -> Plan:
        """How products are carried out."""
        return self._plan or self.product.plan

    def _size(self) -> torch.Size:
        return torch.Size((*self.row_op.batch_shape, len(self.left), len(self.right)))

    def _transpose_nonbatch(self) -> PairLinearOperator:
        right = None if self.right is self.left else self.left
        return PairLinearOperator(self.row_op.mT, self.col_op.mT, self.right, right)

    def _entries_of_batch(self) -> Iterator[tuple[tuple[int, ...], PairLinearOperator]]:
        """Each entry of the batch as an operator of its own."""
        for index in itertools.product(*[range(size) for size in self.batch_shape]):
            row, col = self.row_op[index], self.col_op[index]
            yield index, PairLinearOperator(row, col, self.left, self._kwargs["right"], self._plan)

    def _matmul(self, rhs: Tensor) -> Tensor:
        if rhs.dim() == 1:
            return self._matmul(rhs.unsqueeze(-1)).squeeze(-1)
        if self.batch_shape:
            batch = torch.broadcast_shapes(self.batch_shape, rhs.shape[:-2])
            wide = rhs.expand(*batch, *rhs.shape[-2:])
            found = []
            for index, op in self._entries_of_batch():
                place: tuple[Any, ...] = (..., *index, slice(None), slice(None))
                found.append(op._matmul(wide[place]))
            extra = wide.dim() - 2 - len(self.batch_shape)  # batch dimensions that only the right-hand side has
            return torch.stack(found, dim=extra).unflatten(extra, self.batch_shape)
        if rhs.dim() == 2:
            return self.product(rhs, self._plan)
        flat = rhs.movedim(-2, 0).flatten(1)  # (T, B C)
        return self.product(flat, self._plan).unflatten(1, (*rhs.shape[:-2], rhs.shape[-1])).movedim(0, -2)

    def matmul(self, other: Any) -> Any:
        """Product with a tensor or operator; without gradients it uses the cached dense pieces."""
        check_right(other, self.shape[-1], self.dtype)
        if isinstance(other, Tensor) and not (torch.is_grad_enabled() and (self.requires_grad or other.requires_grad)):
            return self._matmul(other)
        return super().matmul(other)

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        """With L and R the scattered vectors, <L, K_M R K_N^T> is bilinear in each factor."""
        if self.batch_shape:
            return super()._bilinear_derivative(left_vecs, right_vecs)
        left = left_vecs.unsqueeze(-1) if left_vecs.dim() == 1 else left_vecs
        right = right_vecs.unsqueeze(-1) if right_vecs.dim() == 1 else right_vecs
        if left.dim() > 2:
            batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
            left, right = (v.expand(*batch, *v.shape[-2:]).movedim(-2, 0).flatten(1) for v in (left, right))
        tall = self.left.scatter(left)  # (C, M1', N1')
        wide = self.right.scatter(right)  # (C, M2', N2')
        row, col = self.product.row, self.product.col
        by_col = wide @ col.dense.mT  # (C, M2', N1')
        by_row = row.dense @ wide  # (C, M1', N2')
        to_row = self.row_op._bilinear_derivative(
            _pad(tall, self.left.active_rows, self.row_op.shape[-2]),
            _pad(by_col, self.right.active_rows, self.row_op.shape[-1]),
        )
        to_col = self.col_op._bilinear_derivative(
            _pad(tall.mT, self.left.active_cols, self.col_op.shape[-2]),
            _pad(by_row.mT, self.right.active_cols, self.col_op.shape[-1]),
        )
        return (*to_row, *to_col)

    def _diagonal(self) -> Tensor:
        if self.right is self.left and not self.batch_shape:
            return diagonal_at(self.row_op, self.left.rows) * diagonal_at(self.col_op, self.left.cols)
        everything = torch.arange(len(self.left), device=self.device)
        if not self.batch_shape:
            return self._get_indices(everything, everything)
        return torch.stack([op._diagonal() for _, op in self._entries_of_batch()]).unflatten(0, self.batch_shape)

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        of_rows = self.row_op._get_indices(self.left.rows[row_index], self.right.rows[col_index], *batch_indices)
        return of_rows * self.col_op._get_indices(self.left.cols[row_index], self.right.cols[col_index], *batch_indices)

    def _expand_batch(self, batch_shape: Any) -> PairLinearOperator:
        rows, cols = self.row_op._expand_batch(batch_shape), self.col_op._expand_batch(batch_shape)
        return PairLinearOperator(rows, cols, self.left, self._kwargs["right"], self._plan)

    def to_dense(self) -> Tensor:
        """(Q, T); differentiable."""
        if self.batch_shape:
            return torch.stack([op.to_dense() for _, op in self._entries_of_batch()]).unflatten(0, self.batch_shape)
        left, right = self.left, self.right
        of_rows = block(self.row_op, left.active_rows, right.active_rows)
        of_cols = block(self.col_op, left.active_cols, right.active_cols)
        return of_rows[left.local_rows][:, right.local_rows] * of_cols[left.local_cols][:, right.local_cols]

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """(num_samples, Q) exact samples, read off samples G_M E G_N^T of the whole grid."""
        count = check_samples(num_samples, self.shape[-1])
        row_root, col_root = root(self.row_op), root(self.col_op)
        found = []
        for _ in range(count):
            noise = torch.randn(row_root.shape[-1], col_root.shape[-1], dtype=self.dtype, device=self.device)
            half = row_root._matmul(noise)[self.left.active_rows]  # (M', D_N)
            cols = col_root._matmul(half.mT)[self.left.active_cols]  # (N', M')
            found.append(cols[self.left.local_cols, self.left.local_rows])
        return torch.stack(found)


def _pad(grids: Tensor, active: Tensor, size: int) -> Tensor:
    """(size, C K): the grids (C, A, K) side by side, their rows put back where they belong."""
    flat = grids.permute(1, 0, 2).flatten(1)
    out = flat.new_zeros(size, flat.shape[1])
    out[active] = flat
    return out
