r"""The solver for large problems: low rank, lazy kernels, and a certificate at the end of every round.

Its steps are accelerated proximal gradient with restarts (:func:`accelerate`). The step length follows the curvature
met on the way, far below the bound for every matrix where few entries are observed. A step that met more than it
assumed is taken again, shorter, so the descent is safe. There are two spaces:

- **Whole space** (:func:`proximal_steps`): matrices of low rank, each step on their leading singular subspace.
- **Subspaces** (:func:`core_step`): :math:`B = U S V^T` with S (k, l), the bases held fixed. A step needs no kernel.
  Once S is optimal, the gradient's singular values on the subspaces equal the threshold, and what is left of the excess
  is of second order in the distance of the subspaces from the best ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..checks import check_callable, check_instance, check_whole_number
from ..likelihoods.losses import LossValue
from ..linalg.pairs import CompleteRows
from ..progress import Progress, report_step, shows_progress
from .conjugate import conjugate_steps, moved_to
from .filtered_bound import bound_largest
from .low_rank import (
    Iterate,
    LowRank,
    MeanSolution,
    StepOperator,
    inner,
    joint_basis,
    krylov_images,
    random_images,
    subspace_pass,
)
from .problem import (
    Certificate,
    MeanProblem,
    Penalty,
    SpectralElasticNet,
    check_requirements,
    check_solve,
    dual_bound,
    times,
)
from .spectrum_bound import EXACT_LIMIT, bound_spectrum, has_exact_values, needs_largest_alone, spectrum_edge

# Settings of the rounds; the solution is the same up to the tolerance.
SPARES = 64  # directions carried along beyond the rank, from which new ones grow; a quarter of the rank if that is more
KRYLOV_STEPS = 4  # of the Krylov space in which they are searched
FAILURE = 1e-8  # probability that one confirmation of a certificate is wrong
CONFIRM_SHARE = 0.6  # of the tolerance: a gap that seems smaller is confirmed, as bounds are dear where little is left
MAX_STALLED = 3  # confirmations that their bounds, not the iterate, keep from the tolerance; then it ends
WHOLE_STEPS = 10  # steps in the whole space between two problems in subspaces
CORE_STEPS = 15  # limit on the steps of a problem in subspaces
CORE_SHARE = 0.03  # of the gap before it, at which such a problem counts as solved
ROUGH_TOLERANCE = 1e-2  # relative duality gap of the rough solution in single precision that comes first
MIN_SPARES = 8  # directions carried along beyond the rank in the whole space; a quarter of the rank if that is more
CHECK_EVERY = 4  # steps between two computations of the duality gap within the subspaces

REQUIRES = {"loss": ("__call__", "curvature", "quadratic_bound"), "penalty": ("shrink", "value", "conjugate", "ridge")}


@shows_progress("mean")
def solve_proximal(
    problem: MeanProblem,
    penalty: Penalty,
    *,
    tolerance: float,
    max_iterations: int = 500,
    start: MeanSolution | None = None,
    watch: Callable[[float], None] | None = None,
    exact_limit: int = EXACT_LIMIT,
    single_from: int = 1_000_000,
    progress: Progress = "auto",
) -> MeanSolution:
    r"""Rounds of three parts until the duality gap is closed.

    1. Within the span of the current and the gradient's leading singular vectors the problem is small, and
       solved by accelerated proximal gradient on its core; the rank follows by itself.
    2. A pass of block subspace iteration for the leading singular values of the gradient: the certificate.
    3. A few steps in the whole space: conjugate gradients on the factors; or accelerated proximal gradient, for a
       trace-norm ball and where conjugate gradients do not lower the objective. On whole lists there are no others.

    The objective is :math:`f(G_M B G_N^T) + h(B)`: equation (5) with the elastic net as h, (6) with the ball.

    :param problem: loss f and kernels of an M x N matrix.
    :param penalty: h, a function of the singular values.
    :param tolerance: on the relative duality gap.
    :param max_iterations: bound on the steps and passes in the whole space.
    :param start: a solution of a neighbouring problem, for a warm start.
    :param watch: called with the objective after every step.
    :param exact_limit: longest short side with exact singular values; beyond it certificates state a probability.
    :param single_from: cells from which a rough solution in single precision comes first.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`; ``watch`` gets numbers, this shows them.
    """
    tolerance, max_iterations = check_solve(problem, tolerance, max_iterations)
    check_requirements("solve_proximal", REQUIRES, problem.loss, penalty)
    if start is not None:
        check_instance(start, "start", MeanSolution, "mvgp.mean.MeanSolution")
    if watch is not None:
        check_callable(watch, "watch")
    now, iteration = _start(problem, penalty, start), 0
    is_large = problem.shape[0] * problem.shape[1] >= check_whole_number(single_from, "single_from", 0)
    if problem.dtype == torch.float64 and is_large and tolerance < ROUGH_TOLERANCE:
        rough = _Rounds(problem.single, penalty, ROUGH_TOLERANCE, max_iterations, exact_limit, watch, confirm=False)
        now, _, iteration = rough.run(moved_to(now, problem.single), 0)
        now = moved_to(now, problem)
    now, certificate, _ = _Rounds(problem, penalty, tolerance, max_iterations, exact_limit, watch).run(now, iteration)
    return MeanSolution(now.mean, now.psi, now.at, certificate, now.spare, now.lipschitz)


class _Rounds:
    """Rounds from an iterate until a certificate is within the tolerance; that one, and the last one, are confirmed.

    Singular values from a small Krylov space are too small, which flatters the gap. So a gap that seems closed is
    computed again from values that are not too small. Each confirmation may fail with a small probability; the
    certificate states the sum over all that were tried.

    :param confirm: False for a rough phase whose certificates may flatter.
    """

    def __init__(
        self,
        problem: MeanProblem,
        penalty: Penalty,
        tolerance: float,
        max_iterations: int,
        exact_limit: int,
        watch: Callable[[float], None] | None,
        confirm: bool = True,
    ) -> None:
        self.problem, self.penalty, self.tolerance = problem, penalty, tolerance
        self.max_iterations, self.exact_limit, self.watch, self.confirm = max_iterations, exact_limit, watch, confirm
        self.failure = 0.0  # of all confirmations so far
        self.stalled = 0  # confirmations that missed the tolerance though the iterate seems good enough
        self.last_gap = float("inf")  # as it seemed last
        self.filters = not has_exact_values(problem, exact_limit) and needs_largest_alone(penalty)

    def run(self, now: Iterate, iteration: int) -> tuple[Iterate, Certificate, int]:
        """The last iterate, its certificate, and the iterations used in all, ``iteration`` of them before."""
        problem, penalty, watch = self.problem, self.penalty, self.watch
        triplets, certificate = self.certify(now, iteration)
        while self._goes_on(certificate, iteration):
            if isinstance(problem.pattern, CompleteRows):  # the loss costs more than the kernels: a core saves nothing
                steps = min(WHOLE_STEPS, self.max_iterations - iteration)
                now = proximal_steps(problem, penalty, now, steps=steps, watch=watch)
                iteration += steps
                triplets, certificate = self.certify(now, iteration)
                if certificate.failure_probability is not None:  # what the confirmation met is next in line to enter
                    now = replace(now, spare=triplets.right_image[:, now.mean.rank :])
                continue
            goal = max(0.1 * self.tolerance, CORE_SHARE * certificate.relative_gap)
            spares = _spares(problem, now)
            now = core_step(problem, penalty, now, triplets, tolerance=goal, max_steps=CORE_STEPS, spares=spares)
            if watch:
                watch(now.objective(penalty))
            iteration += 1
            triplets, certificate = self.certify(now, iteration)
            if self._goes_on(certificate, iteration):
                steps = min(WHOLE_STEPS, self.max_iterations - iteration - 1)
                now, iteration = self._whole_steps(now, triplets, steps), iteration + steps
                triplets = _triplets(problem, now, iteration)
        if self.confirm and certificate.failure_probability is None:  # out of iterations, and yet it is to be true
            certificate = self._confirmed(now, _triplets(problem, now, iteration), iteration)[1]
        return now, certificate, iteration

    def _whole_steps(self, now: Iterate, triplets: LowRank, steps: int) -> Iterate:
        """Steps that lower the objective: a direction below the threshold that joins may raise it, again and again."""
        if isinstance(self.penalty, SpectralElasticNet):
            moved = conjugate_steps(self.problem, self.penalty, now, triplets, steps=steps, watch=self.watch)
            if moved.objective(self.penalty) < now.objective(self.penalty):
                return moved
        return proximal_steps(self.problem, self.penalty, now, steps=steps, watch=self.watch)

    def _goes_on(self, certificate: Certificate, iteration: int) -> bool:
        is_proved = certificate.converged and (not self.confirm or certificate.failure_probability is not None)
        return not is_proved and iteration < self.max_iterations and self.stalled < MAX_STALLED

    def certify(self, now: Iterate, iteration: int) -> tuple[LowRank, Certificate]:
        """Leading singular triplets of the gradient, and the duality gap."""
        triplets = _triplets(self.problem, now, iteration)
        first = self._certificate(now, triplets.values, iteration, None)
        report_step("gap", first.relative_gap, self.tolerance)
        enough = self.tolerance
        if self.filters and not (self.last_gap <= enough and first.relative_gap > 0.8 * self.last_gap):
            enough *= CONFIRM_SHARE  # unless it hardly gets smaller
        self.last_gap = first.relative_gap
        if not self.confirm or first.relative_gap > enough:
            return triplets, first
        return self._confirmed(now, triplets, iteration)

    def _confirmed(self, now: Iterate, triplets: LowRank, iteration: int) -> tuple[LowRank, Certificate]:
        """A certificate that is true up to its stated probability."""
        problem, theta, goal = self.problem, now.at.gradient, now.objective(self.penalty) * (1 - self.tolerance)
        edge, bound = spectrum_edge(self.penalty, triplets, now.mean.rank), None

        def dual_of(values: Tensor) -> float:
            return dual_bound(now.at, values, self.penalty)

        if self.filters:
            bound = bound_largest(problem, theta, triplets, dual_of, goal, failure=FAILURE)
        limit = self.exact_limit
        bound = bound or bound_spectrum(
            problem, theta, triplets, edge, dual_of, goal, failure=FAILURE, exact_limit=limit
        )
        self.failure += bound.failure
        triplets = bound.triplets
        certificate = self._certificate(now, bound.values, iteration, self.failure)
        if not certificate.converged:
            self.stalled += not bound.is_sharp
            if bound.images.shape[1]:
                gradient = StepOperator(self.problem, now.at.gradient)
                triplets = subspace_pass(self.problem, gradient, torch.cat([triplets.right_image, bound.images], dim=1))
        return triplets, certificate

    def _certificate(self, now: Iterate, values: Tensor, iteration: int, failure: float | None) -> Certificate:
        primal, dual = now.objective(self.penalty), dual_bound(now.at, values, self.penalty)
        return Certificate(primal, dual, self.tolerance, iteration, now.mean.rank, "proximal", failure)


def _spares(problem: MeanProblem, now: Iterate) -> int:
    """How many directions next in line are kept."""
    return min(max(SPARES, now.mean.rank // 4), *problem.shape)


def _start(problem: MeanProblem, penalty: Penalty, start: MeanSolution | None) -> Iterate:
    if start is not None and penalty.value(start.mean.values) < float("inf"):
        return Iterate(start.mean, start.psi, problem.loss(start.psi), start.spare, start.lipschitz)
    # on matrices of low rank the observed share of the energy, not all of it, bounds the curvature
    ones = torch.ones(len(problem.pattern), dtype=problem.dtype, device=problem.device)
    share = problem.loss.quadratic_bound(ones) / (problem.loss.curvature * problem.shape[0] * problem.shape[1])
    spare = random_images(problem, min(SPARES, *problem.shape), seed=0)
    return Iterate.of(problem, LowRank.zero(problem), spare, max(share, 0.01) * problem.lipschitz())


def _triplets(problem: MeanProblem, now: Iterate, seed: int) -> LowRank:
    """Leading singular triplets of the gradient, from a block Krylov space outside the iterate's own vectors."""
    gradient = StepOperator(problem, now.at.gradient)
    width = max(_spares(problem, now) // KRYLOV_STEPS, 1)
    start = now.spare[:, :width]
    if start.shape[1] < width:
        start = torch.cat([start, random_images(problem, width - start.shape[1], seed=seed + 1)], dim=1)
    outside = krylov_images(problem, gradient, now.mean, start, KRYLOV_STEPS)
    return subspace_pass(problem, gradient, torch.cat([now.mean.right_image, outside], dim=1))


# Accelerated proximal gradient --------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """Where the steps are."""

    point: Any  # a LowRank or a Core
    psi: Tensor  # (T,) there
    at: LossValue  # there
    lipschitz: float  # the curvature assumed last
    steps: int = 0


def accelerate(
    space: LowRankSpace | CoreSpace,
    start: State,
    *,
    max_steps: int,
    done: Callable[[State], bool] | None = None,
    watch: Callable[[float], None] | None = None,
) -> State:
    """Steps until ``done`` says so, or ``max_steps``; ``watch`` gets the objective after every step that lowers it."""
    problem, penalty = space.problem, space.penalty
    bound = problem.lipschitz()
    here, before, psi_before = start, start.point, start.psi
    lipschitz, momentum, beta = min(start.lipschitz, bound), 1.0, 0.0
    objective = start.at.value + penalty.value(start.point.values)
    for step in range(1, max_steps + 1):
        psi_ahead = here.psi + beta * (here.psi - psi_before) if beta else here.psi
        theta = problem.loss(psi_ahead).gradient if beta else here.at.gradient
        fresh: Any = space.step(theta, here.point, before, beta, lipschitz)
        psi = space.psi(fresh)
        length = space.distance(fresh, here.point, before, beta)
        energy = problem.loss.quadratic_bound(psi - psi_ahead)
        curvature = energy / length if length > 0 else 0.0
        if curvature > lipschitz and lipschitz < bound:  # the step was too long for the curvature met on the way
            lipschitz = min(bound, max(1.2 * curvature, 1.3 * lipschitz))
            continue
        at = problem.loss(psi)
        reached = at.value + penalty.value(fresh.values)
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


def proximal_steps(
    problem: MeanProblem, penalty: Penalty, now: Iterate, *, steps: int, watch: Callable[[float], None] | None = None
) -> Iterate:
    """Accelerated proximal gradient in the whole space."""
    space = LowRankSpace(problem, penalty, now.spare)
    end = accelerate(space, State(now.mean, now.psi, now.at, now.lipschitz), max_steps=steps, watch=watch)
    return Iterate(end.point, end.psi, end.at, space.spare, end.lipschitz)


class LowRankSpace:
    r"""Matrices of low rank, a step on their leading singular subspace only.

    A step needs the singular values of :math:`Z = Y - \nabla f(Y) / L` above the threshold. One pass of block subspace
    iteration, from the previous step's singular vectors and a few spare directions, costs one product with each kernel.

    :param spare: (N, p) right images of directions next in line.
    """

    def __init__(self, problem: MeanProblem, penalty: Penalty, spare: Tensor) -> None:
        self.problem, self.penalty, self.spare = problem, penalty, spare

    def step(self, theta: Tensor, now: LowRank, before: LowRank, beta: float, lipschitz: float) -> LowRank:
        """The proximal point from now + beta (now - before), ``theta`` (T,) the loss's gradient there."""
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

    def distance(self, fresh: LowRank, now: LowRank, before: LowRank, beta: float) -> float:
        """||fresh - now - beta (now - before)||_F^2"""
        of_fresh, of_now, of_before = (float(b.values.double().square().sum()) for b in (fresh, now, before))
        square = of_fresh + (1 + beta) ** 2 * of_now - 2 * (1 + beta) * inner(fresh, now)
        if beta:
            square += beta**2 * of_before + 2 * beta * inner(fresh, before)
            square -= 2 * beta * (1 + beta) * inner(now, before)
        return square

    def psi(self, point: LowRank) -> Tensor:
        """(T,)"""
        return point.psi(self.problem)


@dataclass(frozen=True)
class Core:
    """S with its singular values; there are more vectors than its rank, those next in line first."""

    matrix: Tensor  # S (k, l)
    left: Tensor  # (k, q)
    right: Tensor  # (l, q)
    values: Tensor  # (q,) descending, zero beyond the rank


class CoreSpace:
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

    def step(self, theta: Tensor, now: Core, before: Core, beta: float, lipschitz: float) -> Core:
        """The proximal point from now + beta (now - before)."""
        ahead = now.matrix + beta * (now.matrix - before.matrix) if beta else now.matrix
        return self.shrunk(ahead - self.gradient(theta) / lipschitz, 1 / lipschitz)

    def distance(self, fresh: Core, now: Core, before: Core, beta: float) -> float:
        """||fresh - now - beta (now - before)||_F^2"""
        ahead = now.matrix + beta * (now.matrix - before.matrix)
        return float((fresh.matrix - ahead).double().square().sum())

    def psi(self, point: Core) -> Tensor:
        """(T,)"""
        return self.problem.pattern.sample(self.left_image @ point.matrix, self.right_image)

    def is_optimal(self, here: State, tolerance: float) -> bool:
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
    left, left_image = joint_basis(mean.left, mean.left_image, triplets.left, triplets.left_image, weights, spares)
    new = triplets.right, triplets.right_image
    right, right_image = joint_basis(mean.right, mean.right_image, *new, weights, spares)
    space = CoreSpace(problem, penalty, left_image, right_image)
    first = space.shrunk((left_image.mT @ (mean.left * mean.values)) @ (right_image.mT @ mean.right).mT, 0.0)
    psi = space.psi(first)
    start = State(first, psi, problem.loss(psi), now.lipschitz)
    end = accelerate(space, start, max_steps=max_steps, done=lambda here: space.is_optimal(here, tolerance))
    core = end.point
    rank = int((core.values > 0).sum())
    spare = right_image @ core.right[:, rank : rank + spares]
    dual_left, dual_right = left @ core.left[:, :rank], right @ core.right[:, :rank]
    # images anew: those of the basis hold rounding errors that would grow from round to round
    images = problem.rows_times(dual_left), problem.cols_times(dual_right)
    return Iterate.of(problem, LowRank(dual_left, dual_right, core.values[:rank], *images), spare, end.lipschitz)
