"""The solver for large problems: accelerated proximal gradient on a low-rank iterate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .certificate import Certificate, dual_bound
from .losses import LossValue
from .low_rank import LowRank, inner
from .penalties import Penalty
from .problem import MeanProblem
from .spectrum import StepDual, Triplets, random_images, subspace_pass

SPARE = 8  # directions carried along beyond the rank, from which new ones grow
CONFIRM = 5  # further passes that have to confirm a certificate


@dataclass(frozen=True)
class MeanSolution:
    """A fitted mean with its evidence.

    :param mean: B.
    :param psi: (T,) at the observed pairs.
    :param loss: the loss there.
    :param certificate: the evidence.
    :param spare: (N, p) right images of directions that nearly entered; they speed up a warm start.
    :param lipschitz: curvature met on the way, likewise.
    """

    mean: LowRank
    psi: Tensor
    loss: LossValue
    certificate: Certificate
    spare: Tensor
    lipschitz: float


def solve_proximal(
    problem: MeanProblem,
    penalty: Penalty,
    *,
    tolerance: float,
    max_iterations: int = 500,
    start: MeanSolution | None = None,
    watch: Callable[[float], None] | None = None,
) -> MeanSolution:
    r"""Accelerated proximal gradient with restarts, every step on the leading singular subspace only.

    A step needs the singular values of :math:`Z = Y - \nabla f(Y) / L` above the threshold. One pass of block
    subspace iteration, started from the previous step's singular vectors and a few spare directions,
    costs one product with each kernel; the rank follows by itself.

    :param tolerance: on the relative duality gap.
    :param start: a solution of a neighbouring problem, for a warm start.
    :param watch: called with the objective after every step.
    """
    most = problem.lipschitz()
    # on matrices of low rank the observed share of the energy, not all of it, bounds the curvature
    share = len(problem.pattern) / (problem.shape[0] * problem.shape[1])
    lipschitz = start.lipschitz if start else max(share, 0.01) * most
    now = start.mean if start else LowRank.zero(problem)
    psi = start.psi if start else now.psi(problem)
    spare = start.spare if start else random_images(problem, SPARE, seed=0)
    at = problem.loss(psi)
    if not penalty.value(now.values) < float("inf"):  # a warm start from outside a ball
        now = LowRank.zero(problem)
        psi = now.psi(problem)
        at = problem.loss(psi)
    objective = at.value + penalty.value(now.values)
    before, psi_before, momentum, beta, now_before = now, psi, 1.0, 0.0, 0.0
    certificate = _certify(problem, penalty, now, at, spare, tolerance, 0)
    iteration, stalled, next_check = 0, 0, 10
    while iteration < max_iterations and not certificate.converged:
        iteration += 1
        psi_ahead = psi + beta * (psi - psi_before) if beta else psi
        theta = problem.loss(psi_ahead).gradient
        parts = [(1 + beta, now)] + ([(-beta, before)] if beta else [])
        dual = StepDual(problem, theta, -1 / lipschitz, parts)
        found = subspace_pass(problem, dual, torch.cat([now.right_image, spare], dim=1), lead=now.rank)
        fresh, spare = _shrunk(problem, found, penalty, 1 / lipschitz)
        psi_fresh = fresh.psi(problem)
        fresh_now = inner(fresh, now)
        length = (
            _square(fresh) + (1 + beta) ** 2 * _square(now) + beta**2 * _square(before)
            - 2 * (1 + beta) * fresh_now - 2 * beta * (1 + beta) * now_before
            + (2 * beta * inner(fresh, before) if beta else 0.0)
        )  # fmt: skip
        energy = float((psi_fresh - psi_ahead).double().square().sum()) * problem.loss.curvature
        curvature = energy / length if length > 0 else 0.0
        if curvature > lipschitz and lipschitz < most:  # the step was too long for the curvature met on the way
            lipschitz = min(most, max(1.2 * curvature, 1.3 * lipschitz))
            continue
        at_fresh = problem.loss(psi_fresh)
        reached = at_fresh.value + penalty.value(fresh.values)
        if reached > objective and beta:  # momentum overshoots: begin anew from here
            momentum, beta = 1.0, 0.0
            continue
        change = abs(objective - reached) / max(abs(objective), 1e-300)
        before, psi_before, now, psi, at, objective = now, psi, fresh, psi_fresh, at_fresh, reached
        now_before = fresh_now
        if watch:
            watch(objective)
        easier = max(0.9 * lipschitz, min(1.5 * curvature, lipschitz))
        following = (1 + (1 + 4 * momentum**2 * easier / lipschitz) ** 0.5) / 2
        beta, momentum, lipschitz = (momentum - 1) / following, following, easier
        stalled = stalled + 1 if change < 0.05 * tolerance else 0
        if iteration >= next_check or stalled >= 2:
            certificate = _certify(problem, penalty, now, at, spare, tolerance, iteration)
            next_check, stalled = iteration + max(10, iteration // 4), 0
    if certificate.iterations != iteration:
        certificate = _certify(problem, penalty, now, at, spare, tolerance, iteration)
    return MeanSolution(now, psi, at, certificate, spare, lipschitz)


def _square(mean: LowRank) -> float:
    """||B||_F^2"""
    return float(mean.values.double().square().sum())


def _shrunk(problem: MeanProblem, found: Triplets, penalty: Penalty, step: float) -> tuple[LowRank, Tensor]:
    """The proximal point, and the right images of the directions next in line."""
    values = penalty.shrink(found.values, step)
    rank = int((values > 0).sum())
    mean = LowRank(
        found.left[:, :rank],
        found.right[:, :rank],
        values[:rank],
        found.left_image[:, :rank],
        found.right_image[:, :rank],
    )
    wanted = max(SPARE, rank // 4)
    left_over = found.right_image[:, rank : rank + wanted]
    if left_over.shape[1] < wanted:
        more = random_images(problem, wanted - left_over.shape[1], seed=rank + wanted)
        left_over = torch.cat([left_over, more], dim=1)
    return mean, left_over


def _certify(
    problem: MeanProblem,
    penalty: Penalty,
    mean: LowRank,
    at: LossValue,
    spare: Tensor,
    tolerance: float,
    iterations: int,
) -> Certificate:
    """The duality gap at a mean.

    Singular values from few passes are too small, which flatters the gap: one that seems closed has to be
    confirmed by more passes.
    """
    gradient = StepDual(problem, at.gradient)
    found = subspace_pass(problem, gradient, torch.cat([mean.right_image, spare], dim=1))
    primal = at.value + penalty.value(mean.values)
    for left in range(CONFIRM, -1, -1):
        dual = dual_bound(at, found.values, penalty)
        certificate = Certificate(primal, dual, tolerance, iterations, mean.rank, "proximal")
        if left == 0 or not certificate.converged:
            break
        found = subspace_pass(problem, gradient, found.right_image)
    return certificate
