"""The leading singular values of the gradient, by block subspace iteration in dual coordinates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .problem import LowRank, MeanProblem, orthonormal, orthonormal_complement, scaled_gram, times


def random_images(problem: MeanProblem, count: int, seed: int) -> Tensor:
    """(N, count): K_N times random dual vectors, a start for subspace iteration."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(problem.shape[1], count, generator=generator, dtype=torch.float64)
    return problem.cols_times(start.to(problem.dtype).to(problem.device))


class StepOperator:
    r"""Dual coordinates of :math:`t \nabla f + \sum_k a_k B_k`: a sparse matrix plus matrices of low rank.

    :param theta: (T,) gradient on the observed pairs.
    :param scale: t.
    :param parts: a_k and B_k.
    """

    def __init__(
        self, problem: MeanProblem, theta: Tensor, scale: float = 1.0, parts: Sequence[tuple[float, LowRank]] = ()
    ) -> None:
        self.matrix, self.matrix_t = problem.sparse(theta if scale == 1.0 else scale * theta)
        self.parts = parts

    def times(self, dense: Tensor) -> Tensor:
        """(M, b) from (N, b)."""
        out = times(self.matrix, dense)
        for factor, part in self.parts:
            out.add_(part.dual_times(dense), alpha=factor)
        return out

    def times_t(self, dense: Tensor) -> Tensor:
        """(N, b) from (M, b)."""
        out = times(self.matrix_t, dense)
        for factor, part in self.parts:
            out.add_(part.dual_times_t(dense), alpha=factor)
        return out


def subspace_pass(problem: MeanProblem, operator: StepOperator, images: Tensor, lead: int = 0) -> LowRank:
    """Singular triplets of Z, values descending, by one pass of block subspace iteration.

    :param operator: products with the dual coordinates of Z and of its transpose.
    :param images: (N, b) right images K_N D to start from.
    :param lead: how many of the images are trusted singular vectors, ahead of spare ones.
    """
    left = operator.times(images)  # (M, b): dual coordinates of Z V
    left, left_image = orthonormal(left, problem.rows_times(left), lead)
    if not bool(left.any()):  # Z = 0
        return LowRank(left[:, :0], images[:, :0], images.new_zeros(0), left[:, :0], images[:, :0])
    right = operator.times_t(left_image)  # (N, b): dual coordinates of Z^T Q
    right_image = problem.cols_times(right)
    squares, vectors = torch.linalg.eigh(scaled_gram(right, right_image))
    values, vectors = squares.flip(0).clamp_min(0).sqrt(), vectors.flip(1)
    kept = values > 1e-12 * values[0].clamp_min(torch.finfo(torch.float64).tiny)
    values, vectors = values[kept], vectors[:, kept]
    turn_left, turn_right = vectors.to(problem.dtype), (vectors / values).to(problem.dtype)
    return LowRank(
        left @ turn_left, right @ turn_right, values.to(problem.dtype), left_image @ turn_left, right_image @ turn_right
    )


def krylov_images(problem: MeanProblem, operator: StepOperator, mean: LowRank, images: Tensor, steps: int) -> Tensor:
    """(N, p steps): right images of a block Krylov space of Z outside the singular subspaces of ``mean``.

    At the optimum the singular values on those subspaces all equal the threshold; what decides about optimality
    lies outside, at the edge of a bulk, where powers are slow and Krylov spaces are not.

    :param images: (N, p) right images to start from.
    """
    rank, width = mean.rank, images.shape[1]
    size = rank + width * steps
    dual, dual_image = (part.new_empty(part.shape[0], size) for part in (mean.right, mean.right_image))
    dual[:, :rank], dual_image[:, :rank] = mean.right, mean.right_image
    end = rank  # columns in use
    for _ in range(steps):
        left = operator.times(images)
        left_image = problem.rows_times(left)
        share = mean.left_image.mT @ left
        left, left_image = left - mean.left @ share, left_image - mean.left_image @ share
        _, left_image = orthonormal(left, left_image)
        right = operator.times_t(left_image)
        fresh, images = orthonormal_complement(dual[:, :end], dual_image[:, :end], right, problem.cols_times(right))
        if images.shape[1] == 0:  # the space is exhausted
            break
        dual[:, end : end + images.shape[1]], dual_image[:, end : end + images.shape[1]] = fresh, images
        end += images.shape[1]
    return dual_image[:, rank:end]


def leading_values(
    problem: MeanProblem,
    theta: Tensor,
    images: Tensor,
    *,
    accuracy: float,
    max_passes: int = 60,
    parts: Sequence[tuple[float, LowRank]] = (),
) -> LowRank:
    """Leading singular triplets of the gradient (plus ``parts``), iterated until the largest value is settled.

    :param theta: (T,) gradient on the observed pairs.
    :param images: (N, b) right images to start from.
    :param accuracy: relative change of the largest value between passes at which to stop.
    """
    operator = StepOperator(problem, theta, parts=parts)
    triplets = subspace_pass(problem, operator, images)
    for _ in range(max_passes - 1):
        before = float(triplets.values[0])
        triplets = subspace_pass(problem, operator, triplets.right_image)
        if abs(float(triplets.values[0]) - before) <= accuracy * before:
            break
    return triplets
