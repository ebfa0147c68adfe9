"""Bounds on the spectrum of a covariance operator, without computing it."""

from __future__ import annotations

import torch
from linear_operator import LinearOperator
from linear_operator.operators import ConstantMulLinearOperator, DiagLinearOperator, SumLinearOperator

from . import chebyshev
from .polynomial import ChebyshevLinearOperator
from .spectral import SpectralLinearOperator


def spectral_bounds(op: LinearOperator) -> tuple[float, float]:
    """(low, high) with every eigenvalue of the positive semi-definite ``op`` (N, N) between them.

    They hold for every principal submatrix too, since its spectrum interlaces.
    """
    op = op.detach()
    if isinstance(op, ChebyshevLinearOperator):
        grid = torch.cos(torch.linspace(0, torch.pi, 513, dtype=op.dtype, device=op.device))
        values = chebyshev.evaluate(chebyshev.coefficients(op.values), grid)
        return max(float(values.min()), 0.0), float(values.max())
    if isinstance(op, SpectralLinearOperator):
        complete = op.vectors.shape[0] == op.vectors.shape[1]
        return (max(float(op.spectrum.min()), 0.0) if complete else 0.0), float(op.spectrum.max())
    if isinstance(op, DiagLinearOperator):
        diagonal = op.diagonal()
        return max(float(diagonal.min()), 0.0), float(diagonal.max())
    if isinstance(op, ConstantMulLinearOperator) and op.expanded_constant.numel() == 1:
        low, high = spectral_bounds(op.base_linear_op)
        factor = float(op.expanded_constant)
        return low * factor, high * factor
    if isinstance(op, SumLinearOperator):
        parts = [spectral_bounds(term) for term in op.linear_ops]
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    return 0.0, float(op.to_dense().abs().sum(-1).max())  # Gershgorin
