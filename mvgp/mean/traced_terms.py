r"""A term with a trace norm in a sum: its proximal steps, and the singular values that its certificate needs.

- :class:`DenseTerm`, for small matrices: B itself, in the coordinates of the kernels' eigenvectors. Every singular
  value is exact, and kernels that are singular up to rounding (smooth functions of close inputs) do no harm.
- :class:`LowRankTerm`, for all others: B of low rank in dual coordinates, a step on its leading singular subspace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from ..linalg.spectra import eigenpairs
from .low_rank import LowRank, StepOperator, krylov_images, random_images, subspace_pass
from .problem import MeanProblem, SpectralElasticNet, times
from .proximal import LowRankSpace
from .spectrum_bound import bound_spectrum

DENSE_SIDES = 128, 1024  # longest shorter and longer side up to which a term is held densely
MIN_SPARES = 16  # directions carried along beyond the rank; a quarter of the rank if that is more
KRYLOV_STEPS = 4  # of the Krylov space in which the leading singular vectors of the gradient are searched
FAILURE = 1e-8  # probability that one confirmation of singular values is wrong


@dataclass(frozen=True)
class Values:
    """Singular values of the gradient.

    :param values: (k,) that are not below the true ones, up to the probability ``failure``.
    :param is_sharp: False where the values met would have reached the goal, but their bounds did not.
    """

    values: Tensor
    failure: float
    is_sharp: bool


def traced_term(problem: MeanProblem, penalty: SpectralElasticNet, exact_limit: int) -> DenseTerm | LowRankTerm:
    """The form that fits the size."""
    shorter, longer = sorted(problem.shape)
    is_small = shorter <= min(DENSE_SIDES[0], exact_limit) and longer <= DENSE_SIDES[1]
    return DenseTerm(problem, penalty) if is_small else LowRankTerm(problem, penalty, exact_limit)


@dataclass(frozen=True)
class DenseMatrix:
    """B with its singular values.

    :param matrix: B (D_M, D_N).
    :param left: (D_M, R).
    :param right: (D_N, R).
    :param values: (R,) positive, descending.
    """

    matrix: Tensor
    left: Tensor
    right: Tensor
    values: Tensor


class DenseTerm:
    """B (D_M, D_N), densely.

    :param problem: kernels, pattern and loss.
    :param penalty: h.
    """

    def __init__(self, problem: MeanProblem, penalty: SpectralElasticNet) -> None:
        self.problem, self.penalty = problem, penalty
        kernels = (problem.row_op, "row kernel"), (problem.col_op, "column kernel")
        self._eigen = [eigenpairs(op.to_dense(), name) for op, name in kernels]
        self.row_root, self.col_root = (vectors * values.sqrt() for values, vectors in self._eigen)

    def start(self, mean: LowRank | None, spare: Tensor | None) -> DenseMatrix:
        """See :class:`LowRankTerm`."""
        matrix = self.row_root.new_zeros(self.row_root.shape[1], self.col_root.shape[1])
        if mean is not None and mean.rank:
            left, right = (
                root.mT @ dual.to(root)
                for root, dual in ((self.row_root, mean.left * mean.values), (self.col_root, mean.right))
            )
            matrix = left @ right.mT
        return self._shrunk(matrix, 0.0)

    def _shrunk(self, matrix: Tensor, step: float) -> DenseMatrix:
        left, values, right_t = torch.linalg.svd(matrix, full_matrices=False)
        rounding = max(matrix.shape) * torch.finfo(matrix.dtype).eps * values.amax()  # no directions of a product
        values = self.penalty.shrink(values, step)
        rank = int((values > rounding).sum())
        left, values, right_t = left[:, :rank], values[:rank], right_t[:rank]
        return DenseMatrix((left * values) @ right_t, left, right_t.mT, values)

    def gradient(self, theta: Tensor) -> Tensor:
        """(D_M, D_N): of the loss in B."""
        return self.row_root.mT @ times(self.problem.pattern.matrix(theta), self.col_root)

    def step(self, theta: Tensor, now: DenseMatrix, before: DenseMatrix, beta: float, lipschitz: float) -> DenseMatrix:
        """See :class:`~mvgp.mean.proximal.LowRankSpace`."""
        return self._shrunk(_ahead(now, before, beta) - self.gradient(theta) / lipschitz, 1 / lipschitz)

    def distance(self, fresh: DenseMatrix, now: DenseMatrix, before: DenseMatrix, beta: float) -> float:
        """See :class:`~mvgp.mean.proximal.LowRankSpace`."""
        return float((fresh.matrix - _ahead(now, before, beta)).double().square().sum())

    def psi(self, point: DenseMatrix) -> Tensor:
        """See :class:`~mvgp.mean.proximal.LowRankSpace`."""
        left, right = self.row_root @ (point.left * point.values), self.col_root @ point.right
        return self.problem.pattern.sample(left, right)

    def low_rank(self, point: DenseMatrix) -> LowRank:
        """See :class:`LowRankTerm`."""
        (row_values, row_vectors), (col_values, col_vectors) = self._eigen
        left, right = (
            vectors @ (side / values.sqrt().unsqueeze(1))
            for vectors, side, values in ((row_vectors, point.left, row_values), (col_vectors, point.right, col_values))
        )
        return LowRank(left, right, point.values, self.row_root @ point.left, self.col_root @ point.right)

    def spares(self) -> Tensor | None:
        """None are needed."""
        return None

    def leading(self, point: DenseMatrix, theta: Tensor, seed: int) -> Tensor:
        """All of them."""
        return torch.linalg.svdvals(self.gradient(theta).double())

    def confirmed(
        self, point: DenseMatrix, theta: Tensor, seed: int, dual_of: Callable[[Tensor], float], goal: float
    ) -> Values:
        """See :class:`LowRankTerm`."""
        return Values(self.leading(point, theta, seed), 0.0, True)


def _ahead(now: DenseMatrix, before: DenseMatrix, beta: float) -> Tensor:
    return now.matrix + beta * (now.matrix - before.matrix) if beta else now.matrix


class LowRankTerm(LowRankSpace):
    """B of low rank.

    :param exact_limit: longest short side up to which confirmed values are exact.
    """

    def __init__(self, problem: MeanProblem, penalty: SpectralElasticNet, exact_limit: int) -> None:
        super().__init__(problem, penalty, random_images(problem, min(MIN_SPARES, *problem.shape), seed=0))
        self.edge, self.exact_limit = penalty.trace, exact_limit

    def start(self, mean: LowRank | None, spare: Tensor | None) -> LowRank:
        """Zero, or the mean of a neighbouring problem, with (N, p) right images of directions next in line."""
        if spare is not None and spare.shape[1]:
            self.spare = spare.to(self.problem.dtype)
        if mean is None:
            return LowRank.zero(self.problem)
        if mean.values.dtype == self.problem.dtype:
            return mean
        left, right, values = (x.to(self.problem.dtype) for x in (mean.left, mean.right, mean.values))
        return LowRank(left, right, values, self.problem.rows_times(left), self.problem.cols_times(right))

    @override
    def distance(self, fresh: LowRank, now: LowRank, before: LowRank, beta: float) -> float:
        """0 where it is too short for the rounding errors of its computation."""
        square = super().distance(fresh, now, before, beta)
        size = float(fresh.values.double().square().sum() + now.values.double().square().sum())
        return square if square > 100 * torch.finfo(now.values.dtype).eps * size else 0.0

    def low_rank(self, point: LowRank) -> LowRank:
        """Itself."""
        return point

    def spares(self) -> Tensor | None:
        """(N, p): right images of directions next in line, for a warm start."""
        return self.spare

    def _triplets(self, point: LowRank, theta: Tensor, seed: int) -> LowRank:
        """Of the gradient, from a block Krylov space outside the mean's own vectors."""
        problem, gradient = self.problem, StepOperator(self.problem, theta)
        width = min(max(MIN_SPARES, point.rank // 16), *problem.shape)
        start = self.spare[:, :width]
        if start.shape[1] < width:
            start = torch.cat([start, random_images(problem, width - start.shape[1], seed=seed + 1)], dim=1)
        outside = krylov_images(problem, gradient, point, start, KRYLOV_STEPS)
        return subspace_pass(problem, gradient, torch.cat([point.right_image, outside], dim=1))

    def leading(self, point: LowRank, theta: Tensor, seed: int) -> Tensor:
        """Leading singular values of the gradient, perhaps too small; their directions are next in line."""
        triplets = self._triplets(point, theta, seed)
        self._line_up(point, triplets)
        return triplets.values.double()

    def _line_up(self, point: LowRank, triplets: LowRank, extra: int = 0) -> None:
        """The directions beyond the rank are next in line."""
        width = max(MIN_SPARES, point.rank // 4, extra)
        self.spare = triplets.right_image[:, point.rank : point.rank + width]

    def confirmed(
        self, point: LowRank, theta: Tensor, seed: int, dual_of: Callable[[Tensor], float], goal: float
    ) -> Values:
        """Singular values of the gradient that are not too small, sharp enough for a dual value of ``goal``."""
        problem, triplets = self.problem, self._triplets(point, theta, seed)
        bound = bound_spectrum(
            problem, theta, triplets, self.edge, dual_of, goal, failure=FAILURE, exact_limit=self.exact_limit
        )
        if bound.images.shape[1]:  # what the confirmation met is next in line to enter
            images = torch.cat([bound.triplets.right_image, bound.images], dim=1)
            fresh = subspace_pass(problem, StepOperator(problem, theta), images)
            self._line_up(point, fresh, bound.images.shape[1])
        return Values(bound.values, bound.failure, bound.is_sharp)
