r"""Fits under a pointwise likelihood: the plain posterior, and the trace-constrained one.

The covariance is that of a plain GP with noise :math:`1 / \Lambda_t` at each pair. Without a trace norm mean and
:math:`\Lambda` come from :mod:`mvgp.mean.sites`. With one, the certified solvers of the mean and the updates of
:math:`\Lambda` take turns; each maximises the penalised evidence bound over its own part, so it never falls.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from ..checks import check_choice
from ..data.observed import ObservedMatrix
from ..errors import ConvergenceError, InputError, SizeError
from ..likelihoods.densities import StudentDensity
from ..likelihoods.losses import Data, Loss, SquaredLoss, long_dot, observed_parts
from ..likelihoods.pointwise import PointwiseLoss, density_of
from ..linalg.cost import DEFAULT_LIMITS, Limits
from ..linalg.solvers import Method
from ..mean.additive import AdditiveSolution
from ..mean.low_rank import MeanSolution
from ..mean.problem import MeanProblem, Penalty
from ..mean.ridge import RidgeSolution
from ..mean.site_problem import SiteProblem
from ..mean.sites import SiteReport, Sites, laplace_approximation, laplace_sites, variational_sites
from ..mean.spectrum_bound import largest_value
from ..posteriors.covariance import ConditionalCovariance, NoCovariance, PosteriorCovariance
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from .recipe import constant_copy, prior_terms

Approximation = Literal["variational", "laplace"]
APPROXIMATIONS = ("variational", "laplace")
MAX_ROUNDS = 100  # of mean and covariance in turn
Solution = MeanSolution | RidgeSolution | AdditiveSolution
Penalties = Penalty | Sequence[Penalty]  # one, or one for each term of a sum
Solve = Callable[[tuple[MeanProblem, ...], Any], Solution]


class PointwiseFit:
    """Data, prior and likelihood, ready to be fitted.

    :param prior: of one term or several; a copy is taken.
    :param data: observed pairs, or whole lists, whose labels are 1 for known links and 0 for other cells.
    :param likelihood: pointwise; a copy is taken.
    :param approximation: ``variational`` or ``laplace``.
    :param tolerance: of linear systems.
    :param method: of linear systems.
    :param max_iterations: of linear systems.
    :param strict: whether a linear system that misses its tolerance is an error.
    """

    def __init__(
        self,
        prior: MatrixGP | SumGP,
        data: Data,
        likelihood: Any,
        approximation: Approximation = "variational",
        *,
        tolerance: float,
        method: Method = "auto",
        max_iterations: int = 1000,
        strict: bool = True,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        check_choice(approximation, "approximation", APPROXIMATIONS)
        data = spelled_out(data, limits)
        self.prior, self.data, self.approximation = prior.snapshot(), data, approximation
        self.likelihood = constant_copy(likelihood, self.prior)
        self.terms = prior_terms(self.prior, data)
        self._system = {"method": method, "max_iterations": max_iterations, "strict": strict, "limits": limits}
        self._tolerance = tolerance
        rows, cols, values, weights = observed_parts(data, self.prior.mean_module)
        with torch.no_grad():
            joint = self.prior(rows, cols)
            self.pairs = self.prior.pairs(rows, cols)
            density = density_of(self.likelihood, values)
            self.sites = SiteProblem(
                joint.lazy_covariance_matrix, density, weights, joint.loc, solve=self._solve, limits=limits
            )
        if approximation == "laplace":
            PointwiseLoss(density, weights)  # refuses a log density without second derivatives

    def _solve(self, noise: Tensor, rhs: Tensor) -> Tensor:
        return self.covariance(noise).solve(rhs.unsqueeze(1)).squeeze(1)

    def covariance(self, noise: Tensor) -> ConditionalCovariance:
        """That of a plain GP with noise (T,)."""
        return ConditionalCovariance(self.terms, self.pairs, noise, tolerance=self._tolerance, **self._system)  # type: ignore[arg-type]

    def conditional(self, sites: Sites) -> ConditionalCovariance:
        """The covariance of a posterior."""
        return self.covariance(self.sites.noise(sites.precision))

    def full(self, *, tolerance: float, max_iterations: int, start: Sites | None = None) -> Sites:
        """The posterior without a trace norm."""
        find = variational_sites if self.approximation == "variational" else laplace_sites
        return find(self.sites, tolerance=tolerance, max_iterations=max_iterations, start=start)

    # With a penalty on the mean ------------------------------------------------------------------

    def loss(self, variance: Tensor | None, psi: Tensor) -> Loss:
        """The loss of the mean at variances (T,) of the latent values; psi (T,) is where it will be minimised.

        Student's t is not log-concave: the squared loss that touches its loss at psi, and is above it elsewhere, stands
        in for it.
        """
        sites = self.sites
        if isinstance(sites.density, StudentDensity):
            weights = sites.weighted(sites.density.majorant(psi + sites.offset, variance))
            return SquaredLoss(sites.density.values - sites.offset, weights)
        if not sites.density.log_concave:
            raise InputError(
                f"likelihood: {type(self.likelihood).__name__} is not log-concave, so the mean has no certificate; use "
                "FullGP, or set log_concave = True on it if it is"
            )
        return PointwiseLoss(sites.density, sites.weights, variance, sites.offset, psi)

    def problems(self, variance: Tensor | None, psi: Tensor) -> tuple[MeanProblem, ...]:
        """Loss and kernels of each term."""
        pattern, loss = self.data.pattern.to(psi.device), self.loss(variance, psi)
        return tuple(MeanProblem(*ops, pattern, loss) for ops in self.terms)

    def around(self, solution: Solution | None, start: Sites | None, *, tolerance: float, max_iterations: int) -> Sites:
        """The best covariance for a mean that is known; the prior mean for None."""
        zero = torch.zeros_like(self.sites.offset)
        psi, norm = (zero, 0.0) if solution is None else (solution.psi, squared_norm(solution))
        if self.approximation == "laplace":
            report = SiteReport("laplace", 0.0, tolerance, 0, log_concave=self.sites.density.log_concave)
            return laplace_approximation(self.sites, zero, psi, norm, report)
        return variational_sites(
            self.sites, tolerance=tolerance, max_iterations=max_iterations, fixed=(psi, norm), start=start
        )

    @cached_property
    def at_prior_mean(self) -> Sites:
        """The covariance with the prior mean as the mean: what lam_max refers to."""
        return self.around(None, None, tolerance=1e-6, max_iterations=200)

    @cached_property
    def first_problems(self) -> tuple[MeanProblem, ...]:
        """The problem of the mean of each term as it is at the prior mean."""
        return self.problems(self._variance(self.at_prior_mean), torch.zeros_like(self.sites.offset))

    @cached_property
    def lam_max(self) -> float:
        """The strength of a pure trace norm from which the mean is that of the prior, which has one term."""
        (problem,) = self.first_problems
        gradient = problem.loss(torch.zeros_like(self.sites.offset)).gradient
        return largest_value(problem, gradient) if len(gradient) else 0.0

    def _variance(self, sites: Sites) -> Tensor | None:
        return sites.variance if self.approximation == "variational" else None

    def penalised(
        self, penalty: Penalties, solve: Solve, *, tolerance: float, start: PenalisedFit | None = None
    ) -> PenalisedFit:
        """Mean and covariance in turn, until the mean is within its tolerance for the covariance that it leads to.

        :param solve: a certified solver of the mean, given the problem of each term and a solution to start from.
        :param tolerance: of the equations of the covariance.
        :param start: a fit with a neighbouring penalty.
        """
        sites = self.at_prior_mean if start is None else start.sites
        solution = None if start is None else start.solution
        psi = torch.zeros_like(self.sites.offset) if solution is None else solution.psi
        rounds, settled = 0, False
        while not settled and rounds < MAX_ROUNDS:
            rounds += 1
            problems = self.problems(self._variance(sites), psi)
            loss = problems[0].loss
            before = loss(psi).value + (0.0 if solution is None else penalty_value(penalty, solution))
            solution = solve(problems, solution)
            psi, certificate = solution.psi, solution.certificate
            gain = before - certificate.primal
            settled = not certificate.converged or gain <= certificate.tolerance * abs(certificate.primal)
            if isinstance(loss, PointwiseLoss):
                settled = (settled or self.approximation == "laplace") and loss.inside(psi)
            sites = self.around(solution, sites, tolerance=tolerance, max_iterations=200)
        assert solution is not None
        return PenalisedFit(solution, sites, rounds, settled)


@dataclass(frozen=True)
class PenalisedFit:
    """A mean under a penalty, and the covariance that goes with it.

    :param solution: the mean with its certificate, given the variances of the covariance.
    :param sites: the covariance.
    :param rounds: in which both were found in turn.
    :param settled: whether the last round left the mean as it was, up to its tolerance.
    """

    solution: Any  # a Solution
    sites: Sites
    rounds: int = 0
    settled: bool = False

    def warn_or_raise(self, *, strict: bool, stacklevel: int) -> None:
        """Not settling, or equations of the covariance that miss their tolerance, warn, or raise if ``strict``."""
        self.sites.report.warn_or_raise(strict=strict, stacklevel=stacklevel + 1)
        if self.settled:
            return
        message = f"mean and covariance did not settle in {self.rounds} rounds; loosen the tolerance, or use 'laplace'"
        if strict:
            raise ConvergenceError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=stacklevel + 1)


def own_covariance(
    likelihood: Any, loss: Loss, conditional: PosteriorCovariance, noise: float, psi: Tensor
) -> PosteriorCovariance:
    """The covariance that goes with a loss of a user's own, at the best psi (T,).

    With ``second_derivatives`` it is Laplace's approximation; with a ``noise`` of the likelihood, that of Gaussian
    noise; otherwise there is none.
    """
    curved = getattr(loss, "second_derivatives", None)
    if callable(curved) and isinstance(conditional, ConditionalCovariance):
        prior = conditional.covariance._diagonal().clamp_min(1e-30)
        precision = torch.maximum(curved(psi).to(psi) / noise, torch.finfo(psi.dtype).eps / 10 / prior)
        return conditional.with_noise(1 / precision)
    if hasattr(likelihood, "noise"):
        return conditional
    reason = (
        f"the loss of {type(likelihood).__name__} says nothing about variances: give the loss a method "
        "second_derivatives(psi), or the likelihood a noise"
    )
    return NoCovariance(conditional.pairs, reason)


def squared_norm(solution: Solution) -> float:
    """||B||_F^2, of a sum that of all terms together."""
    if isinstance(solution, AdditiveSolution):
        return sum(solution.squares)
    if isinstance(solution, MeanSolution):
        return float(solution.mean.values.double().square().sum())
    return long_dot(solution.coefficients, solution.psi)


def penalty_value(penalty: Penalties, solution: Solution) -> float:
    """h(B), of a sum that of all terms together."""
    if isinstance(solution, AdditiveSolution):
        assert isinstance(penalty, Sequence)
        terms = zip(penalty, solution.parts, solution.squares, strict=True)
        return sum(
            each.ridge / 2 * square if part.mean is None else each.value(part.mean.values)
            for each, part, square in terms
        )
    assert not isinstance(penalty, Sequence)
    if isinstance(solution, MeanSolution):
        return penalty.value(solution.mean.values)
    return penalty.ridge / 2 * squared_norm(solution)


def spelled_out(data: Data, limits: Limits = DEFAULT_LIMITS) -> ObservedMatrix:
    """Whole lists as observed pairs: 1 for known links with weight 1, 0 for the other cells with theirs."""
    if isinstance(data, ObservedMatrix):
        return data
    if data.num_cells > limits.listed_cells:
        raise SizeError(
            "data: under a pointwise likelihood every cell of a list is an observation, offered up to "
            f"{limits.listed_cells:,} cells; there are {data.num_cells:,}: use a ranking likelihood, or sample"
        )
    labels = torch.zeros(data.num_cells, dtype=torch.float64)
    weights = torch.full_like(labels, data.weight)
    labels[data.positions], weights[data.positions] = 1.0, 1.0
    return ObservedMatrix(data.pattern.rows, data.pattern.cols, labels, data.shape, weights=weights)
