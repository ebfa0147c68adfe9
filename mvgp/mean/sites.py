r"""A Gaussian posterior under a pointwise likelihood: a mean, and one precision for each observed pair.

q(Z) is a Gaussian process with mean :math:`\psi = b + K_{*T} \alpha` and covariance
:math:`S = (K^{-1} + P^T \Lambda P)^{-1}`: that of a plain GP with noise :math:`1 / \Lambda_t` at each pair.

**Variational.** The evidence bound :math:`\sum_t w_t E_q[\ln p(y_t \mid z_t)] - KL(q \,\|\, p)` is largest where
:math:`\alpha = w\, \partial_m E[\ln p]` and :math:`\Lambda = -2 w\, \partial_v E[\ln p]`. An update moves the natural
parameters of the sites, :math:`\Lambda` and :math:`\alpha + \Lambda (\psi - b)`, towards these values: a
natural-gradient step (Khan and Lin 2017). A step that lowers the bound is halved, so the bound never falls. First the
last few steps are extrapolated to where they would vanish (Anderson 1965), which is taken if it does not lower the
bound.

**Laplace.** The mode by Newton's method with a line search; :math:`\Lambda` are the second derivatives there.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ConvergenceError
from ..likelihoods.losses import long_dot
from ..likelihoods.pointwise import PointwiseLoss
from ..progress import report_step
from .problem import Certificate
from .ridge import RidgeSolution
from .site_problem import SiteProblem

SHORTEST = 2.0**-20  # step below which a line search gives up
ROUNDING = 1e-12  # relative fall of the bound, and of its terms, that counts as none
LARGEST = 1e10  # proposed precision times prior variance, at the start
DEPTH = 5  # steps that an extrapolation looks back on


@dataclass(frozen=True)
class SiteReport:
    r"""How well the conditions of the optimum hold.

    :param approximation: ``variational`` or ``laplace``.
    :param residual: largest relative error of :math:`\\alpha` and :math:`\\Lambda` in their equations.
    :param tolerance: what was requested.
    :param iterations: updates, each with a factorisation or a solve.
    :param bounds: the evidence bound after each update, never falling; empty for Laplace's approximation.
    :param log_concave: whether the likelihood is, so that the optimum is the only one. Where it is not, negative
        precisions are set to 0, and the result depends on the start.
    """

    approximation: str
    residual: float
    tolerance: float
    iterations: int
    bounds: tuple[float, ...] = ()
    log_concave: bool = True

    @property
    def converged(self) -> bool:
        """Whether the residual is within the tolerance."""
        return self.residual <= self.tolerance

    def in_words(self) -> str:
        """The approximation and its residual in a line."""
        verdict = "within" if self.converged else "MISSES"
        return f"{self.approximation}, equations to {self.residual:.1e}, {verdict} {self.tolerance:.0e}"

    def warn_or_raise(self, *, strict: bool, stacklevel: int) -> None:
        """Missing the tolerance is a warning, or an error when ``strict``."""
        if self.converged:
            return
        message = (
            f"the {self.approximation} posterior misses its equations by {self.residual:.1e} after {self.iterations} "
            f"iterations, the tolerance is {self.tolerance:.1e}; allow more iterations, loosen the tolerance, or use "
            "float64"
        )
        if strict:
            raise ConvergenceError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=stacklevel + 1)


@dataclass(frozen=True)
class Sites:
    r"""A Gaussian posterior at the T observed pairs.

    :param precision: (T,) :math:`\Lambda`.
    :param coefficients: (T,) :math:`\alpha`; the mean is :math:`b + K_{*T} \alpha`.
    :param psi: (T,) :math:`K_{TT} \alpha`, the mean less that of the prior.
    :param variance: (T,) the diagonal of :math:`S_{TT}`; None if there are too many pairs for it.
    :param bound: the evidence bound, or Laplace's approximation of the log evidence; None likewise.
    :param report: the evidence for it.
    """

    precision: Tensor
    coefficients: Tensor
    psi: Tensor
    variance: Tensor | None
    bound: float | None
    report: SiteReport


@dataclass(frozen=True)
class _State:
    """One point of the variational updates; ``natural`` (2, T) are alpha + Lambda psi and Lambda."""

    natural: Tensor
    alpha: Tensor
    psi: Tensor
    variance: Tensor
    slope: Tensor
    fresh: Tensor
    bound: float
    rounding: float
    residual: float

    @property
    def precision(self) -> Tensor:
        return self.natural[1]


def variational_sites(
    problem: SiteProblem,
    *,
    tolerance: float,
    max_iterations: int,
    fixed: tuple[Tensor, float] | None = None,
    start: Sites | None = None,
) -> Sites:
    r"""The Gaussian of largest evidence bound.

    :param tolerance: on the residual of the equations.
    :param max_iterations: updates.
    :param fixed: psi (T,) less the prior mean, and the squared norm of it: then the mean stays, and only the covariance
        is found.
    :param start: a posterior of a neighbouring problem.
    """
    state = _first(problem, fixed, start)
    bounds, step, iteration, history = [state.bound], 1.0, 0, _History()
    while state.residual > tolerance and iteration < max_iterations:
        iteration += 1
        report_step("residual", state.residual, tolerance)
        towards = torch.stack([state.slope + state.fresh * state.psi, state.fresh])
        ahead = history.extrapolated(state.natural, towards)
        fresh = None if ahead is None else _improved(problem, state, ahead, fixed)
        while fresh is None and step >= SHORTEST:
            fresh = _improved(problem, state, torch.lerp(state.natural, towards, step), fixed)
            step = step if fresh is not None else step / 2
        if fresh is None:
            break
        state = fresh
        bounds.append(max(state.bound, bounds[-1]))
        step = min(1.0, 2 * step)
    report = SiteReport("variational", state.residual, tolerance, iteration, tuple(bounds), problem.density.log_concave)
    return Sites(state.precision, state.alpha, state.psi, state.variance, state.bound, report)


class _History:
    """The last few points and the steps proposed there."""

    def __init__(self) -> None:
        self.points: list[Tensor] = []
        self.steps: list[Tensor] = []

    def extrapolated(self, point: Tensor, towards: Tensor) -> Tensor | None:
        """(2, T): where the proposed step would vanish if steps were linear in the points; None if that is no point."""
        size = towards.norm(dim=1, keepdim=True).clamp_min(1e-300)
        self.points, self.steps = [*self.points[-DEPTH:], point], [*self.steps[-DEPTH:], towards - point]
        if len(self.points) < 3:
            return None
        moved, changed = (
            torch.stack([(b - a) for a, b in itertools.pairwise(parts)], dim=-1) for parts in (self.points, self.steps)
        )  # (2, T, d)
        system = (changed / size.unsqueeze(-1)).flatten(0, 1).double()
        goal = (self.steps[-1] / size).flatten().unsqueeze(1).double()
        share = torch.linalg.lstsq(system, goal, driver="gelsd").solution.squeeze(1).to(point)
        ahead = towards - (moved + changed) @ share
        usable = bool(torch.isfinite(ahead).all()) and bool((ahead[1] >= 0).all())
        return ahead if usable else None


def _improved(
    problem: SiteProblem, state: _State, natural: Tensor, fixed: tuple[Tensor, float] | None
) -> _State | None:
    """The state at natural parameters (2, T), if the bound is not lower there."""
    fresh = _state(problem, natural, fixed)
    return fresh if fresh.bound >= state.bound - state.rounding else None


def _first(problem: SiteProblem, fixed: tuple[Tensor, float] | None, start: Sites | None) -> _State:
    """The prior, or a given start; with enough precision for the expectations to be of ordinary size."""
    if start is not None:
        linear = start.coefficients + start.precision * start.psi
        state = _state(problem, torch.stack([linear, start.precision]), fixed)
        if state.bound > -float("inf"):
            return state
    zero = torch.zeros_like(problem.offset)
    state, share = _state(problem, torch.stack([zero, zero]), fixed), 1e-3
    while not _is_ordinary(problem, state):
        if share > 1e12:
            raise ConvergenceError(
                "the expected log-likelihood at the prior mean is not finite, however small the variance"
            )
        precision = share / problem.prior_variance.clamp_min(1e-300)
        state, share = _state(problem, torch.stack([zero, precision]), fixed), 10 * share
    return state


def _is_ordinary(problem: SiteProblem, state: _State) -> bool:
    """Whether the numbers are such that a step keeps its digits; a rate of exp(1000) is not."""
    return state.bound > -float("inf") and bool((state.fresh * problem.prior_variance < LARGEST).all())


def _state(problem: SiteProblem, natural: Tensor, fixed: tuple[Tensor, float] | None) -> _State:
    linear, precision = natural
    factor = problem.factor(precision)
    variance = factor.variance()
    if fixed is None:
        alpha, psi = factor.mean(linear)
        norm = long_dot(alpha, psi)
    else:
        psi, norm = fixed
        alpha = linear - precision * psi
    value, slope, fresh = problem.moments(psi, variance)
    log_det, shrunk = factor.log_det, long_dot(precision, variance)
    bound = value - (norm + log_det - shrunk) / 2
    share = max(ROUNDING, 10 * torch.finfo(psi.dtype).eps)  # in single precision its parts have fewer digits
    rounding = share * (abs(value) + norm + log_det + shrunk)
    if bound != bound or not bool(torch.isfinite(slope).all() & torch.isfinite(fresh).all()):
        bound, residual = -float("inf"), float("inf")
    else:
        residual = problem.residual(slope if fixed is not None else alpha, slope, precision, fresh)
    return _State(natural, alpha, psi, variance, slope, fresh, bound, rounding, residual)


@torch.no_grad()
def laplace_sites(problem: SiteProblem, *, tolerance: float, max_iterations: int, start: Sites | None = None) -> Sites:
    r"""The mode of the posterior, and the Gaussian with its curvature there.

    :param tolerance: on the residual :math:`\|\alpha - \partial \ln p\|`, relative.
    :param max_iterations: Newton steps.
    :param start: a posterior of a neighbouring problem.
    """
    alpha = torch.zeros_like(problem.offset) if start is None else start.coefficients
    psi = problem.times(alpha)

    def score(at: Tensor, coefficients: Tensor) -> float:
        value = float(problem.weighted(problem.density.log_prob(at + problem.offset)).double().sum())
        return value - long_dot(coefficients, at) / 2

    reached, iteration = score(psi, alpha), 0
    _, slope, precision = problem.moments(psi, None)
    residual = problem.residual(alpha, slope, precision, precision)
    while residual > tolerance and iteration < max_iterations:
        iteration += 1
        report_step("residual", residual, tolerance)
        missing = slope - alpha
        direction = missing - problem.inverse(precision)(problem.times(missing))
        along, step, there = problem.times(direction), 1.0, -float("inf")
        while step >= SHORTEST:
            there = score(psi + step * along, alpha + step * direction)
            if there >= reached - ROUNDING * abs(reached):
                break
            step /= 2
        else:
            break
        alpha = alpha + step * direction
        psi, reached = problem.times(alpha), there
        _, slope, precision = problem.moments(psi, None)
        residual = problem.residual(alpha, slope, precision, precision)
    report = SiteReport("laplace", residual, tolerance, iteration, log_concave=problem.density.log_concave)
    return laplace_approximation(problem, alpha, psi, long_dot(alpha, psi), report)


@torch.no_grad()
def laplace_approximation(problem: SiteProblem, alpha: Tensor, psi: Tensor, norm: float, report: SiteReport) -> Sites:
    """The Gaussian about a mean that is known; ``norm`` is the squared norm of the mean."""
    value, _, precision = problem.moments(psi, None)
    if not problem.has_factor:
        return Sites(precision, alpha, psi, None, None, report)
    factor = problem.factor(precision)
    return Sites(precision, alpha, psi, factor.variance(), value - (norm + factor.log_det) / 2, report)


@torch.no_grad()
def newton_mean(
    problem: SiteProblem,
    loss: PointwiseLoss,
    l2: float,
    *,
    tolerance: float,
    max_iterations: int = 100,
    start: RidgeSolution | None = None,
    rank: int = 0,
) -> RidgeSolution:
    r"""The mean with a Hilbert norm alone, by Newton's method, certified.

    .. math:: \min_\alpha f(K_{TT} \alpha) + \tfrac{l_2}{2} \alpha^T K_{TT} \alpha

    With :math:`\theta = \nabla f` the gap is :math:`\|\theta + l_2 \alpha\|_K^2 / (2 l_2)`, equation (11) at c = 1.

    :param loss: f.
    :param l2: weight of the squared norm, positive.
    :param tolerance: on the relative duality gap.
    :param rank: what the certificate states as the rank.
    """
    alpha = torch.zeros_like(problem.offset) if start is None else start.coefficients
    psi = problem.times(alpha)
    at, iteration = loss(psi), 0
    while True:
        missing = -at.gradient / l2 - alpha
        image = problem.times(missing)
        primal = at.value + l2 / 2 * long_dot(alpha, psi)
        gap = l2 / 2 * long_dot(missing, image)
        certificate = Certificate(primal, primal - gap, tolerance, iteration, rank, "newton")
        if certificate.converged or iteration >= max_iterations:
            return RidgeSolution(alpha, psi, certificate)
        iteration += 1
        direction = missing - problem.inverse(loss.second_derivatives(psi) / l2)(image)
        along, step, moved = problem.times(direction), 1.0, False
        while step >= SHORTEST and not moved:
            there, coefficients = psi + step * along, alpha + step * direction
            fresh = loss(there)
            reached = fresh.value + l2 / 2 * long_dot(coefficients, there)
            moved = reached <= primal + ROUNDING * abs(primal)
            step /= 2
        if not moved:
            return RidgeSolution(alpha, psi, certificate)
        alpha, psi, at = coefficients, there, fresh
