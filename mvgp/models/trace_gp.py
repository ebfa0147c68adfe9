"""TraceGP: the trace-constrained matrix-variate GP."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from gpytorch.likelihoods import _GaussianLikelihoodBase
from torch import Tensor

from ..checks import (
    check_choice,
    check_flag,
    check_instance,
    check_iterations,
    check_not_negative,
    check_positive,
    check_share,
    check_tolerance,
    check_whole_number,
)
from ..data.observed import ObservedMatrix
from ..errors import InputError
from ..likelihoods.losses import BiasedSquaredLoss, Data, data_loss, is_pointwise, long_dot
from ..likelihoods.pointwise import PointwiseLoss
from ..likelihoods.ranking import RankingLikelihood
from ..linalg.cost import Estimate
from ..mean.factored import solve_dense, solve_hybrid
from ..mean.low_rank import LowRank, MeanSolution
from ..mean.problem import (
    Certificate,
    MeanProblem,
    Penalty,
    SpectralElasticNet,
    TraceBall,
    dual_bound,
    warn_or_raise,
)
from ..mean.proximal import solve_proximal
from ..mean.ridge import RidgeSolution, solve_ridge
from ..mean.sites import newton_mean
from ..mean.spectrum_bound import largest_value
from ..posteriors.covariance import PosteriorCovariance
from ..posteriors.explain import Duals
from ..posteriors.gaussian import GaussianPosterior, TracePosterior
from ..posteriors.query import Coefficients, LowRankCoefficients, SparseCoefficients
from ..posteriors.updates import Fit
from ..priors.matrix_gp import MatrixGP
from ..priors.means import BiasedMean
from ..priors.sums import SumGP
from ..progress import Progress, progress_bar
from .estimates import FitSize
from .pointwise import APPROXIMATIONS, Approximation, PenalisedFit, PointwiseFit, own_covariance
from .recipe import (
    Recipe,
    check_start,
    condition,
    constant_copy,
    kernel_operators,
    known_links,
    low_rank_duals,
    moved_solution,
    remembered,
)
from .trace_sum import (
    SumProblem,
    TermPenalties,
    path_strengths,
    pointwise_sum,
    sum_posterior,
    sum_problem,
    trace_estimate,
)

Solver = Literal["proximal", "dense", "hybrid"]


@dataclass(frozen=True)
class TraceProblem:
    """Data and prior, ready for any penalty."""

    prior: MatrixGP  # a copy
    conditional: PosteriorCovariance
    problem: MeanProblem  # loss and kernels
    lam_max: float  # largest singular value of the loss's gradient at B = 0
    noise: float  # variance of an observation with weight 1
    known: Tensor | None  # which cells of whole lists are links
    flat: bool = False  # whether nothing is observed, or only where the prior has no variance, so that B = 0 is best
    spread: float = 0.0  # of measurements that were merged, over the noise
    measurements: int = 0
    pointwise: PointwiseFit | None = None  # of a pointwise likelihood: loss and covariance depend on each other
    likelihood: Any = None  # of single observations, for predictions
    own: Any = None  # a likelihood of a user's own, with a method data_loss


@torch.no_grad()
def pointwise_problem(fit: PointwiseFit, known: Tensor | None) -> TraceProblem:
    """Under a pointwise likelihood: the loss and the covariance at the prior mean, to begin with."""
    (problem,), conditional = fit.first_problems, fit.conditional(fit.at_prior_mean)
    gradient = problem.loss(torch.zeros_like(fit.sites.offset)).gradient
    flat = len(gradient) == 0 or (fit.lam_max == 0 and bool((gradient != 0).any()))
    rest = {"measurements": len(problem.pattern), "pointwise": fit, "likelihood": fit.likelihood}
    return TraceProblem(fit.prior, conditional, problem, fit.lam_max, 1.0, known, flat, **rest)


@torch.no_grad()
def trace_problem(
    prior: MatrixGP,
    data: Data,
    likelihood: Any,
    noise: Tensor,
    *,
    tolerance: float,
    row_bias: float | None = None,
    col_bias: float | None = None,
    before: GaussianPosterior | None = None,
) -> TraceProblem:
    """The loss of the likelihood on the data, and the covariance; the biases are optimised out of the loss.

    :param before: a posterior given other data under the same prior, which is a snapshot then; its kernels serve again.
    """
    prior = prior.snapshot() if before is None else prior
    ops = kernel_operators(prior, data) if before is None else before._ops
    conditional = condition(ops, data, noise, tolerance=tolerance, before=before)
    loss = data_loss(likelihood, data, prior.mean_module, row_bias=row_bias, col_bias=col_bias)
    problem = MeanProblem(*ops, data.pattern.to(ops[0].device), loss)
    gradient = loss(torch.zeros(len(problem.pattern), dtype=problem.dtype, device=problem.device)).gradient
    lam_max = largest_value(problem, gradient) if len(gradient) else 0.0
    flat = len(gradient) == 0 or (lam_max == 0 and bool((gradient != 0).any()))
    spread, count = 0.0, len(gradient)
    if isinstance(data, ObservedMatrix):
        spread, count = data.replicate_spread / float(noise), data.num_measurements
    setup = TraceProblem(prior, conditional, problem, lam_max, float(noise), known_links(data), flat, spread, count)
    if isinstance(likelihood, _GaussianLikelihoodBase):
        return replace(setup, likelihood=constant_copy(likelihood, prior))
    return setup if isinstance(likelihood, RankingLikelihood) else replace(setup, own=likelihood)


@torch.no_grad()
def trace_posterior(
    setup: TraceProblem,
    penalty: Penalty,
    *,
    solver: Solver,
    tolerance: float,
    max_iterations: int,
    strict: bool,
    start: MeanSolution | RidgeSolution | None = None,
) -> TracePosterior:
    """The mean by a solver, and the posterior; a certificate that misses its tolerance warns, or raises if strict."""
    problem, prior, conditional, sites = setup.problem, setup.prior, setup.conditional, None
    before, old_sites = (start.solution, start.sites) if isinstance(start, TracePosterior) else (start, None)
    if setup.pointwise is None:
        solution = _solve(setup, penalty, solver, tolerance, max_iterations, before)
    else:
        fit = setup.pointwise
        penalised = fit.penalised(
            penalty,
            lambda given, at: _solve(replace(setup, problem=given[0]), penalty, solver, tolerance, max_iterations, at),
            tolerance=1e-8 if problem.dtype == torch.float64 else 1e-4,
            start=PenalisedFit(before, old_sites) if before and old_sites else None,
        )
        solution, sites = penalised.solution, penalised.sites
        conditional = fit.conditional(sites)
        penalised.warn_or_raise(strict=strict, stacklevel=5)
    if setup.own is not None:
        conditional = own_covariance(setup.own, problem.loss, conditional, setup.noise, solution.psi)
    advice = "allow more iterations, loosen the tolerance, use float64, or approach this strength along a path"
    warn_or_raise(solution.certificate, "the mean", advice, strict=strict, stacklevel=5)  # where fit is called
    if isinstance(problem.loss, BiasedSquaredLoss):
        prior = copy.deepcopy(prior)
        prior.mean_module = BiasedMean(prior.mean_module, *problem.loss.biases(solution.psi))
    coefficients: Coefficients
    if isinstance(solution, MeanSolution):
        mean = solution.mean
        coefficients = LowRankCoefficients(mean.left * mean.values, mean.right)
        loss, square = solution.loss.value, float(mean.values.double().square().sum())
        duals = low_rank_duals(problem, mean, -solution.loss.gradient, penalty, setup.known)
    else:
        mean, coefficients = None, SparseCoefficients(problem.pattern, solution.coefficients)
        duals = Duals(problem.pattern, solution.coefficients, setup.known)
        loss, square = problem.loss(solution.psi).value, long_dot(solution.coefficients, solution.psi)
    posterior = TracePosterior(
        prior,
        (problem.row_op, problem.col_op),
        coefficients,
        conditional,
        certificate=solution.certificate,
        penalty=penalty,
        mean_factors=mean,
        solution=solution,
        # what is left of the data plus the squared Hilbert norm of the mean, for each observed cell
        evidence_scale=(
            (2 * float(loss) / setup.noise + square + setup.spread) / setup.measurements if setup.measurements else 1.0
        ),
    )
    posterior._duals, posterior.likelihood, posterior.sites = duals, setup.likelihood, sites
    posterior._noise = setup.noise if sites is None else None
    posterior._evidence_scale = posterior._evidence_scale if sites is None else None  # fixed by a pointwise likelihood
    return posterior


def _solve(
    setup: TraceProblem,
    penalty: Penalty,
    solver: Solver,
    tolerance: float,
    max_iterations: int,
    start: MeanSolution | RidgeSolution | None,
) -> MeanSolution | RidgeSolution:
    """The mean: zero for a flat prior, ridge without a trace norm, otherwise by the chosen solver."""
    problem = setup.problem
    if setup.flat:  # B = 0, with the certificate that it is best: the loss does not depend on B
        mean = LowRank.zero(problem)
        psi = mean.psi(problem)
        at = problem.loss(psi)
        dual = dual_bound(at, torch.zeros(1, dtype=problem.dtype, device=problem.device), penalty)
        certificate = Certificate(at.value, dual, tolerance, 0, 0, "flat prior")
        return MeanSolution(mean, psi, at, certificate, mean.right_image, 0.0)
    if isinstance(penalty, SpectralElasticNet) and penalty.trace == 0:
        if penalty.ridge == 0:
            raise InputError("a penalty of zero leaves the mean undetermined; choose a positive strength")
        previous = start if isinstance(start, RidgeSolution) else None
        if setup.pointwise is not None and isinstance(problem.loss, PointwiseLoss):
            options: dict[str, Any] = {"tolerance": tolerance, "max_iterations": max_iterations, "start": previous}
            return newton_mean(setup.pointwise.sites, problem.loss, penalty.ridge, rank=min(problem.shape), **options)
        return solve_ridge(problem, penalty.ridge, tolerance=tolerance, max_iterations=max_iterations, start=previous)
    if solver == "proximal":
        near = start if isinstance(start, MeanSolution) else None
        return solve_proximal(problem, penalty, tolerance=tolerance, max_iterations=max_iterations, start=near)
    solve = solve_dense if solver == "dense" else solve_hybrid
    return solve(problem, penalty, tolerance=tolerance, max_iterations=max_iterations)


@dataclass(frozen=True)
class PathPoint:
    """One point of a regularisation path.

    :param strength: lam / lam_max.
    :param posterior: the posterior there.
    """

    strength: float
    posterior: TracePosterior


class TraceGP(Recipe):
    r"""The recipe prior x likelihood x penalty; :meth:`fit` returns the trace-constrained posterior.

    The mean solves equation (5) with :math:`\lambda = \text{strength} \cdot \lambda_{\max}` and
    :math:`\alpha = \text{trace\_share}`; above :math:`\lambda_{\max}` a pure trace norm gives zero. The covariance is
    that of the plain posterior, with the likelihood's own noise.

    On a sum of terms the mean solves equation (12), each term with a penalty of its own: ``strength``, ``trace_share``
    and ``penalty`` are then lists with an entry for each term, or one entry for all. A term with trace share 0 is a
    ridge term: of full rank, it keeps what its kernels say about single cells.

    :param prior: the matrix-variate prior, or a sum of them.
    :param likelihood: gpytorch's ``GaussianLikelihood``, or a ranking likelihood (labels as values, rows as tasks), or
        a pointwise one (Bernoulli, Poisson, ...), or one with a method ``data_loss``. For a pointwise one the loss is
        the negative log-likelihood and 1 stands for the noise: form (4) is ``SpectralElasticNet.from_noise(1.0, mu)``.
    :param strength: of the penalty, relative to lam_max; for a sum relative to that of each term.
    :param trace_share: 1 for the trace norm alone, 0 for the Hilbert norm alone. With 0 the mean is that of the plain
        MV-GP, :class:`FullGP`, only if lam is the likelihood's noise: ``penalty=SpectralElasticNet(noise, 0.0)``.
    :param penalty: an absolute penalty instead: ``SpectralElasticNet`` or ``TraceBall``.
    :param row_bias: penalty of a bias of each row, estimated jointly; 0 is the paper's free bias, None for no bias.
    :param col_bias: penalty of a bias of each column (popularity of an item), positive; None for no bias.
    :param approximation: under a pointwise likelihood, ``variational`` or ``laplace``.
    :param solver: ``proximal`` for any size, ``dense`` and ``hybrid`` for comparison.
    :param tolerance: relative duality gap; 1e-4 in double precision, 1e-3 in single.
    :param max_iterations: of the solver; 2,000 when left out, 20,000 for ``dense``, 200 for ``hybrid``.
    :param strict: whether missing the tolerance is an error rather than a warning.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
        >>> prior = mvgp.MatrixGP(kernel, gpytorch.kernels.RBFKernel(), col_inputs=torch.rand(5, 2))
        >>> data = mvgp.ObservedMatrix([0, 2, 1], [1, 4, 4], [0.5, -1.0, 2.0], shape=(3, 5))
        >>> model = mvgp.TraceGP(prior, gpytorch.likelihoods.GaussianLikelihood(), strength=0.5, trace_share=1.0)
        >>> posterior = model.fit(data)
        >>> posterior.rank, posterior.certificate.converged
        (1, True)

    """

    takes_pointwise = True

    def __init__(
        self,
        prior: MatrixGP | SumGP,
        likelihood: Any,
        *,
        strength: float | Sequence[float] | None = None,
        trace_share: float | Sequence[float] | None = None,
        penalty: SpectralElasticNet | TraceBall | Sequence[SpectralElasticNet] | None = None,
        row_bias: float | None = None,
        col_bias: float | None = None,
        approximation: Approximation = "variational",
        solver: Solver = "proximal",
        tolerance: float | None = None,
        max_iterations: int | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__(prior, likelihood)
        if penalty is not None and not (strength is None and trace_share is None):
            raise InputError("give either penalty, or strength and trace_share")
        self.penalty, self.strength, self.trace_share = penalty, 0.1, 1.0
        self.term_penalties: TermPenalties | None = None
        if isinstance(prior, SumGP):
            if solver != "proximal" or (row_bias, col_bias) != (None, None):
                raise InputError(
                    "a sum of terms has the solver 'proximal' alone, and no row_bias or col_bias: add a term with a "
                    "ConstantKernel on the other axis"
                )
            self.term_penalties = TermPenalties(len(prior.terms), strength, trace_share, penalty)
        else:
            if penalty is not None:
                check_instance(penalty, "penalty", (SpectralElasticNet, TraceBall), "SpectralElasticNet or TraceBall")
            self.strength = 0.1 if strength is None else check_positive(strength, "strength")
            self.trace_share = 1.0 if trace_share is None else check_share(trace_share, "trace_share")
        self.row_bias = None if row_bias is None else check_not_negative(row_bias, "row_bias")
        self.col_bias = None if col_bias is None else check_positive(col_bias, "col_bias")
        self.approximation: Approximation = check_choice(approximation, "approximation", APPROXIMATIONS)
        if is_pointwise(likelihood) and (row_bias, col_bias) != (None, None):
            raise InputError("row_bias, col_bias: only with a Gaussian likelihood; give the prior a mean instead")
        self.solver: Solver = check_choice(solver, "solver", ("proximal", "dense", "hybrid"))
        self.tolerance = None if tolerance is None else check_tolerance(tolerance)
        usual = {"proximal": 2000, "dense": 20_000, "hybrid": 200}[self.solver]
        self.max_iterations = usual if max_iterations is None else check_iterations(max_iterations)
        self.strict = check_flag(strict, "strict")

    def fit(self, data: Data, *, start: TracePosterior | None = None, progress: Progress = "auto") -> TracePosterior:
        """The posterior given ``data``; ``start`` is a posterior of a neighbouring penalty on the same data.

        :param progress: True, False or "auto", see :mod:`mvgp.progress`.
        """
        check_start(start, "start")
        with progress_bar("fit", progress=progress):
            setup = self._setup(data)
            posterior = self._posterior(setup, self._chosen(setup, None), start)
        posterior._fit = Fit(data, remembered(self, setup.prior))
        return posterior

    @torch.no_grad()
    def _update(self, posterior: TracePosterior, data: Data) -> TracePosterior:
        """From the old mean, with the same penalty; a sum of terms and a pointwise likelihood begin anew."""
        setup = self._setup(data, posterior)
        start = None
        if isinstance(setup, TraceProblem) and setup.pointwise is None and not setup.flat:
            start = moved_solution(posterior, setup.problem)
        penalty = getattr(posterior, "penalties" if isinstance(setup, SumProblem) else "penalty")
        updated = self._posterior(setup, penalty, start)
        updated._fit = Fit(data, self)
        return updated

    def _expected(self, size: FitSize, data: Any) -> Estimate:
        """Steps of the solver and the certificate; see :meth:`Recipe.estimate`."""
        if self.term_penalties is not None:
            return trace_estimate(size, min(self.term_penalties.strengths), "additive")
        ridge = self.trace_share == 0 and self.penalty is None
        return trace_estimate(size, self.strength, "ridge" if ridge else self.solver)

    def path(
        self,
        data: Data,
        strengths: int | Sequence[float] = 30,
        *,
        lowest: float = 1e-3,
        max_rank: int | None = None,
        after: PathPoint | None = None,
        progress: Progress = "auto",
    ) -> Iterator[PathPoint]:
        """Warm-started posteriors over decreasing strengths; stop asking to end it early.

        :param strengths: how many, log-spaced from 1 down to ``lowest``; or the strengths themselves. On a sum of terms
            it is that of the term with the largest strength; the others keep their ratios to it.
        :param max_rank: the path ends after the first point whose rank exceeds it.
        :param after: the last point of a path that was interrupted; it resumes with the next strength.
        :param progress: True, False or "auto", see :mod:`mvgp.progress`.
        """
        if self.penalty is not None:
            raise InputError("a path goes over strengths; a model with an absolute penalty has none")
        chosen = path_strengths(strengths, lowest)
        max_rank = None if max_rank is None else check_whole_number(max_rank, "max_rank")
        if after is not None:
            check_instance(after, "after", PathPoint, "mvgp.models.PathPoint")
            chosen = [strength for strength in chosen if strength < after.strength * (1 - 1e-9)]
        last = after.posterior if after else None
        check_start(last, "after")
        setup = self._setup(data)
        fit = Fit(data, remembered(self, setup.prior))
        with progress_bar("path", len(chosen), unit="points", progress=progress) as bar:
            for strength in chosen:
                last = self._posterior(setup, self._chosen(setup, strength), last)
                last._fit = fit
                bar.update()
                with bar.aside():
                    yield PathPoint(strength, last)
                if max_rank is not None and last.rank > max_rank:
                    return

    def _setup(self, data: Data, before: TracePosterior | None = None) -> TraceProblem | SumProblem:
        """The loss of the likelihood on the data, and the covariance."""
        noise, tolerance = self._noise_for(data), 1e-8 if self.prior.dtype == torch.float64 else 1e-5
        if is_pointwise(self.likelihood):
            fit = PointwiseFit(self.prior, data, self.likelihood, self.approximation, tolerance=tolerance)
            make = pointwise_sum if isinstance(self.prior, SumGP) else pointwise_problem
            return make(fit, known_links(data))
        data = self._weighted(data)
        if isinstance(self.prior, SumGP):
            return sum_problem(self.prior, data, self.likelihood, noise, tolerance=tolerance)
        biases = {"row_bias": self.row_bias, "col_bias": self.col_bias}
        return trace_problem(self.prior, data, self.likelihood, noise, tolerance=tolerance, before=before, **biases)

    def _penalty(self, setup: TraceProblem, strength: float) -> SpectralElasticNet:
        if len(setup.problem.pattern) == 0:
            raise InputError(
                "no observations: lam_max, which strength is relative to, is 0; give penalty=SpectralElasticNet(...)"
            )
        if setup.lam_max == 0 and not setup.flat:
            raise InputError("the data equal the prior mean (and biases) exactly: there is nothing to fit")
        return SpectralElasticNet(strength * setup.lam_max, self.trace_share)

    def _posterior(self, setup: TraceProblem | SumProblem, penalty: Any, start: Any) -> TracePosterior:
        """The posterior; ``penalty`` is one for each term of a sum, ``start`` a posterior or the solution of a mean."""
        options: dict[str, Any] = {
            "tolerance": self.tolerance or (1e-4 if self.prior.dtype == torch.float64 else 1e-3),
            "max_iterations": self.max_iterations,
            "strict": self.strict,
            "start": start,
        }
        if isinstance(setup, SumProblem):
            posterior: TracePosterior = sum_posterior(setup, penalty, **options)
        else:
            posterior = trace_posterior(setup, penalty, solver=self.solver, **options)
        if posterior.sites is None:
            self._tell_noise(posterior, setup.noise)
        return posterior

    def _chosen(self, setup: TraceProblem | SumProblem, strength: float | None) -> Any:
        """The penalty, or those of the terms; ``strength`` is that of a path, None for the model's own."""
        if isinstance(setup, SumProblem):
            assert self.term_penalties is not None
            return self.term_penalties.at(setup, strength)
        own = self.penalty if strength is None else None
        return own or self._penalty(setup, self.strength if strength is None else strength)
