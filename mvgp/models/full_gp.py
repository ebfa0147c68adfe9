"""FullGP: the plain matrix-variate GP."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.likelihoods import _GaussianLikelihoodBase
from torch import Tensor

from ..checks import check_choice, check_flag, check_iterations, check_tolerance
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..likelihoods.losses import Data, WholeListSquaredLoss, data_loss, long_dot, observed_parts
from ..likelihoods.pointwise import is_pointwise
from ..linalg.complete_sums import make_rows_system
from ..linalg.solvers import Method
from ..mean.problem import MeanProblem, SpectralElasticNet, warn_or_raise
from ..mean.ridge import solve_ridge
from ..posteriors.covariance import ConditionalCovariance, condition, prior_terms
from ..posteriors.explain import Duals
from ..posteriors.gaussian import FullPosterior
from ..posteriors.query import SparseCoefficients
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from .pointwise import APPROXIMATIONS, Approximation, PointwiseFit
from .recipe import Recipe
from .trace_gp import known_links, trace_posterior, trace_problem


class FullGP(Recipe):
    r"""The recipe prior x likelihood; :meth:`fit` returns the exact posterior under Gaussian noise.

    The posterior is that of equations (2) and (3). Under a pointwise likelihood (Bernoulli, Poisson, ...) it is the
    Gaussian of largest evidence bound, or Laplace's approximation.

    :param prior: the matrix-variate prior, or a sum of such terms.
    :param likelihood: gpytorch's ``GaussianLikelihood``; its noise is the variance of an observation
        with weight 1. Or ``FixedNoiseGaussianLikelihood``; or a ranking likelihood: values are labels, rows are tasks;
        or a pointwise likelihood; or one with a method ``data_loss``.
    :param approximation: under a pointwise likelihood, ``variational`` or ``laplace``.
    :param tolerance: relative residual of every linear system; 1e-8 in double precision, 1e-5 in single. Under a
        pointwise likelihood, of the equations of the posterior (1e-10 for Laplace's approximation).
    :param method: ``cholesky``, ``spectral``, ``cg``, or ``auto`` by size and structure.
    :param max_iterations: limit for conjugate gradients.
    :param strict: missing the tolerance is an error, for direct methods too; False to warn instead.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
        >>> prior = mvgp.MatrixGP(kernel, gpytorch.kernels.RBFKernel(), col_inputs=torch.rand(5, 2))
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 4], [0.5, -1.0], shape=(3, 5))
        >>> posterior = mvgp.FullGP(prior, gpytorch.likelihoods.GaussianLikelihood()).fit(data)
        >>> posterior.variance([0, 1], [1, 1]).shape
        torch.Size([2])

    """

    takes_pointwise = True

    def __init__(
        self,
        prior: MatrixGP | SumGP,
        likelihood: Any,
        *,
        approximation: Approximation = "variational",
        tolerance: float | None = None,
        method: Method = "auto",
        max_iterations: int = 1000,
        strict: bool = True,
    ) -> None:
        super().__init__(prior, likelihood)
        self.approximation: Approximation = check_choice(approximation, "approximation", APPROXIMATIONS)
        self.method: Method = check_choice(method, "method", ("auto", "cholesky", "spectral", "cg"))
        self.tolerance = None if tolerance is None else check_tolerance(tolerance)
        self.max_iterations, self.strict = check_iterations(max_iterations), check_flag(strict, "strict")

    def fit(self, data: Data) -> FullPosterior:
        """The posterior given ``data``, with the hyperparameters as they are now.

        With a ranking likelihood it is the posterior of :class:`TraceGP` without a trace norm, lam the noise: the
        paper's "Hilbert" model, on one dual coefficient for each observed pair.

        On whole lists (``PositiveUnlabelled``) every cell of a list is observed, a link with value 1 and an unlabelled
        cell with value 0 and its weight; see :mod:`mvgp.linalg.complete_rows` for how that is solved.
        """
        noise = self._noise_for(data)
        if is_pointwise(self.likelihood):
            return self._pointwise(data)
        data = self._weighted(data)
        is_gaussian = isinstance(self.likelihood, _GaussianLikelihoodBase)
        posterior = self._gaussian(data, noise) if is_gaussian else self._ranking(data, noise)
        self._tell_noise(posterior, float(noise))
        return posterior

    def _pointwise(self, data: Data) -> FullPosterior:
        """The sites of the observations, and a plain posterior with noise 1 / Lambda."""
        fit = PointwiseFit(
            self.prior,
            data,
            self.likelihood,
            self.approximation,
            tolerance=self._tolerance(1e-5, 1e-8),
            method=self.method,
            max_iterations=self.max_iterations,
            strict=self.strict,
        )
        usual = 1e-8 if self.approximation == "variational" else 1e-10
        sites = fit.full(tolerance=self._tolerance(1e-4, usual), max_iterations=self.max_iterations)
        sites.report.warn_or_raise(strict=self.strict, stacklevel=3)  # where fit is called
        coefficients = SparseCoefficients(fit.data.pattern.to(sites.psi.device), sites.coefficients)
        posterior = FullPosterior(fit.prior, fit.ops, coefficients, fit.conditional(sites))
        posterior.likelihood, posterior.sites = fit.likelihood, sites
        posterior._duals = Duals(coefficients.pattern, sites.coefficients, known_links(data))
        return posterior

    def _tolerance(self, single: float, double: float) -> float:
        return self.tolerance or (single if self.prior.dtype == torch.float32 else double)

    @torch.no_grad()
    def _gaussian(self, data: Data, noise: Tensor) -> FullPosterior:
        r"""Equations (2) and (3): :math:`\psi = b + K_{*T} \alpha`, :math:`(K_{TT} + D) \alpha = r - b_T`."""
        prior, tolerance = self.prior.snapshot(), self._tolerance(1e-5, 1e-8)
        options: dict[str, Any] = {"method": self.method, "max_iterations": self.max_iterations, "strict": self.strict}
        ops = prior_terms(prior, data)
        conditional = condition(ops, data, noise, tolerance=tolerance, **options)
        if isinstance(data, PositiveUnlabelled):
            loss = data_loss(self.likelihood, data, prior.mean_module)
            assert isinstance(loss, WholeListSquaredLoss)
            target = loss.targets(prior.dtype, data.num_cells)
        else:
            rows, cols, values, _ = observed_parts(data, prior.mean_module)
            target = values - prior.mean_module(rows, cols)
        if isinstance(data, PositiveUnlabelled) and self.method == "auto":
            chosen, links = data.pattern.chosen.to(target.device), data.positions.to(target.device)
            system = make_rows_system(ops, chosen, float(noise) / data.weight, links, float(noise))
            solution = system.solve(target.view(system.shape), tolerance, self.max_iterations)
        elif isinstance(conditional, ConditionalCovariance):
            solution = conditional.solver.solve(target.unsqueeze(1), tolerance)
        else:
            raise InputError(f"method: whole lists of {len(data.pattern):,} cells need 'auto', got {self.method!r}")
        alpha = solution.checked(strict=self.strict).value.reshape(-1)
        coefficients = SparseCoefficients(data.pattern.to(target.device), alpha)
        scale = long_dot(target, alpha) / max(len(alpha), 1)
        posterior = FullPosterior(
            prior, ops, coefficients, conditional, solve_report=solution.solve_report, evidence_scale=scale
        )
        posterior._duals = Duals(coefficients.pattern, alpha, known_links(data))
        return posterior

    def _ranking(self, data: Data, noise: Tensor) -> FullPosterior:
        """The posterior without a trace norm, lam the noise."""
        if len(self.prior.terms) > 1:
            return self._sum_ranking(data, noise)
        fit = trace_posterior(
            trace_problem(self.prior, data, self.likelihood, noise, tolerance=self._tolerance(1e-5, 1e-8)),
            SpectralElasticNet(float(noise), 0.0),
            solver="proximal",
            tolerance=self._tolerance(1e-3, 1e-4),
            max_iterations=self.max_iterations,
            strict=self.strict,
        )
        evidence: dict[str, Any] = {"certificate": fit.certificate, "evidence_scale": fit.evidence_scale}
        posterior = FullPosterior(fit.prior, fit._terms, fit.coefficients, fit.conditional, **evidence)
        posterior._duals = fit._duals
        return posterior

    @torch.no_grad()
    def _sum_ranking(self, data: Data, noise: Tensor) -> FullPosterior:
        """The same for a sum of terms: one dual coefficient for each pair serves all of them."""
        prior, tolerance = self.prior.snapshot(), self._tolerance(1e-3, 1e-4)
        terms = prior_terms(prior, data)
        loss, pattern = data_loss(self.likelihood, data, prior.mean_module), data.pattern.to(terms[0][0].device)
        solution = solve_ridge(
            [MeanProblem(*ops, pattern, loss) for ops in terms],
            float(noise),
            tolerance=tolerance,
            max_iterations=self.max_iterations,
        )
        advice = "allow more iterations, loosen the tolerance, or use float64"
        warn_or_raise(solution.certificate, "the mean", advice, strict=self.strict, stacklevel=5)  # where fit is called
        alpha, square = solution.coefficients, long_dot(solution.coefficients, solution.psi)
        left = 2 * float(loss(solution.psi).value) / float(noise)  # what is left of the data
        posterior = FullPosterior(
            prior,
            terms,
            SparseCoefficients(pattern, alpha),
            condition(terms, data, noise, tolerance=self._tolerance(1e-5, 1e-8)),
            certificate=solution.certificate,
            evidence_scale=(left + square) / max(len(alpha), 1),
        )
        posterior._duals = Duals(pattern, alpha, known_links(data))
        return posterior
