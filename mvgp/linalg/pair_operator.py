r"""PairLinearOperator: the covariance between two lists of cells of a Kronecker prior.

It is :math:`P_L (K_M \otimes K_N) P_R^T`, where P_L and P_R pick cells of a grid. A product scatters the right-hand
side into a matrix V and reads the cells P_L of :math:`K_M V K_N^T`. V has few nonzeros and few cells are read, so each
of the two stages has a cheap form:

=======================  ===============================  ================================
stage                    on the whole active grid         on the pairs only
=======================  ===============================  ================================
first,  X = V K_N^T      dense or lazy product            sparse V times dense K_N^T
second, K_M X at left    dense or lazy product, gather    ``sampled_addmm`` of K_M and X
=======================  ===============================  ================================

Together with the order (columns first or rows first) and, for few pairs, the dense matrix of all pairs, that is a small
set of plans; :attr:`PairProduct.plan` is the cheapest by the cost model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from linear_operator import LinearOperator, to_linear_operator
from linear_operator.operators import KroneckerProductLinearOperator, SumLinearOperator
from torch import Tensor

from ..checks import check_instance
from ..errors import InputError
from ..tensor_checks import check_float_tensor, check_operator, check_right, check_samples
from . import cost
from .pairs import BLOCK, PairIndex, SymmetricLinearOperator
from .spectra import Factor, block, diagonal_at, root

First = Literal["dense", "lazy", "sparse"]
Second = Literal["dense", "lazy", "sampled"]


class PairLinearOperator(LinearOperator):
    r""":math:`P_L (K_M \otimes K_N) P_R^T`: entry (q, t) is K_M[m_q, m_t] K_N[n_q, n_t].

    With both lists the observed pairs it is :math:`K_{TT}` of equations (2) and (3). Rows and columns without a pair
    are dropped, and the product runs by the plan that the cost model finds cheapest.

    :param row_op: K_M (M1, M2), tensor or operator.
    :param col_op: K_N (N1, N2), tensor or operator.
    :param left: cells of the result.
    :param right: cells of the right-hand side; the same as ``left`` when left out.
    :param plan: overrides the choice of the cost model.

    Example:
        >>> import torch
        >>> from mvgp.linalg import PairIndex, PairLinearOperator
        >>> kernel = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
        >>> pairs = PairIndex(torch.tensor([0, 1]), torch.tensor([0, 1]), (2, 2))
        >>> PairLinearOperator(kernel, kernel, pairs).to_dense()
        tensor([[4., 1.],
                [1., 4.]])

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
                shape = (out[axis], into[axis])
                raise InputError(f"{name}: expected shape {shape} as in the pairs, got {tuple(op.shape[-2:])}")
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
            products = []
            for index, op in self._entries_of_batch():
                entry: tuple[Any, ...] = (..., *index, slice(None), slice(None))
                products.append(op._matmul(wide[entry]))
            extra = wide.dim() - 2 - len(self.batch_shape)  # batch dimensions that only the right-hand side has
            return torch.stack(products, dim=extra).unflatten(extra, self.batch_shape)
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
        samples = []
        for _ in range(count):
            noise = torch.randn(row_root.shape[-1], col_root.shape[-1], dtype=self.dtype, device=self.device)
            half = row_root._matmul(noise)[self.left.active_rows]  # (M', D_N)
            cols = col_root._matmul(half.mT)[self.left.active_cols]  # (N', M')
            samples.append(cols[self.left.local_cols, self.left.local_rows])
        return torch.stack(samples)


