r"""Accelerated proximal gradient with restarts: in the whole space, and inside fixed subspaces.

The step length follows the curvature met on the way: with few entries observed it is far below the bound that
holds for every matrix. A step that met more than it assumed is taken again, shorter, so the descent is safe.

**Whole space** (:func:`proximal_steps`): matrices of low rank, each step on their leading singular subspace.

**Subspaces** (:func:`core_step`): :math:`B = U S V^T` with S (k, l), the bases held fixed. A step costs the sampled
products alone, no kernel. What it buys is the certificate: once S is optimal, the gradient's singular values on the
subspaces equal the threshold, and what is left of the excess is of second order in the distance of the subspaces from
the best ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor
from typing_extensions import override

from ..likelihoods.losses import LossValue
from .certificate import Iterate, dual_bound
from .penalties import Penalty
from .problem import LowRank, MeanProblem, inner, orthonormal, times
from .spectrum import StepOperator, random_images, subspace_pass

MIN_SPARES = 8  # directions carried along beyond the rank in the whole space; a quarter of the rank if that is more
CHECK_EVERY = 4  # steps between two computations of the duality gap within the subspaces

Point = TypeVar("Point")


class Space(Protocol[Point]):
    """Where iterates live, and how a proximal step is taken there."""

    def step(self, theta: Tensor, now: Point, before: Point, beta: float, lipschitz: float) -> Point:
        """The proximal point from now + beta (now - before), ``theta`` (T,) the loss's gradient there."""
        ...

    def distance(self, fresh: Point, now: Point, before: Point, beta: float) -> float:
        """||fresh - now - beta (now - before)||_F^2"""
        ...

    def psi(self, point: Point) -> Tensor:
        """(T,): psi at the observed pairs."""
        ...

    def values(self, point: Point) -> Tensor:
        """Singular values of the point."""
        ...


@dataclass(frozen=True)
class State(Generic[Point]):
    """Where the steps are.

    :param point: the last one.
    :param psi: (T,) there.
    :param at: the loss there.
    :param lipschitz: the curvature assumed last.
    :param steps: how many were taken.
    """

    point: Point
    psi: Tensor
    at: LossValue
    lipschitz: float
    steps: int


def accelerate(
    problem: MeanProblem,
    penalty: Penalty,
    space: Space[Point],
    start: State[Point],
    *,
    max_steps: int,
    done: Callable[[State[Point]], bool] | None = None,
    watch: Callable[[float], None] | None = None,
) -> State[Point]:
    """Steps until ``done`` says so, or ``max_steps``.

    :param watch: called with the objective after every step that lowered it.
    """
    bound = problem.lipschitz()
    here, before, psi_before = start, start.point, start.psi
    lipschitz, momentum, beta = min(start.lipschitz, bound), 1.0, 0.0
    objective = start.at.value + penalty.value(space.values(start.point))
    for step in range(1, max_steps + 1):
        psi_ahead = here.psi + beta * (here.psi - psi_before) if beta else here.psi
        theta = problem.loss(psi_ahead).gradient if beta else here.at.gradient
        fresh = space.step(theta, here.point, before, beta, lipschitz)
        psi = space.psi(fresh)
        length = space.distance(fresh, here.point, before, beta)
        energy = problem.loss.quadratic_bound(psi - psi_ahead)
        curvature = energy / length if length > 0 else 0.0
        if curvature > lipschitz and lipschitz < bound:  # the step was too long for the curvature met on the way
            lipschitz = min(bound, max(1.2 * curvature, 1.3 * lipschitz))
            continue
        at = problem.loss(psi)
        reached = at.value + penalty.value(space.values(fresh))
        if reached > objective and beta:  # momentum overshoots: restart from here
            momentum, beta = 1.0, 0.0
            continue
        easier = max(0.9 * lipschitz, min(1.5 * curvature, lipschitz))
        following = (1 + (1 + 4 * momentum**2 * easier / lipschitz) ** 0.5) / 2
        beta, momentum, lipschitz = (momentum - 1) / following, following, easier
        before, psi_before, objective = here.point, here.psi, reached
        here = State(fresh, psi, at, lipschitz, step)
        if watch:
            watch(objective)
        if done and done(here):
            break
    return here


