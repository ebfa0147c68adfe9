"""Spectra: an operator given by its eigenpairs, eigenpairs of a matrix, bounds, and a check of covariances."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from linear_operator.operators import (
    ConstantMulLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    SumLinearOperator,
)
from torch import Tensor

from ..checks import shown
from ..errors import InputError, NotPositiveSemidefiniteError
from ..tensor_checks import check_float_tensor, check_positions
from . import chebyshev
from .chebyshev import ChebyshevLinearOperator


class SpectralLinearOperator(LinearOperator):
    r""":math:`U \operatorname{diag}(s) U^T` with U (N, R) and s (..., R).

    One U serves every batch entry. Its diagonal and blocks are closed form, and scaling stays in the
    family, so that no structure is lost.

    :param vectors: (N, R).
    :param spectrum: (..., R).
    """

    def __init__(self, spectrum: Tensor, vectors: Tensor) -> None:
        check_float_tensor(vectors, "vectors", (None, None), half=True)
        if not isinstance(spectrum, Tensor) or spectrum.dim() == 0 or spectrum.shape[-1] != vectors.shape[1]:
            raise InputError(f"spectrum: expected a tensor (..., {vectors.shape[1]}), got {shown(spectrum)}")
        check_float_tensor(spectrum, "spectrum", (None,) * spectrum.dim(), like=vectors, half=True)
        super().__init__(spectrum, vectors=vectors)
        self.spectrum, self.vectors = spectrum, vectors

    def _size(self) -> torch.Size:
        count = self.vectors.shape[0]
        return torch.Size((*self.spectrum.shape[:-1], count, count))

    def _transpose_nonbatch(self) -> SpectralLinearOperator:
        return self

    def _matmul(self, rhs: Tensor) -> Tensor:
        is_vector = rhs.dim() == 1
        rhs = rhs.unsqueeze(-1) if is_vector else rhs
        out = self.vectors @ (self.spectrum.unsqueeze(-1) * (self.vectors.mT @ rhs))
        return out.squeeze(-1) if is_vector else out

    def _diagonal(self) -> Tensor:
        return self.spectrum @ self.vectors.square().mT

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        spectrum = self.spectrum[batch_indices] if batch_indices else self.spectrum
        return (self.vectors[row_index] * spectrum * self.vectors[col_index]).sum(-1)

    def _expand_batch(self, batch_shape: Any) -> SpectralLinearOperator:
        return SpectralLinearOperator(self.spectrum.expand(*batch_shape, self.spectrum.shape[-1]), self.vectors)

    def _mul_constant(self, other: Any) -> LinearOperator:
        factor = torch.as_tensor(other, dtype=self.dtype, device=self.device)
        return SpectralLinearOperator(self.spectrum * factor.unsqueeze(-1), self.vectors)

    def block(self, rows: Tensor | slice, cols: Tensor | slice) -> Tensor:
        """(..., Q, P): the dense entries at ``rows`` x ``cols``."""
        size = self.vectors.shape[0]
        for positions, name in ((rows, "rows"), (cols, "cols")):
            if not isinstance(positions, slice):
                check_positions(positions, size, name)
        return (self.vectors[rows] * self.spectrum.unsqueeze(-2)) @ self.vectors[cols].mT

    def root(self) -> LinearOperator:
        r"""The root :math:`U \operatorname{diag}(s)^{1/2}`, (..., N, R); the spectrum must not be negative."""
        return DenseLinearOperator(self.vectors * self.spectrum.sqrt().unsqueeze(-2))


def eigenpairs(matrix: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Eigenvalues (R,), descending and positive, and eigenvectors (N, R) of a covariance (N, N).

    Eigenvalues that are zero up to rounding are left out; a negative one is an error.
    """
    values, vectors = torch.linalg.eigh(matrix)
    largest = values[-1].clamp_min(0)
    if values[0] < -tolerance(matrix) * largest.clamp_min(torch.finfo(matrix.dtype).tiny):
        raise NotPositiveSemidefiniteError(
            f"{name}: expected a positive semi-definite matrix, its smallest eigenvalue is {values[0].item():.6g}"
        )
    kept = values > torch.finfo(matrix.dtype).eps * largest
    return values[kept].flip(0), vectors[:, kept].flip(1)


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


def check_covariance(matrix: Tensor, name: str) -> None:
    """Raise unless ``matrix`` (..., N, N) is square, finite, symmetric and positive semi-definite."""
    if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise InputError(f"{name}: expected a square matrix, got shape {tuple(matrix.shape)}")
    bad = ~torch.isfinite(matrix)
    if bad.any():
        at = tuple(int(i) for i in bad.nonzero()[0])
        raise InputError(f"{name}{list(at)}: expected a finite number, got {matrix[at].item()}")
    scale = matrix.abs().amax()
    skew = (matrix - matrix.mT).abs()
    if skew.amax() > tolerance(matrix) * scale:
        at = tuple(int(i) for i in torch.unravel_index(skew.argmax(), skew.shape))
        pair = (matrix[at].item(), matrix.mT[at].item())
        raise InputError(f"{name}{list(at)}: expected a symmetric matrix, got {pair[0]} against {pair[1]}")
    # Cholesky of the matrix, lifted by what rounding may have taken, succeeds just when it is PSD.
    lift = float(tolerance(matrix) * scale) or torch.finfo(matrix.dtype).tiny
    lifted = matrix + lift * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    _, info = torch.linalg.cholesky_ex(lifted)
    if (info > 0).any():
        lowest = torch.linalg.eigvalsh(matrix)[..., 0].min().item()
        raise NotPositiveSemidefiniteError(
            f"{name}: expected a positive semi-definite matrix, its smallest eigenvalue is {lowest:.6g}; "
            f"if that is rounding in how it was computed, add {-2 * lowest:.3g} to its diagonal"
        )


def tolerance(matrix: Tensor) -> float:
    """How far below zero rounding alone can push an eigenvalue, relative to the largest."""
    return 10 * matrix.shape[-1] * torch.finfo(matrix.dtype).eps