class PairProduct:
    """Both factors (M1, M2) and (N1, N2) of one operator together with the cells it reads and writes.

    :param grid_bytes: memory for the intermediate matrices of one batch of right-hand sides.
    """

    def __init__(
        self, row_op: LinearOperator, col_op: LinearOperator, left: PairIndex, right: PairIndex, grid_bytes: int = 2**29
    ) -> None:
        self.left, self.right, self.grid_bytes = left, right, grid_bytes
        same = left is right
        self.row = Factor(row_op, left.active_rows, left.active_rows if same else right.active_rows)
        self.col = Factor(col_op, left.active_cols, left.active_cols if same else right.active_cols)
        self.itemsize = row_op.dtype.itemsize

    @cached_property
    def pairwise(self) -> Tensor:
        """(Q, T) dense: the product of row and column covariances of every two pairs."""
        out = self.row.dense[self.left.local_rows][:, self.right.local_rows]
        return out.mul_(self.col.dense[self.left.local_cols][:, self.right.local_cols])

    @cached_property
    def plan(self) -> Plan:
        """The plan with the least estimated time for one right-hand side."""
        left, right, cells = self.left, self.right, len(self.left) * len(self.right)
        plans = []
        if cells * self.itemsize <= cost.MEMORY // 8 and self.row.dense_fits and self.col.dense_fits:
            setup = 2 * cells / cost.MOVE + self.row.setup_seconds + self.col.setup_seconds
            plans.append(Plan(cells / cost.GEMV + setup / cost.REUSE, pairwise=True))
        for rows_first in (False, True):
            inner, outer = (self.row, self.col) if rows_first else (self.col, self.row)
            height = right.active_shape[1 if rows_first else 0]
            first = _cheapest_first(inner, len(right), height)
            second = _cheapest_second(outer, len(left), inner.out_size, height)
            move = height * (inner.out_size + inner.into_size) / cost.MOVE / 4
            plans.append(Plan(first[0] + second[0] + move, False, rows_first, first[1], second[1]))
        return min(plans, key=lambda plan: plan.seconds)

    def __call__(self, rhs: Tensor, plan: Plan | None = None) -> Tensor:
        """(Q, C) from ``rhs`` (T, C)."""
        plan = plan or self.plan
        if plan.pairwise:
            return self.pairwise @ rhs
        left, right = (self.left.swapped, self.right.swapped) if plan.rows_first else (self.left, self.right)
        inner, outer = (self.row, self.col) if plan.rows_first else (self.col, self.row)
        grid = max(right.active_shape[0], left.active_shape[0]) * max(left.active_shape[1], right.active_shape[1])
        width = max(1, self.grid_bytes // (grid * self.itemsize))
        parts = []
        for start in range(0, rhs.shape[1], width):
            middle = _first_stage(inner, right, rhs[:, start : start + width], plan.first)
            parts.append(_second_stage(outer, left, middle, plan.second))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


@dataclass(frozen=True)
class Plan:
    """How a product is carried out, and the seconds it is expected to take."""

    seconds: float
    pairwise: bool = False  # by the dense matrix of all pairs
    rows_first: bool = False
    first: First = "dense"
    second: Second = "dense"


def _first_stage(inner: Factor, right: PairIndex, rhs: Tensor, how: First) -> Tensor:
    """(C, M2', N1'): V K_N^T for each right-hand side."""
    height = right.active_shape[0]
    if how == "sparse":
        out = rhs.new_empty(rhs.shape[1], height, inner.out_size)
        for c in range(rhs.shape[1]):
            v = right.pattern.matrix(right.to_pattern(rhs[:, c]))  # (M2', N2') CSR
            for start in range(0, inner.out_size, BLOCK):
                out[c, :, start : start + BLOCK] = v @ inner.dense_t[:, start : start + BLOCK].contiguous()
        return out
    grid = right.scatter(rhs)  # (C, M2', N2')
    if how == "dense":
        return grid @ inner.dense.mT
    flat = grid.flatten(0, 1).mT  # (N2', C M2')
    return inner.apply(flat, lazily=True).mT.unflatten(0, (rhs.shape[1], height))


def _second_stage(outer: Factor, left: PairIndex, middle: Tensor, how: Second) -> Tensor:
    """(Q, C): the cells ``left`` of K_M X for each X of ``middle`` (C, M2', N1')."""
    if how == "sampled":
        samples = [left.from_pattern(left.pattern.sample(outer.dense, x.mT)) for x in middle]
        return torch.stack(samples, dim=1)
    if how == "dense":
        return left.gather(outer.dense @ middle)
    flat = middle.permute(1, 0, 2).flatten(1)  # (M2', C N1')
    grid = outer.apply(flat, lazily=True).unflatten(1, (middle.shape[0], middle.shape[2]))
    return left.gather(grid.permute(1, 0, 2))


def _cheapest_first(inner: Factor, entries: int, height: int) -> tuple[float, First]:
    """Seconds and name of the cheapest first stage: V (height, B) with so many entries."""
    sparse = float("inf")
    if inner.dense_fits:
        blocks = -(-inner.out_size // BLOCK)
        sparse = entries * inner.out_size / cost.SPARSE + blocks * cost.CALL + inner.setup_seconds / cost.REUSE
        sparse += inner.out_size * inner.into_size / cost.MOVE / 4  # blocks are copied to be contiguous
    dense, lazy = inner.dense_seconds(height), inner.lazy_seconds(height)
    options: list[tuple[float, First]] = [(dense, "dense"), (lazy, "lazy"), (sparse, "sparse")]
    return min(options)


def _cheapest_second(outer: Factor, entries: int, width: int, height: int) -> tuple[float, Second]:
    """Seconds and name of the cheapest second stage: so many entries of K_M X, X (height, width)."""
    sampled = float("inf")
    if outer.dense_fits:
        blocks = -(-height // BLOCK)
        sampled = entries * height / cost.SAMPLED + blocks * cost.CALL + outer.setup_seconds / cost.REUSE
        sampled += height * width / cost.MOVE / 4
    dense, lazy = (seconds + entries / cost.MOVE for seconds in (outer.dense_seconds(width), outer.lazy_seconds(width)))
    options: list[tuple[float, Second]] = [(dense, "dense"), (lazy, "lazy"), (sampled, "sampled")]
    return min(options)


def _pad(grids: Tensor, active: Tensor, size: int) -> Tensor:
    """(size, C K): the grids (C, A, K) side by side, their rows put back where they belong."""
    flat = grids.permute(1, 0, 2).flatten(1)
    out = flat.new_zeros(size, flat.shape[1])
    out[active] = flat
    return out


# Whole grids -----------------------------------------------------------------------------------


class KroneckerLinearOperator(KroneckerProductLinearOperator):
    r""":math:`K_M \otimes K_N` that stays a Kronecker product under scaling.

    The stock operator turns into a generic one when multiplied by a number, clamps small eigenvalues in its log
    determinant, and samples by Lanczos on large grids; this one does not, and samples through roots of its factors.

    Example:
        >>> import torch
        >>> from mvgp.linalg import KroneckerLinearOperator
        >>> product = 2.0 * KroneckerLinearOperator(torch.eye(2), torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
        >>> type(product).__name__, product.shape
        ('KroneckerLinearOperator', torch.Size([4, 4]))

    """

    def __init__(self, *linear_ops: Tensor | LinearOperator) -> None:
        checked = [check_operator(op, f"linear_ops[{at}]") for at, op in enumerate(linear_ops)]
        for at, op in enumerate(checked):
            if op.dtype != checked[0].dtype:
                raise InputError(f"linear_ops[{at}]: expected {checked[0].dtype} as in the first, got {op.dtype}")
        super().__init__(*checked)

    def _mul_constant(self, other: Any) -> LinearOperator:
        first, *rest = self.linear_ops
        return KroneckerLinearOperator(first * other, *rest)

    def _transpose_nonbatch(self) -> KroneckerLinearOperator:
        return KroneckerLinearOperator(*[op.mT for op in self.linear_ops])

    def _logdet(self) -> Tensor:
        spectra = [torch.linalg.eigvalsh(op.to_dense()) for op in self.linear_ops]
        size = self.shape[-1]
        # ln |A (x) B| = n_B ln|A| + n_A ln|B|; a singular factor gives -inf, as it should
        return sum(s.clamp_min(0).log().sum(-1) * (size // s.shape[-1]) for s in spectra)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """(num_samples, M N) exact samples: G_M E G_N^T for a standard normal matrix E."""
        factor = root(self)
        count = check_samples(num_samples, factor.shape[-1])
        noise = torch.randn(factor.shape[-1], count, dtype=self.dtype, device=self.device)
        return factor._matmul(noise).mT


class SpectralKroneckerLinearOperator(SymmetricLinearOperator):
    r""":math:`(U \otimes V) \operatorname{diag}(\operatorname{vec} s) (U \otimes V)^T`: U (M, R), V (N, S), s (R, S).

    Any function of a Kronecker product of two covariances with known eigenpairs has this form.

    :param spectrum: (..., R, S).
    :param row_vectors: (M, R).
    :param col_vectors: (N, S).
    """

    def __init__(self, spectrum: Tensor, row_vectors: Tensor, col_vectors: Tensor) -> None:
        check_float_tensor(row_vectors, "row_vectors", (None, None), half=True)
        check_float_tensor(col_vectors, "col_vectors", (None, None), like=row_vectors, half=True)
        check_operator(spectrum, "spectrum")
        if tuple(spectrum.shape[-2:]) != (row_vectors.shape[1], col_vectors.shape[1]):
            shape = (row_vectors.shape[1], col_vectors.shape[1])
            raise InputError(f"spectrum: expected shape {shape} as in the vectors, got {tuple(spectrum.shape)}")
        super().__init__(spectrum, row_vectors=row_vectors, col_vectors=col_vectors)
        self.spectrum, self.row_vectors, self.col_vectors = spectrum, row_vectors, col_vectors

    def _size(self) -> torch.Size:
        count = self.row_vectors.shape[0] * self.col_vectors.shape[0]
        return torch.Size((*self.spectrum.shape[:-2], count, count))

    def _to_spectrum(self, dense: Tensor) -> Tensor:
        """(..., M N, C) to its coordinates (..., C, R, S)."""
        grid = dense.mT.unflatten(-1, (self.row_vectors.shape[0], self.col_vectors.shape[0]))
        return self.row_vectors.mT @ grid @ self.col_vectors

    def _times(self, rhs: Tensor) -> Tensor:
        inner = self.spectrum.unsqueeze(-3) * self._to_spectrum(rhs)  # (..., C, R, S)
        return (self.row_vectors @ inner @ self.col_vectors.mT).flatten(-2).mT

    def _diagonal(self) -> Tensor:
        return (self.row_vectors.square() @ self.spectrum @ self.col_vectors.square().mT).flatten(-2)

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        width = self.col_vectors.shape[0]
        spectrum = self.spectrum[batch_indices] if batch_indices else self.spectrum
        rows = self.row_vectors[row_index // width] * self.row_vectors[col_index // width]  # (..., R)
        cols = self.col_vectors[row_index % width] * self.col_vectors[col_index % width]  # (..., S)
        return ((rows.unsqueeze(-2) @ spectrum).squeeze(-2) * cols).sum(-1)

    def _expand_batch(self, batch_shape: Any) -> SpectralKroneckerLinearOperator:
        spectrum = self.spectrum.expand(*batch_shape, *self.spectrum.shape[-2:])
        return SpectralKroneckerLinearOperator(spectrum, self.row_vectors, self.col_vectors)

    def _mul_constant(self, other: Any) -> LinearOperator:
        factor = torch.as_tensor(other, dtype=self.dtype, device=self.device)
        spectrum = self.spectrum * factor.unsqueeze(-1).unsqueeze(-1)
        return SpectralKroneckerLinearOperator(spectrum, self.row_vectors, self.col_vectors)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """(num_samples, M N) exact samples; the spectrum must not be negative."""
        count = check_samples(num_samples, self.shape[-1])
        noise = torch.randn(count, *self.spectrum.shape[-2:], dtype=self.dtype, device=self.device)
        return (self.row_vectors @ (noise * self.spectrum.sqrt()) @ self.col_vectors.mT).flatten(-2)


class CovarianceSumLinearOperator(SumLinearOperator):
    """The covariance of a sum of independent terms, which samples each term by itself.

    The stock operator samples through a root of the whole, dense or by Lanczos; here the samples of the terms, which
    know their roots, are added up.
    """

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """(num_samples, ..., N): as exact as those of the terms."""
        samples: list[Tensor] = [term.zero_mean_mvn_samples(num_samples) for term in self.linear_ops]
        return torch.stack(samples).sum(0)
