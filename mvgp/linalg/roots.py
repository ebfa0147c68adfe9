"""Roots of covariances, and dense pieces of a lazy operator: columns, blocks, diagonal entries."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from linear_operator.operators import (
    ConstantMulLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    KroneckerProductLinearOperator,
    RootLinearOperator,
    SumLinearOperator,
    TriangularLinearOperator,
)
from torch import Tensor

from ..checks import check_instance
from ..errors import SizeError
from .chebyshev import ChebyshevLinearOperator
from .spectra import SpectralLinearOperator, eigenpairs
from .stacked import GramLinearOperator, HorizontalStackLinearOperator


def root(op: LinearOperator, *, max_size: int = 8192) -> LinearOperator:
    """G (N, D) with G G^T = ``op`` (N, N). D may be larger or smaller than N.

    A graph kernel gives the Chebyshev series of its square root; a sum gives the roots of its terms
    side by side; an operator without structure gives its eigenpairs, if it is small enough.

    :param op: (N, N), symmetric and positive semi-definite.
    :param max_size: largest N of an operator without structure, whose dense eigenpairs are computed.

    Example:
        >>> import torch
        >>> from linear_operator import to_linear_operator
        >>> from mvgp.linalg import root
        >>> half = root(to_linear_operator(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))).to_dense()
        >>> (half @ half.T).round(decimals=4).tolist()
        [[2.0, 1.0], [1.0, 2.0]]

    """
    check_instance(op, "op", LinearOperator, "a LinearOperator")
    if isinstance(op, ChebyshevLinearOperator | SpectralLinearOperator):
        return op.root()
    if isinstance(op, GramLinearOperator):
        return op.root(max_size**2)
    if isinstance(op, DiagLinearOperator):
        return op.sqrt()
    if isinstance(op, RootLinearOperator):
        return op.root
    if isinstance(op, ConstantMulLinearOperator) and op.expanded_constant.numel() == 1:
        return root(op.base_linear_op, max_size=max_size) * op.expanded_constant.sqrt().reshape(())
    if isinstance(op, KroneckerProductLinearOperator) and not isinstance(op, TriangularLinearOperator):
        return KroneckerProductLinearOperator(*[root(factor, max_size=max_size) for factor in op.linear_ops])
    if isinstance(op, SumLinearOperator):
        return HorizontalStackLinearOperator(*[root(term, max_size=max_size) for term in op.linear_ops])
    if op.shape[-1] > max_size:
        raise SizeError(
            f"the root of a {type(op).__name__} of size {op.shape[-1]} needs dense eigenpairs, which are computed up "
            f"to size {max_size}; use a graph kernel, a low-rank kernel, or fewer inputs"
        )
    dense = op.to_dense()
    values, vectors = eigenpairs(dense.detach(), "kernel matrix")
    if torch.is_grad_enabled() and dense.requires_grad:  # eigenvectors have no derivative where eigenvalues meet
        return DenseLinearOperator(_SymmetricRoot.apply(dense, values, vectors))
    return DenseLinearOperator(vectors * values.sqrt())


class _SymmetricRoot(torch.autograd.Function):
    r"""The symmetric root :math:`G = K^{1/2}` of K (N, N) from its eigenpairs, those of zero left out.

    From :math:`dG\, G + G\, dG = dK`: in the eigenvectors entry (i, j) of dK is divided by
    :math:`\lambda_i^{1/2} + \lambda_j^{1/2}`. Where both are zero nothing is assumed to change.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
        ctx.save_for_backward(values.sqrt(), vectors)
        return (vectors * values.sqrt()) @ vectors.mT

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        halves, vectors = ctx.saved_tensors
        both = (upstream[0] + upstream[0].mT) / 2
        seen = vectors.mT @ both  # (R, N)
        inner = (seen @ vectors) / (halves.unsqueeze(1) + halves)  # (R, R)
        mixed = (seen - (seen @ vectors) @ vectors.mT) / halves.unsqueeze(1)  # (R, N): one eigenvalue of the two zero
        half = vectors @ mixed
        return vectors @ inner @ vectors.mT + half + half.mT, None, None


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
