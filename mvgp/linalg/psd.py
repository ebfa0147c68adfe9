"""Checks that a matrix is a covariance, and eigenpairs of one. Nothing is repaired quietly."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError, NotPositiveSemidefiniteError


def tolerance(matrix: Tensor) -> float:
    """How far below zero rounding alone can push an eigenvalue, relative to the largest."""
    return 10 * matrix.shape[-1] * torch.finfo(matrix.dtype).eps


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
