"""FullGP: the plain matrix-variate GP."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from ..checks import check_choice, check_flag, check_iterations, check_tolerance
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..likelihoods.losses import Data, WholeListSquaredLoss, data_loss, long_dot, observed_parts
from ..likelihoods.ranking import RankingLikelihood
from ..linalg.complete_rows import CompleteRowsSystem
from ..linalg.solvers import Method
from ..mean.problem import SpectralElasticNet
from ..posteriors.covariance import ConditionalCovariance, condition, kernel_operators
from ..posteriors.explain import Duals
from ..posteriors.gaussian import FullPosterior
from ..posteriors.query import SparseCoefficients
from ..priors.matrix_gp import MatrixGP
from .trace_gp import Recipe, known_links, trace_posterior, trace_problem


class FullGP(Recipe):
    r"""The recipe prior x likelihood; :meth:`fit` returns the exact posterior under Gaussian noise.

    The posterior is that of equations (2) and (3).

    :param prior: the matrix-variate prior.
    :param likelihood: gpytorch's ``GaussianLikelihood``; its noise is the variance of an observation
        with weight 1. Or a ranking likelihood: values are labels, rows are tasks.
    :param tolerance: relative residual of every linear system; 1e-8 in double precision, 1e-5 in single.
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

    def __init__(
        self,
        prior: MatrixGP,
        likelihood: GaussianLikelihood | RankingLikelihood,
        *,
        tolerance: float | None = None,
        method: Method = "auto",
        max_iterations: int = 1000,
        strict: bool = True,
    ) -> None:
        super().__init__(prior, likelihood)
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
        is_gaussian = isinstance(self.likelihood, GaussianLikelihood)
        posterior = self._gaussian(data, noise) if is_gaussian else self._ranking(data, noise)
        posterior._noise = float(noise)
        return posterior

    def _tolerance(self, single: float, double: float) -> float:
        return self.tolerance or (single if self.prior.dtype == torch.float32 else double)

    @torch.no_grad()
    def _gaussian(self, data: Data, noise: Tensor) -> FullPosterior:
        r"""Equations (2) and (3): :math:`\psi = b + K_{*T} \alpha`, :math:`(K_{TT} + D) \alpha = r - b_T`."""
        prior, tolerance = self.prior.snapshot(), self._tolerance(1e-5, 1e-8)
        options: dict[str, Any] = {"method": self.method, "max_iterations": self.max_iterations, "strict": self.strict}
        ops = kernel_operators(prior, data)
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
            system = CompleteRowsSystem(*ops, chosen, float(noise) / data.weight, links, float(noise))
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
        fit = trace_posterior(
            trace_problem(self.prior, data, self.likelihood, noise, tolerance=self._tolerance(1e-5, 1e-8)),
            SpectralElasticNet(float(noise), 0.0),
            solver="proximal",
            tolerance=self._tolerance(1e-3, 1e-4),
            max_iterations=self.max_iterations,
            strict=self.strict,
        )
        evidence: dict[str, Any] = {"certificate": fit.certificate, "evidence_scale": fit.evidence_scale}
        posterior = FullPosterior(fit.prior, fit._ops, fit.coefficients, fit.conditional, **evidence)
        posterior._duals = fit._duals
        return posterior
