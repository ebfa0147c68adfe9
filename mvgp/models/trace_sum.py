"""TraceGP on a sum of terms: one penalty for each of them, all of them solved at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.likelihoods import _GaussianLikelihoodBase
from torch import Tensor

from ..checks import check_between, check_instance, check_positive, check_share, whole
from ..errors import InputError
from ..likelihoods.losses import Data, data_loss
from ..likelihoods.ranking import RankingLikelihood
from ..linalg.cost import Estimate, Work
from ..linalg.spectra import spectral_bounds
from ..mean.additive import AdditivePart, AdditiveSolution, solve_additive
from ..mean.problem import MeanProblem, SpectralElasticNet, warn_or_raise
from ..mean.spectrum_bound import EXACT_LIMIT, largest_value
from ..posteriors.covariance import PosteriorCovariance
from ..posteriors.explain import Duals
from ..posteriors.gaussian import TracePosterior
from ..posteriors.query import Coefficients, LowRankCoefficients, SparseCoefficients
from ..posteriors.trace_sum import TraceSumPosterior
from ..priors.sums import SumGP
from ..tensor_checks import check_list
from .estimates import FitSize
from .pointwise import PenalisedFit, PointwiseFit, own_covariance
from .recipe import condition, known_links, low_rank_duals, prior_terms

MAX_STRENGTHS = 10**6  # of a path
BLIND = 1e-10  # share of the largest possible gradient below which a loss does not see a term


class TermPenalties:
    r"""What a model says about the penalties of its terms.

    :param count: Q.
    :param strength: of each term relative to its own lam_max, or one number for all; None for 0.1.
    :param trace_share: of each term, or one number for all; None for 1.
    :param penalty: instead, a ``SpectralElasticNet`` for each term, or one for all.
    """

    def __init__(self, count: int, strength: Any, trace_share: Any, penalty: Any) -> None:
        self.count = count
        self.absolute: list[SpectralElasticNet] | None = None
        if penalty is not None:
            self.absolute = self._each(penalty, "penalty")
            for at, each in enumerate(self.absolute):
                check_instance(
                    each, f"penalty[{at}]", SpectralElasticNet, "SpectralElasticNet, as for every term of a sum"
                )
        strengths = self._each(0.1 if strength is None else strength, "strength")
        shares = self._each(1.0 if trace_share is None else trace_share, "trace_share")
        self.strengths = [check_positive(each, f"strength[{at}]") for at, each in enumerate(strengths)]
        self.shares = [check_share(each, f"trace_share[{at}]") for at, each in enumerate(shares)]

    def _each(self, value: Any, name: str) -> list[Any]:
        """One for each term: those of a sequence, or the same for all."""
        if isinstance(value, Tensor) and value.dim() > 0:
            value = check_list(value, name, "one for each term, or one for all")
        if not isinstance(value, list | tuple):
            return [value] * self.count
        if len(value) != self.count:
            raise InputError(f"{name}: expected one for each of {self.count} terms, or one for all, got {len(value)}")
        return list(value)

    def at(self, setup: SumProblem, strength: float | None = None) -> list[SpectralElasticNet]:
        """The penalties on this data.

        :param strength: of a path: the largest of the terms' strengths, the others in proportion; the model's own ones
            when left out.
        """
        if self.absolute is not None:
            return self.absolute
        factor = 1.0 if strength is None else strength / max(self.strengths)
        strengths = [factor * each for each in self.strengths]
        return [
            SpectralElasticNet(each * lam_max, share)
            for each, lam_max, share in zip(strengths, setup.lam_max(), self.shares, strict=True)
        ]


@dataclass(frozen=True)
class SumProblem:
    """Data and a sum of terms, ready for any penalties.

    :param prior: a copy.
    :param conditional: the covariance given the data.
    :param problems: loss and kernels of each term.
    :param largest: the largest singular value of the loss's gradient at 0 in each term; 0 if it is one of rounding.
    :param seen: whether each term has variance at some observed cell.
    :param noise: variance of an observation with weight 1.
    :param known: which cells of whole lists are links.
    :param pointwise: of a pointwise likelihood: loss and covariance depend on each other.
    :param own: a likelihood of a user's own, with a method data_loss.
    """

    prior: SumGP
    conditional: PosteriorCovariance
    problems: tuple[MeanProblem, ...]
    largest: tuple[float, ...]
    seen: tuple[bool, ...]
    noise: float
    known: Tensor | None
    pointwise: PointwiseFit | None = None
    own: Any = None

    def lam_max(self) -> list[float]:
        """Of each term; for a term without variance at the observed cells, whose mean is 0 in any case, 1."""
        if not any(self.largest) and all(self.seen):
            raise InputError("the data equal the prior mean exactly: there is nothing to fit")
        for at, (largest, seen) in enumerate(zip(self.largest, self.seen, strict=True)):
            if largest == 0 and seen:
                raise InputError(
                    f"strength: the loss does not see terms[{at}] (a ranking is blind to effects of whole rows), so "
                    "that there is no lam_max to be relative to; leave the term out, or give penalties"
                )
        return [largest if seen else 1.0 for largest, seen in zip(self.largest, self.seen, strict=True)]


@torch.no_grad()
def sum_problem(prior: SumGP, data: Data, likelihood: Any, noise: Tensor, *, tolerance: float) -> SumProblem:
    """The loss of the likelihood on the data, the kernels of each term, and the covariance."""
    prior = prior.snapshot()
    terms = prior_terms(prior, data)
    conditional = condition(terms, data, noise, tolerance=tolerance)
    loss = data_loss(likelihood, data, prior.mean_module)
    pattern = data.pattern.to(terms[0][0].device)
    problems = tuple(MeanProblem(*ops, pattern, loss) for ops in terms)
    is_own = not isinstance(likelihood, _GaussianLikelihoodBase | RankingLikelihood)
    own = likelihood if is_own else None
    return SumProblem(prior, conditional, problems, *_sizes(problems), float(noise), known_links(data), None, own)


@torch.no_grad()
def pointwise_sum(fit: PointwiseFit, known: Tensor | None) -> SumProblem:
    """Under a pointwise likelihood: the loss and the covariance at the prior mean, to begin with."""
    assert isinstance(fit.prior, SumGP)
    problems, conditional = fit.first_problems, fit.conditional(fit.at_prior_mean)
    return SumProblem(fit.prior, conditional, problems, *_sizes(problems), 1.0, known, fit)


def _sizes(problems: Sequence[MeanProblem]) -> tuple[tuple[float, ...], tuple[bool, ...]]:
    """Of each term, see :class:`SumProblem`: the largest singular value of the gradient, and if it has variance."""
    first = problems[0]
    gradient = first.loss(torch.zeros(len(first.pattern), dtype=first.dtype, device=first.device)).gradient
    size = float(gradient.double().norm())
    largest, seen = [], []
    for problem in problems:
        reach = (spectral_bounds(problem.row_op)[1] * spectral_bounds(problem.col_op)[1]) ** 0.5 * size
        value = largest_value(problem, gradient)
        largest.append(value if value > BLIND * reach else 0.0)
        seen.append(_has_variance(problem))
    return tuple(largest), tuple(seen)


def _has_variance(problem: MeanProblem) -> bool:
    """Whether a term has variance at some observed cell."""
    ones = torch.ones(len(problem.pattern), dtype=problem.dtype, device=problem.device)
    rows, cols = problem.row_op.diagonal().unsqueeze(1), problem.col_op.diagonal().unsqueeze(1)
    return bool((problem.pattern.matrix(ones) @ cols * rows > 0).any())


@torch.no_grad()
def sum_posterior(
    setup: SumProblem,
    penalties: Sequence[SpectralElasticNet],
    *,
    tolerance: float,
    max_iterations: int,
    strict: bool,
    start: TracePosterior | None = None,
) -> TraceSumPosterior:
    """The mean of all terms, and the posterior; a certificate that misses its tolerance warns, or raises if strict."""
    before: Any = None if start is None else start.solution
    conditional, sites, fit = setup.conditional, None, setup.pointwise

    def solve(problems: Sequence[MeanProblem], near: Any) -> AdditiveSolution:
        return solve_additive(problems, penalties, tolerance=tolerance, max_iterations=max_iterations, start=near)

    if fit is None:
        solution = solve(setup.problems, before)
    else:
        accuracy = 1e-8 if setup.prior.dtype == torch.float64 else 1e-4
        old = None if start is None or start.sites is None else PenalisedFit(before, start.sites)
        penalised = fit.penalised(penalties, solve, tolerance=accuracy, start=old)
        penalised.warn_or_raise(strict=strict, stacklevel=5)
        solution, sites = penalised.solution, penalised.sites
        conditional = fit.conditional(sites)
    if setup.own is not None:
        loss = setup.problems[0].loss
        conditional = own_covariance(setup.own, loss, conditional, setup.noise, solution.psi)
    advice = "allow more iterations, loosen the tolerance, use float64, or approach these strengths along a path"
    warn_or_raise(solution.certificate, "the mean", advice, strict=strict, stacklevel=5)  # where fit is called
    coefficients, duals = [], []
    for problem, penalty, part in zip(setup.problems, penalties, solution.parts, strict=True):
        own = _part(problem, penalty, part, solution.loss.gradient, setup.known)
        coefficients.append(own[0])
        duals.append(own[1])
    posterior = TraceSumPosterior(
        setup.prior,
        tuple((problem.row_op, problem.col_op) for problem in setup.problems),
        coefficients,
        conditional,
        certificate=solution.certificate,
        penalties=penalties,
        means=[part.mean for part in solution.parts],
        solution=solution,
        # what is left of the data plus the squared Hilbert norms of the means, for each observed cell
        evidence_scale=(2 * solution.loss.value / setup.noise + sum(solution.squares)) / max(len(solution.psi), 1),
    )
    posterior._duals, posterior.likelihood, posterior.sites = duals, None if fit is None else fit.likelihood, sites
    if sites is None:
        posterior._noise = setup.noise
    else:  # a pointwise likelihood fixes the scale
        posterior._evidence_scale = None
    return posterior


def _part(
    problem: MeanProblem, penalty: SpectralElasticNet, part: AdditivePart, theta: Tensor, known: Tensor | None
) -> tuple[Coefficients, Duals]:
    """The representer coefficients of a term's mean, and what the observed cells carry of it, equation (14)."""
    if part.mean is None:
        assert part.coefficients is not None
        return SparseCoefficients(problem.pattern, part.coefficients), Duals(problem.pattern, part.coefficients, known)
    coefficients = LowRankCoefficients(part.mean.left * part.mean.values, part.mean.right)
    return coefficients, low_rank_duals(problem, part.mean, -theta, penalty, known)


