"""FullGP: the plain matrix-variate GP."""

from __future__ import annotations

import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from ..checks import check_choice, check_flag, check_iterations, check_tolerance
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..likelihoods.losses import long_dot
from ..likelihoods.ranking import RankingLikelihood
from ..linalg.solvers import Method
from ..mean.penalties import SpectralElasticNet
from ..posteriors.fitted import FullPosterior
from ..posteriors.query import SparseCoefficients
from ..posteriors.whole_lists import condition
from ..priors.matrix_gp import MatrixGP
from .recipe import Recipe
from .trace_gp import trace_posterior, trace_problem


@torch.no_grad()
def full_posterior(
    prior: MatrixGP,
    data: ObservedMatrix,
    noise: Tensor,
    *,
    tolerance: float,
    method: Method,
    max_iterations: int,
    strict: bool,
) -> FullPosterior:
    r"""Equations (2) and (3): :math:`\psi = b + K_{*T} \alpha`, :math:`(K_{TT} + D) \alpha = r - b_T`."""
    prior = prior.snapshot()
    conditional = condition(
        prior, data, noise, tolerance=tolerance, method=method, max_iterations=max_iterations, strict=strict
    )
    values = data.values.to(dtype=prior.dtype, device=conditional.pairs.rows.device)
    target = values - prior.mean_module(conditional.pairs.rows, conditional.pairs.cols)
    solution = conditional.solver.solve(target.unsqueeze(1), tolerance).checked(strict=strict)
    alpha = solution.value.squeeze(1)
    posterior = FullPosterior(
        prior,
        conditional.ops,
        SparseCoefficients(data.pattern.to(target.device), alpha),
        conditional,
        solve_report=solution.solve_report,
        evidence_scale=long_dot(target, alpha) / max(len(alpha), 1),
    )
    posterior._noise = float(noise)
    return posterior


class FullGP(Recipe):
    r"""The recipe prior x likelihood; :meth:`fit` returns the exact posterior under Gaussian noise.

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

    def fit(self, data: ObservedMatrix) -> FullPosterior:
        """The posterior given ``data``, with the hyperparameters as they are now.

        With a ranking likelihood it is the posterior of :class:`TraceGP` without a trace norm, lam the noise: the
        paper's "Hilbert" model, on one dual coefficient for each observed pair.
        """
        noise = self._noise_for(data)
        if isinstance(data, PositiveUnlabelled):
            raise InputError("data: the mean over whole lists is found at low rank; use TraceGP, or an ObservedMatrix")
        single = self.prior.dtype == torch.float32
        tolerance = self.tolerance or (1e-5 if single else 1e-8)
        if isinstance(self.likelihood, RankingLikelihood):
            given = trace_problem(
                self.prior, data, self.likelihood, noise, row_bias=None, col_bias=None, tolerance=tolerance
            )
            gap = self.tolerance or (1e-3 if single else 1e-4)
            penalty = SpectralElasticNet(float(noise), 0.0)
            found = trace_posterior(
                given, penalty, solver="proximal", tolerance=gap, max_iterations=self.max_iterations, strict=self.strict
            )
            posterior = FullPosterior(
                found.prior,
                found._ops,
                found.coefficients,
                found.conditional,
                certificate=found.certificate,
                evidence_scale=found.evidence_scale,
            )
            posterior._noise = float(noise)
            return posterior
        return full_posterior(
            self.prior,
            data,
            noise,
            tolerance=tolerance,
            method=self.method,
            max_iterations=self.max_iterations,
            strict=self.strict,
        )
