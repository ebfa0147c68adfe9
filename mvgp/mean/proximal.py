"""The solver for large problems: low rank, lazy kernels, and a certificate at the end of every round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ..checks import check_callable, check_instance, check_whole_number
from ..linalg.pairs import CompleteRows
from .accelerated import core_step, proximal_steps
from .certificate import Certificate, Iterate, MeanSolution, dual_bound
from .conjugate import Factors, balanced, conjugate_steps
from .penalties import Penalty, SpectralElasticNet
from .problem import LowRank, MeanProblem, Requirements, check_requirements, check_solve
from .spectrum import StepOperator, krylov_images, random_images, subspace_pass
from .spectrum_bound import EXACT_LIMIT, bound_spectrum, spectrum_edge

# Settings of the rounds; the solution is the same up to the tolerance.
SPARES = 64  # directions carried along beyond the rank, from which new ones grow; a quarter of the rank if that is more
KRYLOV_STEPS = 4  # of the Krylov space in which they are searched
FAILURE = 1e-8  # probability that one confirmation of a certificate is wrong
MAX_STALLED = 3  # confirmations that the Lanczos bound, not the iterate, keeps from the tolerance; then it ends
WHOLE_STEPS = 10  # steps in the whole space between two problems in subspaces
CORE_STEPS = 15  # limit on the steps of a problem in subspaces
CORE_SHARE = 0.03  # of the gap before it, at which such a problem counts as solved
ROUGH_TOLERANCE = 1e-2  # relative duality gap of the rough solution in single precision that comes first

REQUIRES = Requirements(
    loss=("__call__", "curvature", "quadratic_bound"), penalty=("shrink", "value", "conjugate", "ridge")
)


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
) -> MeanSolution:
    r"""Rounds of three parts until the duality gap is closed.

    1. Within the span of the current and the gradient's leading singular vectors the problem is small, and
       solved by accelerated proximal gradient on its core; the rank follows by itself.
    2. A pass of block subspace iteration for the leading singular values of the gradient: the certificate.
    3. A few steps in the whole space: conjugate gradients on the factors, or, for a trace-norm ball,
       accelerated proximal gradient.

    The objective is :math:`f(G_M B G_N^T) + h(B)`: equation (5) with the elastic net as h, (6) with the ball.

    :param problem: loss f and kernels of an M x N matrix.
    :param penalty: h, a function of the singular values.
    :param tolerance: on the relative duality gap.
    :param max_iterations: bound on the steps and passes in the whole space.
    :param start: a solution of a neighbouring problem, for a warm start.
    :param watch: called with the objective after every step.
    :param exact_limit: longest short side up to which certificates use exact singular values; beyond it they hold with
        the probability that they state.
    :param single_from: cells from which a rough solution in single precision comes first.
    """
    tolerance, max_iterations = check_solve(problem, tolerance, max_iterations)
    check_requirements("solve_proximal", REQUIRES, problem.loss, penalty)
    if start is not None:
        check_instance(start, "start", MeanSolution, "mvgp.mean.MeanSolution")
    if watch is not None:
        check_callable(watch, "watch")
    now = _start(problem, penalty, start)
    iteration = 0
    is_large = problem.shape[0] * problem.shape[1] >= check_whole_number(single_from, "single_from", 0)
    if problem.dtype == torch.float64 and is_large and tolerance < ROUGH_TOLERANCE:
        single = problem.single
        certify = _Certifier(single, penalty, ROUGH_TOLERANCE, exact_limit, confirm=False)
        rough, _, iteration = _rounds(single, penalty, _moved(now, single), certify, max_iterations, 0, watch)
        now = _moved(rough, problem)
    certify = _Certifier(problem, penalty, tolerance, exact_limit)
    now, certificate, _ = _rounds(problem, penalty, now, certify, max_iterations, iteration, watch)
    return MeanSolution(now.mean, now.psi, now.at, certificate, now.spare, now.lipschitz)


def _rounds(
    problem: MeanProblem,
    penalty: Penalty,
    now: Iterate,
    certify: _Certifier,
    max_iterations: int,
    iteration: int,
    watch: Callable[[float], None] | None,
) -> tuple[Iterate, Certificate, int]:
    """Rounds from an iterate; the last one's certificate, and the iterations used in all."""
    triplets, certificate = certify(now, iteration)
    whole = isinstance(problem.pattern, CompleteRows)
    while not certificate.converged and iteration < max_iterations and certify.stalled < MAX_STALLED:
        if whole:  # the loss costs more than the kernels, so that a core has nothing to save
            steps = min(WHOLE_STEPS, max_iterations - iteration)
            now = proximal_steps(problem, penalty, now, steps=steps, watch=watch)
            iteration += steps
            triplets, certificate = certify(now, iteration)
            if certificate.failure_probability is not None:  # what the confirmation met is next in line to enter
                now = replace(now, spare=triplets.right_image[:, now.mean.rank :])
            continue
        goal = max(0.1 * certify.tolerance, CORE_SHARE * certificate.relative_gap)
        now = core_step(
            problem, penalty, now, triplets, tolerance=goal, max_steps=CORE_STEPS, spares=_spares(problem, now)
        )
        if watch:
            watch(now.objective(penalty))
        iteration += 1
        triplets, certificate = certify(now, iteration)
        if certificate.converged or iteration >= max_iterations or certify.stalled >= MAX_STALLED:
            break
        steps = min(WHOLE_STEPS, max_iterations - iteration - 1)
        if isinstance(penalty, SpectralElasticNet):
            now = conjugate_steps(problem, penalty, now, triplets, steps=steps, watch=watch)
        else:
            now = proximal_steps(problem, penalty, now, steps=steps, watch=watch)
        iteration += steps
        triplets = _triplets(problem, now, iteration)
    if certify.confirm and certificate.failure_probability is None:  # out of iterations, and yet it is to be true
        triplets, certificate = certify.confirmed(now, _triplets(problem, now, iteration), iteration)
    return now, certificate, iteration


