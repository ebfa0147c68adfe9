"""A root G of a covariance operator, G G^T = K, kept lazy wherever the structure allows it."""

from __future__ import annotations

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

from ..checks import check_instance
from ..errors import SizeError
from .gram import GramLinearOperator
from .polynomial import ChebyshevLinearOperator
from .psd import eigenpairs
from .side_by_side import SideBySideLinearOperator
from .spectral import SpectralLinearOperator

DENSE_LIMIT = 8192  # largest operator without structure whose dense eigenpairs are computed


def root(op: LinearOperator) -> LinearOperator:
    """G (N, D) with G G^T = ``op`` (N, N). D may be larger or smaller than N.

    A graph kernel gives the Chebyshev series of its square root; a sum gives the roots of its terms
    side by side; an operator without structure gives its eigenpairs, if it is small enough.

    :param op: (N, N), symmetric and positive semi-definite.

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
        return op.root(DENSE_LIMIT**2)
    if isinstance(op, DiagLinearOperator):
        return op.sqrt()
    if isinstance(op, RootLinearOperator):
        return op.root
    if isinstance(op, ConstantMulLinearOperator) and op.expanded_constant.numel() == 1:
        return root(op.base_linear_op) * op.expanded_constant.sqrt().reshape(())
    if isinstance(op, KroneckerProductLinearOperator) and not isinstance(op, TriangularLinearOperator):
        return KroneckerProductLinearOperator(*[root(factor) for factor in op.linear_ops])
    if isinstance(op, SumLinearOperator):
        return SideBySideLinearOperator(*[root(term) for term in op.linear_ops])
    if op.shape[-1] > DENSE_LIMIT:
        raise SizeError(
            f"the root of a {type(op).__name__} of size {op.shape[-1]} needs dense eigenpairs, which are computed up "
            f"to size {DENSE_LIMIT}; use a graph kernel, a low-rank kernel, or fewer inputs"
        )
    values, vectors = eigenpairs(op.to_dense(), "kernel matrix")
    return DenseLinearOperator(vectors * values.sqrt())
