"""ChebyshevLinearOperator: a smooth function of a sparse symmetric matrix."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import check_float_tensor, check_instance, check_not_negative
from ..errors import InputError
from . import chebyshev
from .csr import NARROW, SymmetricCSR


class ChebyshevLinearOperator(LinearOperator):
    r""":math:`f(S)` for a sparse symmetric S (N, N) with spectrum in [-1, 1]; nothing N x N is stored.

    f is known by its values at the Chebyshev nodes. Products run the three-term recurrence on blocks
    of columns; the gradient with respect to the values is :math:`\langle L, T_k(S) R \rangle` mapped
    back from coefficients to values.

    :param values: (..., n) values of f at ``chebyshev.nodes(n)``; gradients flow to them.
    :param matrix: S, constant.
    :param tolerance: relative size of the tail of the series that a product may drop.
    """

    def __init__(self, values: Tensor, matrix: SymmetricCSR, tolerance: float = 1e-10) -> None:
        check_instance(matrix, "matrix", SymmetricCSR, "a SymmetricCSR")
        check_instance(values, "values", Tensor, "a tensor")
        check_float_tensor(values, "values", (None,) * max(values.dim(), 1), half=True)
        if values.shape[-1] == 0:
            raise InputError(f"values: expected at least one, at the Chebyshev nodes, got shape {tuple(values.shape)}")
        tolerance = check_not_negative(tolerance, "tolerance")
        super().__init__(values, matrix=matrix, tolerance=tolerance)
        self.values, self.matrix, self.tolerance = values, matrix, tolerance

    def _size(self) -> torch.Size:
        return torch.Size((*self.values.shape[:-1], self.matrix.size, self.matrix.size))

    def _transpose_nonbatch(self) -> ChebyshevLinearOperator:
        return self

    @property
    def series(self) -> Tensor:
        """(..., degree + 1): the coefficients that a product uses."""
        series = chebyshev.coefficients(self.values)
        return series[..., : chebyshev.degree_needed(series, self.tolerance) + 1]

    @property
    def degree(self) -> int:
        """Sparse products needed for one product with this operator."""
        return int(self.series.shape[-1]) - 1

    def _matmul(self, rhs: Tensor) -> Tensor:
        is_vector = rhs.dim() == 1
        rhs = rhs.unsqueeze(-1) if is_vector else rhs
        batch = torch.broadcast_shapes(self.batch_shape, rhs.shape[:-2])
        flat = batch_into_columns(rhs.expand(*batch, *rhs.shape[-2:]))  # (N, B C)
        series = self.series
        if self.batch_shape:
            series = series.expand(*batch, series.shape[-1]).reshape(-1, series.shape[-1]).mT  # (n, B)
            series = series.repeat_interleave(rhs.shape[-1], dim=1)  # (n, B C)
        out = columns_into_batch(chebyshev.apply(self.matrix, series, flat), batch, rhs.shape[-1])
        return out.squeeze(-1) if is_vector else out

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        left = left_vecs.unsqueeze(-1) if left_vecs.dim() == 1 else left_vecs
        right = right_vecs.unsqueeze(-1) if right_vecs.dim() == 1 else right_vecs
        batch = torch.broadcast_shapes(self.batch_shape, left.shape[:-2], right.shape[:-2])
        width = left.shape[-1]
        flat_left = batch_into_columns(left.expand(*batch, *left.shape[-2:]))
        flat_right = batch_into_columns(right.expand(*batch, *right.shape[-2:]))
        count = self.values.shape[-1]
        inner = flat_right.new_empty(count, flat_right.shape[1])  # <left, T_k right> by column
        for start in range(0, flat_right.shape[1], NARROW):
            part = slice(start, start + NARROW)
            terms = chebyshev.polynomials(self.matrix, flat_right[:, part], count - 1)
            for k, term in enumerate(terms):
                inner[k, part] = (flat_left[:, part] * term).sum(0)
        to_series = inner.reshape(count, -1, width).sum(-1).mT.reshape(*batch, count)
        to_values = to_series @ chebyshev.coefficients(torch.eye(count, dtype=inner.dtype, device=inner.device)).mT
        return (to_values.sum_to_size(self.values.shape),)

    def _diagonal(self) -> Tensor:
        series = self.series
        key = ("diagonal moments", series.shape[-1])
        if key not in self.matrix.memory:  # they depend on S alone: one computation serves every f
            everything = torch.arange(self.matrix.size, device=self.device)
            self.matrix.memory[key] = chebyshev.diagonal_moments(self.matrix, everything, series.shape[-1])
        return series @ self.matrix.memory[key].mT

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        rows, cols, *batches = torch.broadcast_tensors(row_index, col_index, *batch_indices)
        values = self.values[tuple(batches)] if batches else self.values  # (..., n) or (n,)
        distinct, back = torch.unique(cols, return_inverse=True)
        count = self.values.shape[-1]
        if torch.equal(rows, cols):
            moments = chebyshev.diagonal_moments(self.matrix, distinct, count)[back]  # (..., n)
        else:
            moments = values.new_empty(*rows.shape, count)
            for start in range(0, len(distinct), NARROW):
                chosen = distinct[start : start + NARROW]
                here = (back >= start) & (back < start + NARROW)
                picked = values.new_zeros(self.matrix.size, len(chosen))
                picked[chosen, torch.arange(len(chosen), device=chosen.device)] = 1.0
                for k, term in enumerate(chebyshev.polynomials(self.matrix, picked, count - 1)):
                    moments[..., k][here] = term[rows[here], back[here] - start]
        return (moments * chebyshev.coefficients(values)).sum(-1)

    def _expand_batch(self, batch_shape: Any) -> ChebyshevLinearOperator:
        values = self.values.expand(*batch_shape, self.values.shape[-1])
        return ChebyshevLinearOperator(values, self.matrix, self.tolerance)

    def _mul_constant(self, other: Any) -> LinearOperator:
        factor = torch.as_tensor(other, dtype=self.dtype, device=self.device)
        return ChebyshevLinearOperator(self.values * factor.unsqueeze(-1), self.matrix, self.tolerance)

    def root(self) -> ChebyshevLinearOperator:
        r"""The symmetric square root :math:`f^{1/2}(S)`; f must not be negative."""
        return ChebyshevLinearOperator(self.values.clamp_min(0).sqrt(), self.matrix, self.tolerance)


def batch_into_columns(dense: Tensor) -> Tensor:
    """(..., N, C) to (N, B C)."""
    if dense.dim() == 2:
        return dense
    return dense.reshape(-1, *dense.shape[-2:]).permute(1, 0, 2).reshape(dense.shape[-2], -1)


def columns_into_batch(dense: Tensor, batch: torch.Size, width: int) -> Tensor:
    """(N, B C) to (..., N, C)."""
    if not batch:
        return dense
    return dense.reshape(dense.shape[0], -1, width).permute(1, 0, 2).reshape(*batch, dense.shape[0], width)
