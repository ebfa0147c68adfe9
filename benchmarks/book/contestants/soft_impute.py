"""Soft-impute without kernels: Mazumder, Hastie and Tibshirani, 2010. Dense singular value decompositions, warm starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

import mvgp

TOLERANCE = 1e-4  # relative change of the matrix, as in their program
MOST = 500  # steps for one strength


def soft_impute(data: mvgp.ObservedMatrix, strengths: Sequence[float]) -> Iterator[tuple[float, torch.Tensor, int]]:
    """For decreasing strengths, relative to the one that gives zero: the strength, the matrix (M, N), its rank."""
    observed = torch.zeros(data.shape, dtype=torch.float64)
    observed[data.rows, data.cols] = data.values
    largest = float(torch.linalg.matrix_norm(observed, 2))
    mean = torch.zeros_like(observed)
    for strength in strengths:
        for _ in range(MOST):
            filled = mean.clone()
            filled[data.rows, data.cols] = data.values
            left, values, right = torch.linalg.svd(filled, full_matrices=False)
            values = (values - strength * largest).clamp(min=0)
            rank = int((values > 0).sum())
            before, mean = mean, (left[:, :rank] * values[:rank]) @ right[:rank]
            if (mean - before).norm() <= TOLERANCE * before.norm().clamp(min=1e-12):
                break
        yield strength, mean, rank