def _spares(problem: MeanProblem, now: Iterate) -> int:
    return min(max(SPARES, now.mean.rank // 4), *problem.shape)


def _start(problem: MeanProblem, penalty: Penalty, start: MeanSolution | None) -> Iterate:
    if start is not None and penalty.value(start.mean.values) < float("inf"):
        return Iterate(start.mean, start.psi, problem.loss(start.psi), start.spare, start.lipschitz)
    # on matrices of low rank the observed share of the energy, not all of it, bounds the curvature
    ones = torch.ones(len(problem.pattern), dtype=problem.dtype, device=problem.device)
    share = problem.loss.quadratic_bound(ones) / (problem.loss.curvature * problem.shape[0] * problem.shape[1])
    spare = random_images(problem, min(SPARES, *problem.shape), seed=0)
    return Iterate.of(problem, LowRank.zero(problem), spare, max(share, 0.01) * problem.lipschitz())


def _moved(now: Iterate, problem: MeanProblem) -> Iterate:
    """The iterate in another problem's precision, its vectors made orthonormal to that precision."""
    mean = now.mean.moved_to(problem)
    factors = Factors(mean.left * mean.values, mean.right, mean.left_image * mean.values, mean.right_image)
    return Iterate.of(problem, balanced(factors), now.spare.to(problem.dtype), now.lipschitz)


def carried_over(solution: MeanSolution, problem: MeanProblem) -> MeanSolution:
    """The solution of a problem with other kernels, as a start for this one."""
    before = Iterate(solution.mean, solution.psi, solution.loss, solution.spare, solution.lipschitz)
    now = _moved(before, problem)
    return MeanSolution(now.mean, now.psi, now.at, solution.certificate, now.spare, now.lipschitz)


def _triplets(problem: MeanProblem, now: Iterate, seed: int) -> LowRank:
    """Leading singular triplets of the gradient, from a block Krylov space outside the iterate's own vectors."""
    gradient = StepOperator(problem, now.at.gradient)
    width = max(_spares(problem, now) // KRYLOV_STEPS, 1)
    start = now.spare[:, :width]
    if start.shape[1] < width:
        start = torch.cat([start, random_images(problem, width - start.shape[1], seed=seed + 1)], dim=1)
    outside = krylov_images(problem, gradient, now.mean, start, KRYLOV_STEPS)
    return subspace_pass(problem, gradient, torch.cat([now.mean.right_image, outside], dim=1))


class _Certifier:
    """Certificates of one fit. One that seems to be within the tolerance, and the last one, are confirmed.

    Singular values from a small Krylov space are too small, which flatters the gap. So a gap that seems closed is
    computed again from values that are not too small. Each confirmation may fail with a small probability; the
    certificate states the sum over all that were tried.

    :param confirm: False for a rough phase whose certificates may flatter.
    """

    def __init__(
        self, problem: MeanProblem, penalty: Penalty, tolerance: float, exact_limit: int, confirm: bool = True
    ) -> None:
        self.problem, self.penalty, self.tolerance = problem, penalty, tolerance
        self.exact_limit, self.confirm = exact_limit, confirm
        self.failure = 0.0  # of all confirmations so far
        self.stalled = 0  # confirmations that missed the tolerance though the iterate seems good enough

    def __call__(self, now: Iterate, iterations: int) -> tuple[LowRank, Certificate]:
        """Leading singular triplets of the gradient, and the duality gap."""
        triplets = _triplets(self.problem, now, iterations)
        first = self._certificate(now, triplets.values, iterations, None)
        if not first.converged or not self.confirm:
            return triplets, first
        return self.confirmed(now, triplets, iterations)

    def confirmed(self, now: Iterate, triplets: LowRank, iterations: int) -> tuple[LowRank, Certificate]:
        """A certificate that is true up to its stated probability."""
        goal = now.objective(self.penalty) * (1 - self.tolerance)
        bound = bound_spectrum(
            self.problem,
            now.at.gradient,
            triplets,
            spectrum_edge(self.penalty, triplets, now.mean.rank),
            lambda values: dual_bound(now.at, values, self.penalty),
            goal,
            failure=FAILURE,
            exact_limit=self.exact_limit,
        )
        self.failure += bound.failure
        triplets = bound.triplets
        certificate = self._certificate(now, bound.values, iterations, self.failure)
        if not certificate.converged:
            self.stalled += not bound.is_sharp
            if bound.images.shape[1]:
                gradient = StepOperator(self.problem, now.at.gradient)
                triplets = subspace_pass(self.problem, gradient, torch.cat([triplets.right_image, bound.images], dim=1))
        return triplets, certificate

    def _certificate(
        self, now: Iterate, values: Tensor, iterations: int, failure_probability: float | None
    ) -> Certificate:
        dual = dual_bound(now.at, values, self.penalty)
        primal = now.objective(self.penalty)
        return Certificate(primal, dual, self.tolerance, iterations, now.mean.rank, "proximal", failure_probability)
