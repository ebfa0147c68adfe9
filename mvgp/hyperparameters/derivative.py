"""The derivative of a log marginal likelihood, attached to its value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..errors import InputError
from ..linalg import cost
from ..linalg.pair_operator import PairLinearOperator
from ..linalg.pairs import BLOCK, PairIndex

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


def first_order(moving: Tensor) -> Tensor:
    """() zero, with the gradient of ``moving`` (), whose factors are constants that depend on its tensors."""
    return with_gradients(torch.zeros_like(moving), [(moving, torch.ones_like(moving))])


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

    :param covariance: K_TT (T, T).
    :param noise: () or (T,) diagonal of D.
    :param vectors: (T, C) the x_c.
    :param weights: (C,) the w_c.
    :param gram_side: rows or columns up to which the derivative by a kernel matrix is formed.
    :param gram_columns: of that derivative, handled at a time.
    """
    tensors = covariance.representation()
    to_covariance: list[Tensor | None] = [None] * len(tensors)
    if any(tensor.requires_grad for tensor in tensors):
        to_covariance = _bilinear(covariance, vectors, weights, gram_side, gram_columns)
    to_noise = (weights * vectors.square()).sum(1)  # (T,)
    return [*zip(tensors, to_covariance, strict=True), (noise, to_noise if noise.dim() else to_noise.sum())]


def _bilinear(
    covariance: PairLinearOperator, vectors: Tensor, weights: Tensor, gram_side: int, gram_columns: int
) -> list[Tensor | None]:
    r"""The gradient of :math:`\sum_c w_c x_c^T K_{TT} x_c` for each tensor that represents K_TT.

    With X_c the vectors scattered into matrices, its derivative by K_M is :math:`\sum_c w_c X_c K_N X_c^T`, a matrix as
    large as K_M, which is formed first: then the kernel is differentiated once and not once for each vector.
    """
    product = covariance.product
    if max(covariance.left.active_shape) > gram_side or not (product.row.dense_fits and product.col.dense_fits):
        return _in_batches(covariance, weights * vectors, vectors)
    rows, cols = covariance.left.active_shape
    to_row, to_col = vectors.new_zeros(rows, rows), vectors.new_zeros(cols, cols)
    for c in range(vectors.shape[1]):
        x, x_t = _scattered(covariance.left, vectors[:, c])
        _add_product(to_row, weights[c], x, _product(x, product.col.dense).mT)
        _add_product(to_col, weights[c], x_t, _product(x_t, product.row.dense).mT)
    of_rows = _contracted(covariance.row_op, to_row, covariance.left.active_rows, gram_columns)
    return [*of_rows, *_contracted(covariance.col_op, to_col, covariance.left.active_cols, gram_columns)]


def _scattered(pairs: PairIndex, values: Tensor) -> tuple[Tensor, Tensor]:
    """(M', N') and (N', M'): the matrix with ``values`` (T,) at the pairs, sparse if that pays, and its transpose."""
    if len(pairs) / cost.SPARSE > pairs.active_shape[0] * pairs.active_shape[1] / cost.GEMM:
        grid = pairs.scatter(values.unsqueeze(1)).squeeze(0)
        return grid, grid.mT
    entries = pairs.to_pattern(values)
    return pairs.pattern.matrix(entries), pairs.pattern.matrix_t(entries)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """(A, C): a sparse or dense (A, B) times a dense (B, C)."""
    out = right.new_zeros(left.shape[0], right.shape[1])
    _add_product(out, right.new_ones(()), left, right)
    return out


def _add_product(out: Tensor, weight: Tensor, left: Tensor, right: Tensor) -> None:
    """Add weight * left @ right to ``out`` (A, C); a sparse ``left`` takes blocks of columns that fit the cache."""
    if left.layout == torch.strided:
        out += weight * (left @ right)
        return
    for start in range(0, right.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        out[:, part] += weight * (left @ right[:, part].contiguous())


def _contracted(op: LinearOperator, inner: Tensor, active: Tensor, columns: int) -> list[Tensor | None]:
    """The gradient of <inner, K> for K the block of ``op`` at ``active`` x ``active``, for each tensor of ``op``."""
    total: list[Tensor | None] = [None] * len(op.representation())
    for start in range(0, len(active), columns):
        part = active[start : start + columns]
        left, right = inner.new_zeros(op.shape[-1], len(part)), inner.new_zeros(op.shape[-1], len(part))
        left[active] = inner[:, start : start + columns]
        right[part, torch.arange(len(part), device=part.device)] = 1
        total = _sum(total, op._bilinear_derivative(left, right))
    return total


def _in_batches(covariance: PairLinearOperator, left: Tensor, right: Tensor) -> list[Tensor | None]:
    """The gradient of sum(left * (K_TT right)), vector by vector."""
    rows, cols = covariance.left.active_shape
    width = max(1, GRID_BYTES // (rows * cols * left.element_size()))
    total: list[Tensor | None] = [None] * len(covariance.representation())
    for start in range(0, left.shape[1], width):
        part = slice(start, start + width)
        total = _sum(total, covariance._bilinear_derivative(left[:, part], right[:, part]))
    return total


def _sum(first: Sequence[Tensor | None], second: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Entry by entry; None is 0."""
    return [b if a is None else a if b is None else a + b for a, b in zip(first, second, strict=True)]