def path_strengths(strengths: int | Sequence[float], lowest: float) -> list[float]:
    """Decreasing strengths: those of a sequence, or log-spaced from 1 to ``lowest``."""
    lowest = check_between(lowest, "lowest")
    number = whole(strengths)
    if number is not None:
        if not 1 <= number <= MAX_STRENGTHS:
            raise InputError(f"strengths: expected at least one strength and at most {MAX_STRENGTHS}, got {number}")
        return [lowest ** (k / max(number - 1, 1)) for k in range(number)]
    values = check_list(strengths, "strengths", "a positive whole number, or positive numbers in decreasing order")
    checked = [check_positive(value, f"strengths[{at}]") for at, value in enumerate(values)]
    if not checked or sorted(checked, reverse=True) != checked:
        raise InputError(f"strengths: expected positive numbers in decreasing order, got {checked}")
    return checked


ROUNDS = 6.0  # of the solver, ten steps each
STEP = 8.0  # times the products of one step that it takes: line searches, cores, directions that may enter
CERTIFICATE_STEPS = 10.0  # of Lanczos, times the root of the shorter side
PROBES = 8.0  # vectors of a certificate where the shorter side is too long for exact values


def trace_estimate(size: FitSize, strength: float, solver: str) -> Estimate:
    """What a trace-constrained fit is expected to take, at the weakest strength of its terms.

    The rank is a guess: an eighth of the shorter side at a strength of 0.1, much less for stronger penalties.
    """
    short, long = float(min(size.active)), float(max(size.active))
    if solver == "ridge":
        return size.estimate("TraceGP", solver, 30 * size.product(), 12.0 * size.count)
    rank = min(short, 4 + 0.125 * short * min(2.0, -math.log10(min(strength, 0.9))) ** 2.5)
    width = min(short, rank + max(64.0, rank / 4))
    work = STEP * ROUNDS * (10 * size.factor_products(rank) + 3 * size.factor_products(width))
    if size.active[0] * size.active[1] <= 16 * EXACT_LIMIT**2 and short <= EXACT_LIMIT:
        work += 2 * ROUNDS / 3 * Work(factor=short**3, sparse=2.0 * size.count * short, gemm=4 * short**2 * long)
        held = 4 * short**2
    else:
        steps = CERTIFICATE_STEPS * short**0.5
        work += steps * (size.factor_products(PROBES) + Work(gemm=2 * PROBES * steps * long))
        held = 2 * PROBES * steps * long
    entries = 8 * width * (short + long) + held + 10.0 * size.count
    return size.estimate("TraceGP", solver, work, entries)
