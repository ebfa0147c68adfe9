"""The leading eigenpairs of one factor of a Kronecker product."""

from __future__ import annotations

import torch
from torch import Tensor

from .factor import Factor
from .psd import eigenpairs

EXACT_LIMIT = 3072  # up to this size all eigenpairs are computed
SKETCH = 384  # number of eigenpairs that are approximated above it


def leading_eigenpairs(factor: Factor, name: str) -> tuple[Tensor, Tensor]:
    """Eigenvalues (R,), descending, and orthonormal vectors (N, R) of a square factor.

    Exact and complete (up to zeros) for sizes up to ``EXACT_LIMIT``; beyond that the pairs of the best
    approximation in a random Krylov subspace, which is all that a preconditioner needs.
    """
    if factor.out_size <= EXACT_LIMIT:
        return eigenpairs(factor.dense, name)
    lazily = not factor.dense_fits
    generator = torch.Generator().manual_seed(0)  # the same preconditioner every time
    start = torch.randn(factor.out_size, SKETCH, generator=generator, dtype=torch.float64)
    basis = start.to(factor.dtype).to(factor.device)
    for _ in range(3):
        basis = torch.linalg.qr(factor.apply(basis, lazily)).Q
    small = basis.mT @ factor.apply(basis, lazily)
    values, vectors = eigenpairs((small + small.mT) / 2, name)
    return values, basis @ vectors
