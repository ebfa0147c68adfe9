"""The derivative of a log marginal likelihood, attached to its value."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..linalg import PairIndex, PairLinearOperator, cost
from ..linalg.csr import BLOCK

GRID_BYTES = 128 * 2**20  # memory for the scattered vectors of one batch
GRAM_SIDE = 8192  # rows or columns up to which the derivative by a kernel matrix is formed
COLUMNS = 1024  # of it at a time


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
    sign = torch.ones(signed.shape[1], dtype=signed.dtype, device=signed.device)
    sign[1:] = -1
    to_noise = 0.5 * (sign * signed.square()).sum(1)  # (T,)
    to_noise = to_noise if noise.dim() else to_noise.sum()
    with torch.no_grad():
        to_covariance = _bilinear(covariance, signed, 0.5 * sign)
    pieces = [*zip(covariance.representation(), to_covariance, strict=True)]
    pieces += [(noise, to_noise), (residual, -alpha.squeeze(1))]
    for tensor, gradient in pieces:
        if tensor.requires_grad and gradient is not None:
            value = value + ((tensor - tensor.detach()) * gradient).sum()  # adds 0, and the gradient
    return value


def _bilinear(covariance: PairLinearOperator, vectors: Tensor, weights: Tensor) -> list[Tensor | None]:
    r"""The gradient of :math:`\sum_c w_c x_c^T K_{TT} x_c` for each tensor that represents K_TT.

    With X_c the vectors scattered into matrices, its derivative by K_M is :math:`\sum_c w_c X_c K_N X_c^T`, a matrix as
    large as K_M, which is formed first: then the kernel is differentiated once and not once for each vector.
    """
    product = covariance.product
    if max(covariance.left.active_shape) > GRAM_SIDE or not (product.row.dense_fits and product.col.dense_fits):
        return _in_batches(covariance, weights * vectors, vectors)
    rows, cols = covariance.left.active_shape
    to_row, to_col = vectors.new_zeros(rows, rows), vectors.new_zeros(cols, cols)
    for c in range(vectors.shape[1]):
        x, x_t = _scattered(covariance.left, vectors[:, c])
        _add_product(to_row, weights[c], x, _product(x, product.col.dense).mT)
        _add_product(to_col, weights[c], x_t, _product(x_t, product.row.dense).mT)
    of_rows = _contracted(covariance.row_op, to_row, covariance.left.active_rows)
    return [*of_rows, *_contracted(covariance.col_op, to_col, covariance.left.active_cols)]


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


def _contracted(op: LinearOperator, inner: Tensor, active: Tensor) -> list[Tensor | None]:
    """The gradient of <inner, K> for K the block of ``op`` at ``active`` x ``active``, for each tensor of ``op``."""
    total: list[Tensor | None] = [None] * len(op.representation())
    for start in range(0, len(active), COLUMNS):
        part = active[start : start + COLUMNS]
        left, right = inner.new_zeros(op.shape[-1], len(part)), inner.new_zeros(op.shape[-1], len(part))
        left[active] = inner[:, start : start + COLUMNS]
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


def _sum(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Entry by entry; None is 0."""
    return [b if a is None else a if b is None else a + b for a, b in zip(one, other, strict=True)]