# The whole space ---------------------------------------------------------------------------------


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
    start = State(now.mean, now.psi, now.at, now.lipschitz, 0)
    end = accelerate(problem, penalty, space, start, max_steps=steps, watch=watch)
    return Iterate(end.point, end.psi, end.at, space.spare, end.lipschitz)


class LowRankSpace(Space[LowRank]):
    r"""Matrices of low rank, a step on their leading singular subspace only.

    A step needs the singular values of :math:`Z = Y - \nabla f(Y) / L` above the threshold. One pass of block
    subspace iteration, started from the previous step's singular vectors and a few spare directions,
    costs one product with each kernel.

    :param spare: (N, p) right images of directions next in line.
    """

    def __init__(self, problem: MeanProblem, penalty: Penalty, spare: Tensor) -> None:
        self.problem, self.penalty, self.spare = problem, penalty, spare

    @override
    def step(self, theta: Tensor, now: LowRank, before: LowRank, beta: float, lipschitz: float) -> LowRank:
        parts = [(1 + beta, now)] + ([(-beta, before)] if beta else [])
        images = torch.cat([now.right_image, self.spare], dim=1)
        operator = StepOperator(self.problem, theta, -1 / lipschitz, parts)
        triplets = subspace_pass(self.problem, operator, images, lead=now.rank)
        values = self.penalty.shrink(triplets.values, 1 / lipschitz)
        rank = int((values > 0).sum())
        count = max(MIN_SPARES, rank // 4)
        self.spare = triplets.right_image[:, rank : rank + count]
        missing = count - self.spare.shape[1]
        if missing:
            self.spare = torch.cat([self.spare, random_images(self.problem, missing, seed=rank + count)], dim=1)
        return triplets.first(rank, values)

    @override
    def distance(self, fresh: LowRank, now: LowRank, before: LowRank, beta: float) -> float:
        square = _square(fresh) + (1 + beta) ** 2 * _square(now) - 2 * (1 + beta) * inner(fresh, now)
        if beta:
            square += beta**2 * _square(before) + 2 * beta * inner(fresh, before)
            square -= 2 * beta * (1 + beta) * inner(now, before)
        return square

    @override
    def psi(self, point: LowRank) -> Tensor:
        return point.psi(self.problem)

    @override
    def values(self, point: LowRank) -> Tensor:
        return point.values


def _square(mean: LowRank) -> float:
    """||B||_F^2"""
    return float(mean.values.double().square().sum())


# Fixed subspaces ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Core:
    """S with its singular values; there are more vectors than its rank, those next in line first.

    :param matrix: S (k, l).
    :param left: (k, q).
    :param right: (l, q).
    :param values: (q,) descending, zero beyond the rank.
    """

    matrix: Tensor
    left: Tensor
    right: Tensor
    values: Tensor


class CoreSpace(Space[Core]):
    """Matrices U S V^T.

    :param left_image: K_M U (M, k).
    :param right_image: K_N V (N, l).
    """

    def __init__(self, problem: MeanProblem, penalty: Penalty, left_image: Tensor, right_image: Tensor) -> None:
        self.problem, self.penalty, self.left_image, self.right_image = problem, penalty, left_image, right_image

    def gradient(self, theta: Tensor) -> Tensor:
        """(k, l): of the loss in S."""
        return self.left_image.mT @ times(self.problem.pattern.matrix(theta), self.right_image)

    def shrunk(self, matrix: Tensor, step: float) -> Core:
        """The proximal point of a matrix (k, l)."""
        left, values, right_t = torch.linalg.svd(matrix, full_matrices=False)
        values = self.penalty.shrink(values, step)
        rank = int((values > 0).sum())
        return Core((left[:, :rank] * values[:rank]) @ right_t[:rank], left, right_t.mT, values)

    @override
    def step(self, theta: Tensor, now: Core, before: Core, beta: float, lipschitz: float) -> Core:
        ahead = now.matrix + beta * (now.matrix - before.matrix) if beta else now.matrix
        return self.shrunk(ahead - self.gradient(theta) / lipschitz, 1 / lipschitz)

    @override
    def distance(self, fresh: Core, now: Core, before: Core, beta: float) -> float:
        ahead = now.matrix + beta * (now.matrix - before.matrix)
        return float((fresh.matrix - ahead).double().square().sum())

    @override
    def psi(self, point: Core) -> Tensor:
        return self.problem.pattern.sample(self.left_image @ point.matrix, self.right_image)

    @override
    def values(self, point: Core) -> Tensor:
        return point.values

    def is_optimal(self, here: State[Core], tolerance: float) -> bool:
        """Whether the duality gap among matrices U S V^T is closed; computed every few steps."""
        if here.steps % CHECK_EVERY:
            return False
        primal = here.at.value + self.penalty.value(here.point.values)
        dual = dual_bound(here.at, torch.linalg.svdvals(self.gradient(here.at.gradient)), self.penalty)
        return primal - dual <= tolerance * abs(primal)


def core_step(
    problem: MeanProblem,
    penalty: Penalty,
    now: Iterate,
    triplets: LowRank,
    *,
    tolerance: float,
    max_steps: int,
    spares: int,
) -> Iterate:
    """The best B within the span of the iterate's and the gradient's singular vectors.

    :param triplets: leading singular triplets of the gradient.
    :param tolerance: on the relative duality gap within the subspaces.
    :param spares: how many directions next in line to keep.
    """
    mean, weights = now.mean, triplets.values
    left, left_image = _joint_basis(mean.left, mean.left_image, triplets.left, triplets.left_image, weights, spares)
    right, right_image = _joint_basis(
        mean.right, mean.right_image, triplets.right, triplets.right_image, weights, spares
    )
    space = CoreSpace(problem, penalty, left_image, right_image)
    first = space.shrunk((left_image.mT @ (mean.left * mean.values)) @ (right_image.mT @ mean.right).mT, 0.0)
    psi = space.psi(first)
    start = State(first, psi, problem.loss(psi), now.lipschitz, 0)
    end = accelerate(
        problem, penalty, space, start, max_steps=max_steps, done=lambda here: space.is_optimal(here, tolerance)
    )
    core = end.point
    rank = int((core.values > 0).sum())
    spare = right_image @ core.right[:, rank : rank + spares]
    dual_left, dual_right = left @ core.left[:, :rank], right @ core.right[:, :rank]
    # images anew: those of the basis hold rounding errors that would grow from round to round
    fresh = LowRank(
        dual_left, dual_right, core.values[:rank], problem.rows_times(dual_left), problem.cols_times(dual_right)
    )
    return Iterate.of(problem, fresh, spare, end.lipschitz)


def _joint_basis(
    old: Tensor, old_image: Tensor, new: Tensor, new_image: Tensor, weights: Tensor, extra: int
) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of ``old`` and of what ``new`` has most of outside it, and its image.

    :param weights: (q,) of the columns of ``new``.
    :param extra: how many directions to add.
    """
    rank = old.shape[1]
    basis, basis_image = orthonormal(
        torch.cat([old, new * weights], 1), torch.cat([old_image, new_image * weights], 1), rank
    )
    outside, outside_image = basis[:, rank:], basis_image[:, rank:]
    if outside.shape[1] <= extra:
        return basis, basis_image
    share = (outside_image.mT @ new) * weights  # (p, q)
    turn = torch.linalg.eigh((share @ share.mT).double())[1][:, -extra:].to(old.dtype)
    return (
        torch.cat([basis[:, :rank], outside @ turn], dim=1),
        torch.cat([basis_image[:, :rank], outside_image @ turn], dim=1),
    )
