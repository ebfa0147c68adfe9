"""The derivative of a log marginal likelihood, attached to its value."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..errors import InputError
from ..linalg import cost
from ..linalg.pair_operator import PairLinearOperator
from ..linalg.pairs import PairIndex
from ..linalg.patterns import BLOCK

Gradients = Sequence[Tensor | None]  # by some tensors; None is 0
GRID_BYTES = 128 * 2**20  # memory for the scattered vectors of one batch


class _WithGradients(torch.autograd.Function):
    """A value () that was computed elsewhere, with known gradients by some tensors."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Sequence[Tensor], *tensors: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: the gradients are constants and would be wrong once more
            raise InputError(
                "create_graph: second derivatives are offered where the value comes from a dense factor "
                "(method='cholesky'), not by this method"
            )
        return (upstream[0], None, *[upstream[0] * gradient for gradient in ctx.gradients])


def with_gradients(value: Tensor, pieces: Iterable[tuple[Tensor, Tensor | None]]) -> Tensor:
    """() ``value``, whose own gradient stays, with these gradients on top; second derivatives are refused.

    :param pieces: tensors, and the gradient of the value by each; None for none.
    """
    used = [(tensor, gradient) for tensor, gradient in pieces if tensor.requires_grad and gradient is not None]
    if not used:
        return value
    tensors, gradients = zip(*used, strict=True)
    attached: Tensor = _WithGradients.apply(value, gradients, *tensors)
    return attached


def with_derivative(
    value: Tensor,
    covariance: PairLinearOperator,
    residual: Tensor,
    noise: Tensor,
    alpha: Tensor,
    vectors: Tensor | None,
) -> Tensor:
    r"""() ``value``, with gradient :math:`\frac12 \alpha^T dA\, \alpha - \frac12 \sum_c x_c^T dA\, x_c - \alpha^T dr`.

    :param covariance: K_TT (T, T), whose representation takes gradients.
    :param residual: (T,) r, takes gradients.
    :param noise: () or (T,) diagonal of D, takes gradients.
    :param alpha: (T, 1) A^-1 r.
    :param vectors: (T, C) the x_c, if there are any.
    """
    signed = alpha if vectors is None else torch.cat([alpha, vectors], dim=1)
    weights = torch.full((signed.shape[1],), -0.5, dtype=signed.dtype, device=signed.device)
    weights[0] = 0.5
    pieces = form_gradients(covariance, noise, signed, weights)
    return with_gradients(value, [*pieces, (residual, -alpha.squeeze(1))])


@torch.no_grad()
def form_gradients(
    covariance: PairLinearOperator,
    noise: Tensor,
    vectors: Tensor,
    weights: Tensor,
    *,
    gram_side: int = 8192,
    gram_columns: int = 1024,
) -> list[tuple[Tensor, Tensor | None]]:
    r"""The gradient of :math:`\sum_c w_c x_c^T (K_{TT} + D) x_c` by each tensor of K_TT, and by the noise.

    With X_c the vectors scattered into matrices, the derivative by K_M is :math:`\sum_c w_c X_c K_N X_c^T`, a matrix as
    large as K_M. It is formed first: then the kernel is differentiated once and not once for each vector.

    :param covariance: K_TT (T, T).
    :param noise: () or (T,) diagonal of D.
    :param vectors: (T, C) the x_c.
    :param weights: (C,) the w_c.
    :param gram_side: rows or columns up to which the derivative by a kernel matrix is formed.
    :param gram_columns: of that derivative, handled at a time.
    """
    tensors = covariance.representation()
    by_noise = (weights * vectors.square()).sum(1)  # (T,)
    last = (noise, by_noise if noise.dim() else by_noise.sum())
    if not any(tensor.requires_grad for tensor in tensors):
        return [last]
    product, (rows, cols) = covariance.product, covariance.left.active_shape
    if max(rows, cols) > gram_side or not (product.row.dense_fits and product.col.dense_fits):
        width = max(1, GRID_BYTES // (rows * cols * vectors.element_size()))
        parts = [slice(start, start + width) for start in range(0, vectors.shape[1], width)]
        pieces: Iterable[Gradients] = (
            covariance._bilinear_derivative(weights[p] * vectors[:, p], vectors[:, p]) for p in parts
        )
        return [*zip(tensors, functools.reduce(_sum, pieces), strict=True), last]
    by_row, by_col = vectors.new_zeros(rows, rows), vectors.new_zeros(cols, cols)
    for c in range(vectors.shape[1]):
        x, x_t = _scattered(covariance.left, vectors[:, c])
        by_row.add_(_product(x, _product(x, product.col.dense).mT), alpha=float(weights[c]))
        by_col.add_(_product(x_t, _product(x_t, product.row.dense).mT), alpha=float(weights[c]))
    of_rows = _contracted(covariance.row_op, by_row, covariance.left.active_rows, gram_columns)
    of_cols = _contracted(covariance.col_op, by_col, covariance.left.active_cols, gram_columns)
    return [*zip(tensors, (*of_rows, *of_cols), strict=True), last]


def _scattered(pairs: PairIndex, values: Tensor) -> tuple[Tensor, Tensor]:
    """(M', N') and (N', M'): the matrix with ``values`` (T,) at the pairs, sparse if that pays, and its transpose."""
    if len(pairs) / cost.SPARSE > pairs.active_shape[0] * pairs.active_shape[1] / cost.GEMM:
        grid = pairs.scatter(values.unsqueeze(1)).squeeze(0)
        return grid, grid.mT
    entries = pairs.to_pattern(values)
    return pairs.pattern.matrix(entries), pairs.pattern.matrix_t(entries)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """(A, C): a sparse or dense (A, B) times a dense (B, C), sparse by blocks of columns that fit the cache."""
    if left.layout == torch.strided:
        return left @ right
    out = right.new_empty(left.shape[0], right.shape[1])
    for to, part in zip(out.split(BLOCK, dim=1), right.split(BLOCK, dim=1), strict=True):
        to.copy_(left @ part.contiguous())
    return out


def _contracted(op: LinearOperator, inner: Tensor, active: Tensor, columns: int) -> Gradients:
    """The gradient of <inner, K> for K the block of ``op`` at ``active`` x ``active``, for each tensor of ``op``."""
    total: Gradients = [None] * len(op.representation())
    for start in range(0, len(active), columns):
        part = active[start : start + columns]
        left, right = inner.new_zeros(op.shape[-1], len(part)), inner.new_zeros(op.shape[-1], len(part))
        left[active] = inner[:, start : start + columns]
        right[part, torch.arange(len(part), device=part.device)] = 1
        total = _sum(total, op._bilinear_derivative(left, right))
    return total


def _sum(first: Gradients, second: Gradients) -> Gradients:
    """Entry by entry; None is 0."""
    return [b if a is None else a if b is None else a + b for a, b in zip(first, second, strict=True)]
