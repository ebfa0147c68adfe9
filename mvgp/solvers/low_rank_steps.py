"""Accelerated proximal gradient on matrices of low rank."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .accelerated import Reached, accelerate
from .iterate import Iterate
from .low_rank import LowRank, inner
from .penalties import Penalty
from .problem import MeanProblem
from .spectrum import StepDual, random_images, subspace_pass

LEAST = 8  # directions carried along beyond the rank; a quarter of the rank if that is more


def proximal_steps(
    problem: MeanProblem,
    penalty: Penalty,
    now: Iterate,
    *,
    steps: int,
    watch: Callable[[float], None] | None = None,
) -> Iterate:
    """Accelerated proximal gradient in the whole space."""
    space = LowRankSpace(problem, penalty, now.spare)
    end = accelerate(
        problem, penalty, space, Reached(now.mean, now.psi, now.at, now.lipschitz, 0), max_steps=steps, watch=watch
    )
    return Iterate(end.point, end.psi, end.at, space.spare, end.lipschitz)


class LowRankSpace:
    r"""Matrices of low rank, a step on their leading singular subspace only.

    A step needs the singular values of :math:`Z = Y - \nabla f(Y) / L` above the threshold. One pass of block
    subspace iteration, started from the previous step's singular vectors and a few spare directions,
    costs one product with each kernel.

    :param spare: (N, p) right images of directions next in line.
    """

    def __init__(self, problem: MeanProblem, penalty: Penalty, spare: Tensor) -> None:
        self.problem, self.penalty, self.spare = problem, penalty, spare

    def step(self, theta: Tensor, now: LowRank, before: LowRank, beta: float, lipschitz: float) -> LowRank:
        """See :class:`~mvgp.solvers.accelerated.Space`."""
        parts = [(1 + beta, now)] + ([(-beta, before)] if beta else [])
        dual = StepDual(self.problem, theta, -1 / lipschitz, parts)
        images = torch.cat([now.right_image, self.spare], dim=1)
        found = subspace_pass(self.problem, dual, images, lead=now.rank)
        values = self.penalty.shrink(found.values, 1 / lipschitz)
        rank = int((values > 0).sum())
        wanted = max(LEAST, rank // 4)
        spare = found.right_image[:, rank : rank + wanted]
        if spare.shape[1] < wanted:
            more = random_images(self.problem, wanted - spare.shape[1], seed=rank + wanted)
            spare = torch.cat([spare, more], dim=1)
        self.spare = spare
        return LowRank(
            found.left[:, :rank],
            found.right[:, :rank],
            values[:rank],
            found.left_image[:, :rank],
            found.right_image[:, :rank],
        )

    def distance(self, fresh: LowRank, now: LowRank, before: LowRank, beta: float) -> float:
        """See :class:`~mvgp.solvers.accelerated.Space`."""
        found = _square(fresh) + (1 + beta) ** 2 * _square(now) - 2 * (1 + beta) * inner(fresh, now)
        if beta:
            found += beta**2 * _square(before) + 2 * beta * inner(fresh, before)
            found -= 2 * beta * (1 + beta) * inner(now, before)
        return found

    def psi(self, point: LowRank) -> Tensor:
        """See :class:`~mvgp.solvers.accelerated.Space`."""
        return point.psi(self.problem)

    def values(self, point: LowRank) -> Tensor:
        """See :class:`~mvgp.solvers.accelerated.Space`."""
        return point.values


def _square(mean: LowRank) -> float:
    """||B||_F^2"""
    return float(mean.values.double().square().sum())
