"""The slow judge for small problems: accelerated proximal gradient on the dense matrix, with full SVDs.

Accelerated proximal gradient with restarts, in whatever space the iterates live.

The step length follows the curvature met on the way: with few entries observed it is far below the bound that
holds for every matrix. A step that met more than it assumed is taken again, shorter, so the descent is safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from ..likelihoods.losses import LossValue
from ..linalg.roots import root
from .certificate import Certificate, Iterate, MeanSolution, dual_bound
from .penalties import Penalty
from .problem import LowRank, MeanProblem, check_penalty, check_solve, from_images, inner
from .spectrum import StepDual, random_images, subspace_pass

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
class Reached(Generic[Point]):
    """Where the steps led.

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
    start: Reached[Point],
    *,
    max_steps: int,
    done: Callable[[Reached[Point]], bool] | None = None,
    watch: Callable[[float], None] | None = None,
) -> Reached[Point]:
    """Steps until ``done`` says so, or ``max_steps``.

    :param watch: called with the objective after every step that lowered it.
    """
    most = problem.lipschitz()
    here, before, psi_before = start, start.point, start.psi
    lipschitz, momentum, beta = min(start.lipschitz, most), 1.0, 0.0
    objective = start.at.value + penalty.value(space.values(start.point))
    for step in range(1, max_steps + 1):
        psi_ahead = here.psi + beta * (here.psi - psi_before) if beta else here.psi
        theta = problem.loss(psi_ahead).gradient if beta else here.at.gradient
        fresh = space.step(theta, here.point, before, beta, lipschitz)
        psi = space.psi(fresh)
        length = space.distance(fresh, here.point, before, beta)
        energy = problem.loss.quadratic_bound(psi - psi_ahead)
        curvature = energy / length if length > 0 else 0.0
        if curvature > lipschitz and lipschitz < most:  # the step was too long for the curvature met on the way
            lipschitz = min(most, max(1.2 * curvature, 1.3 * lipschitz))
            continue
        at = problem.loss(psi)
        reached = at.value + penalty.value(space.values(fresh))
        if reached > objective and beta:  # momentum overshoots: begin anew from here
            momentum, beta = 1.0, 0.0
            continue
        easier = max(0.9 * lipschitz, min(1.5 * curvature, lipschitz))
        following = (1 + (1 + 4 * momentum**2 * easier / lipschitz) ** 0.5) / 2
        beta, momentum, lipschitz = (momentum - 1) / following, following, easier
        before, psi_before, objective = here.point, here.psi, reached
        here = Reached(fresh, psi, at, lipschitz, step)
        if watch:
            watch(objective)
        if done and done(here):
            break
    return here


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
        """See :class:`~mvgp.mean.accelerated.Space`."""
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
        """See :class:`~mvgp.mean.accelerated.Space`."""
        found = _square(fresh) + (1 + beta) ** 2 * _square(now) - 2 * (1 + beta) * inner(fresh, now)
        if beta:
            found += beta**2 * _square(before) + 2 * beta * inner(fresh, before)
            found -= 2 * beta * (1 + beta) * inner(now, before)
        return found

    def psi(self, point: LowRank) -> Tensor:
        """See :class:`~mvgp.mean.accelerated.Space`."""
        return point.psi(self.problem)

    def values(self, point: LowRank) -> Tensor:
        """See :class:`~mvgp.mean.accelerated.Space`."""
        return point.values


def _square(mean: LowRank) -> float:
    """||B||_F^2"""
    return float(mean.values.double().square().sum())


def solve_dense(
    problem: MeanProblem, penalty: Penalty, *, tolerance: float, max_iterations: int = 20_000
) -> MeanSolution:
    r"""Exact singular values in every step; nothing is truncated, nothing is warm-started. For small problems.

    .. math:: \min_B f(G_M B G_N^T) + h(B)

    :param problem: loss f and kernels of an M x N matrix.
    :param penalty: h, a function of the singular values.
    :param tolerance: on the relative duality gap.
    :param max_iterations: proximal steps.
    """
    tolerance, max_iterations = check_solve(problem, tolerance, max_iterations)
    check_penalty(penalty)
    row_root, col_root = root(problem.row_op).to_dense(), root(problem.col_op).to_dense()
    pattern = problem.pattern
    step = 1 / max(problem.lipschitz(), 1e-300)

    def psi_of(b: Tensor) -> Tensor:
        return (row_root @ b @ col_root.mT)[pattern.rows, pattern.cols]

    def gradient_of(theta: Tensor) -> Tensor:
        return row_root.mT @ pattern.matrix(theta).to_dense() @ col_root

    now = torch.zeros(row_root.shape[1], col_root.shape[1], dtype=problem.dtype, device=problem.device)
    ahead, momentum = now, 1.0
    values = torch.zeros(0, dtype=problem.dtype, device=problem.device)
    at = problem.loss(psi_of(now))
    objective = at.value + penalty.value(values)
    certificate = _certify(penalty, at, gradient_of(at.gradient), values, tolerance, 0)
    iteration = 0
    while iteration < max_iterations and not certificate.converged:
        iteration += 1
        u, s, vt = torch.linalg.svd(
            ahead - step * gradient_of(problem.loss(psi_of(ahead)).gradient), full_matrices=False
        )
        shrunk = penalty.shrink(s, step)
        fresh = (u * shrunk) @ vt
        at_fresh = problem.loss(psi_of(fresh))
        reached = at_fresh.value + penalty.value(shrunk)
        if reached > objective and momentum > 1:
            ahead, momentum = now, 1.0
            continue
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = fresh + (momentum - 1) / following * (fresh - now)
        now, values, at, objective, momentum = fresh, shrunk, at_fresh, reached, following
        if iteration % 10 == 0:
            certificate = _certify(penalty, at, gradient_of(at.gradient), values, tolerance, iteration)
    certificate = _certify(penalty, at, gradient_of(at.gradient), values, tolerance, iteration)
    mean = _to_low_rank(problem, row_root, col_root, now)
    spare = torch.zeros(problem.shape[1], 0, dtype=problem.dtype, device=problem.device)
    return MeanSolution(mean, mean.psi(problem), at, certificate, spare, 1 / step)


def _certify(
    penalty: Penalty, at: LossValue, gradient: Tensor, values: Tensor, tolerance: float, iteration: int
) -> Certificate:
    primal = at.value + penalty.value(values)
    dual = dual_bound(at, torch.linalg.svdvals(gradient), penalty)
    return Certificate(primal, dual, tolerance, iteration, int((values > 0).sum()), "dense")


def _to_low_rank(problem: MeanProblem, row_root: Tensor, col_root: Tensor, b: Tensor) -> LowRank:
    u, s, vt = torch.linalg.svd(b, full_matrices=False)
    kept = s > 1e-12 * s[:1].clamp_min(1e-300)
    return from_images(problem, row_root @ u[:, kept], col_root @ vt[kept].mT, s[kept])
