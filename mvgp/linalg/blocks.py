"""Dense pieces of a lazy operator: columns, blocks, and diagonal entries at chosen positions."""

from __future__ import annotations

import torch
from linear_operator import LinearOperator
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from .spectral import SpectralLinearOperator


def columns(op: LinearOperator, which: Tensor) -> Tensor:
    """(R, Q): the columns ``which`` (Q,) of an operator (R, C)."""
    if isinstance(op, DenseLinearOperator):
        return op.tensor[:, which]
    if isinstance(op, SpectralLinearOperator):
        return op.block(slice(None), which)
    picked = torch.zeros(op.shape[-1], len(which), dtype=op.dtype, device=op.device)
    picked[which, torch.arange(len(which), device=op.device)] = 1.0
    return op._matmul(picked)


def block(op: LinearOperator, rows: Tensor, cols: Tensor) -> Tensor:
    """(Q, P): the entries of an operator at ``rows`` (Q,) x ``cols`` (P,)."""
    if isinstance(op, SpectralLinearOperator):
        return op.block(rows, cols)
    if len(rows) < len(cols) and not isinstance(op, DenseLinearOperator):
        return columns(op.mT, rows).mT[:, cols]
    return columns(op, cols)[rows]


def diagonal_at(op: LinearOperator, which: Tensor) -> Tensor:
    """(Q,): the diagonal entries of a square operator at ``which`` (Q,); repeats are computed once."""
    distinct, back = torch.unique(which, return_inverse=True)
    return op._get_indices(distinct, distinct)[back]
