r"""The evidence bound of the trace-constrained posterior, with gradients to the hyperparameters, and learning by it.

With the covariance of equation (3) the traces of the expected loss and of the divergence cancel in the bound. The mean
psi maximises :math:`\mathcal{L} - \mu \|B\|_*`, form (4), so that by the envelope theorem the derivative by a
hyperparameter is that at fixed B. With :math:`dG = \tfrac12 dK\, G^{-T}` for the roots (another choice turns B, which
nothing here sees) and :math:`B = G_M^T A G_N`,

.. math:: d\psi = db + \tfrac12 (dK_M\, A\, K_N + K_M\, A\, dK_N).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from ..checks import (
    check_instance,
    check_iterations,
    check_positive,
    check_tolerance,
    refuse_gradient,
    shown,
)
from ..data.observed import ObservedMatrix
from ..errors import InputError
from ..likelihoods.axis_noise import AxisNoiseGaussianLikelihood
from ..likelihoods.ranking import RankingLikelihood
from ..linalg.pair_operator import PairLinearOperator
from ..mean.conjugate import carried_over
from ..mean.low_rank import MeanSolution
from ..mean.problem import SpectralElasticNet
from ..models.trace_gp import trace_posterior, trace_problem
from ..posteriors.gaussian import TracePosterior
from ..priors.matrix_gp import MatrixGP
from ..progress import Progress, check_progress
from .learning import LearningResult, Objective, ParameterVector
from .marginal import MarginalSettings, check_problem, noise_of, pair_log_marginal
from .probes import with_gradients

MATCH = 1e-6  # relative difference up to which the penalty's Hilbert part counts as the noise


def trace_bound(
    prior: MatrixGP, likelihood: Any, data: ObservedMatrix, posterior: TracePosterior, **options: Any
) -> TraceBound:
    r"""The bound at a posterior that was fitted with the very parameters that ``prior`` and ``likelihood`` have now.

    A ranking has its retargeted scores in the place of r, equation (8); they minimise the same misfit, so that the
    derivative is that at fixed r, too.

    .. math:: \mathcal{L} = -\tfrac12 \Big( \sum_t (r_t - \psi_t)^2 / d_t + \|B\|_F^2
              + \log\det(K_{TT} + D) + T \log 2\pi \Big)

    :param prior: the matrix-variate prior.
    :param likelihood: Gaussian, or a ranking likelihood.
    :param data: T observed pairs.
    :param posterior: fitted to them, of :class:`mvgp.TraceGP`.
    :param options: ``method``, ``tolerance`` and so on, as of :class:`MatrixMarginalLogLikelihood`.
    """
    check_problem(prior, data)
    check_instance(likelihood, "likelihood", (GaussianLikelihood, RankingLikelihood), "a likelihood")
    check_instance(posterior, "posterior", TracePosterior, "that of mvgp.TraceGP")
    mean = posterior.mean_factors
    if mean is None:
        raise InputError(
            "posterior: expected one with a trace norm; otherwise the bound is the log marginal likelihood"
        )
    ranking, like = isinstance(likelihood, RankingLikelihood), prior.mean_module.zero
    weights = None if data.weights is None else data.weights.to(like)
    pairs = prior.pairs(data.rows, data.cols)
    one_noise = likelihood.noise.to(like).reshape(())  # of an entry with weight 1
    if ranking:
        noise = one_noise if weights is None else one_noise / weights  # () or (T,)
    else:
        noise = noise_of(likelihood, like, weights, pairs)
    ridge = posterior.penalty.ridge
    if torch.is_grad_enabled() and not math.isclose(ridge, one_noise.item(), rel_tol=MATCH):
        raise InputError(  # a mean that maximises another function has no envelope theorem
            f"posterior: expected a penalty whose Hilbert part is the noise, {one_noise.item():.6g}, got "
            f"{ridge:.6g}; fit with penalty=SpectralElasticNet.from_noise(noise, mu), or ask for the "
            "value alone under torch.no_grad()"
        )
    row_op, col_op = prior.row_axis.covariance(), prior.col_axis.covariance()
    offset = prior.mean_module(pairs.rows, pairs.cols)
    pattern = data.pattern
    psi = offset.detach() + pattern.sample(mean.left_image * mean.values, mean.right_image)
    targets = data.values.to(psi)
    if ranking:
        refuse_gradient(targets, "data.values")
        targets = likelihood.fit_retargeting(targets, pairs.rows, None if weights is None else weights.detach())(psi)
    gap = (targets - psi).detach()
    theta = gap / noise.detach()  # (T,)
    sparse, sparse_t = pattern.matrix(theta), pattern.matrix_t(theta)
    # 1/2 <dK_M, Theta K_N A^T> and 1/2 <dK_N, Theta^T K_M A>, A = C diag(s) D^T
    by_rows = (row_op @ mean.left) * (sparse @ (mean.right_image * mean.values))
    by_cols = (col_op @ mean.right) * (sparse_t @ (mean.left_image * mean.values))
    moving = (by_rows.sum() + by_cols.sum()) / 2 + (theta * (offset - targets)).sum() - (gap.square() / noise).sum() / 2
    misfit, norm = float((gap * theta).sum()), float(mean.values.double().square().sum())
    rest = pair_log_marginal(
        PairLinearOperator(row_op, col_op, pairs), torch.zeros_like(psi), noise, MarginalSettings(**options)
    )
    if not ranking:
        rest = replace(rest, value=rest.value + data.replicate_log_prob(one_noise))
    value = with_gradients(rest.value - 0.5 * (misfit + norm), [(moving, torch.ones_like(moving))])
    return TraceBound(value, rest.standard_error, misfit, norm, float(mean.values.double().sum()), rest.log_det)


@dataclass(frozen=True)
class TraceBound:
    r"""The bound and its parts.

    :param value: (), with gradients to the parameters of kernels, noise and mean, and to inputs, weights and (under
        Gaussian noise) values that require them.
    :param standard_error: of the value, from probes of the log determinant; 0 where that is exact.
    :param misfit: :math:`\sum_t (r_t - \psi_t)^2 / d_t`.
    :param norm: :math:`\|B\|_F^2`.
    :param trace_norm: :math:`\|B\|_*`.
    :param log_det: :math:`\log\det(K_{TT} + D)`.
    """

    value: Tensor
    standard_error: float
    misfit: float
    norm: float
    trace_norm: float
    log_det: float


def learn_trace(
    model: Any,
    data: ObservedMatrix,
    *,
    mu: float = 1.0,
    max_steps: int = 50,
    tolerance: float = 1e-3,
    fit_tolerance: float = 1e-7,
    max_iterations: int = 2000,
    progress: Progress = "auto",
    **options: Any,
) -> LearnedTrace:
    r"""Maximise the evidence bound less :math:`\mu \|B\|_*` over all raw parameters that take gradients, in place.

    The Hilbert part of the penalty follows the noise, form (4).

    :param model: a recipe with ``prior`` and ``likelihood``, Gaussian or ranking, such as :class:`mvgp.TraceGP`; its
        own strength and penalty are not used.
    :param data: the observed pairs, or labels of them.
    :param mu: multiplier of the trace norm, form (4); 0 would be the plain marginal likelihood.
    :param tolerance: on the largest derivative by a raw parameter, divided by the root of the number of observations.
        Missing it warns.
    :param max_steps: of L-BFGS, each with a fit of the mean.
    :param fit_tolerance: relative duality gap of the fits on the way.
    :param max_iterations: of a fit.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.
    :param options: ``method``, ``tolerance`` and so on, as of :class:`MatrixMarginalLogLikelihood`.
    """
    prior, likelihood = getattr(model, "prior", None), getattr(model, "likelihood", None)
    if not isinstance(prior, MatrixGP) or not isinstance(likelihood, GaussianLikelihood | RankingLikelihood):
        raise InputError(f"model: expected mvgp.TraceGP, or a recipe with a prior and a likelihood, got {shown(model)}")
    check_instance(data, "data", ObservedMatrix, "mvgp.ObservedMatrix")
    refuse_gradient(data, "data")
    prior.refuse_gradients()
    mu = check_positive(mu, "mu (without a trace norm use learn)")
    tolerance, max_steps = check_tolerance(tolerance), check_iterations(max_steps, "max_steps")
    fit_tolerance = check_tolerance(fit_tolerance, "fit_tolerance")
    max_iterations, progress = check_iterations(max_iterations), check_progress(progress)
    if not isinstance(likelihood, RankingLikelihood):
        likelihood.to(prior.dtype)
    bound = FittedBound(prior, likelihood, data, mu, fit_tolerance, max_iterations, options)
    objective = Objective(ParameterVector({"": prior, "likelihood": likelihood}), bound)
    unit = len(data) ** 0.5
    search: dict[str, Any] = {"unit": unit, "precision": 1e-12, "searches": 30, "label": "evidence bound"}
    objective.maximise(max_steps, tolerance * unit, progress=progress, **search)
    fields = objective.result_fields(tolerance, len(data))
    assert bound.posterior is not None
    assert bound.bound is not None
    result = LearnedTrace(**fields, posterior=bound.posterior, bound=bound.bound)
    result.warn_unless_converged("allow more steps, or tighten fit_tolerance")
    return result


@dataclass(frozen=True, kw_only=True)
class LearnedTrace(LearningResult):
    r"""The outcome of :func:`learn_trace`; its objective is :math:`\mathcal{L} - \mu \|B\|_*`.

    :param posterior: the one at the end.
    :param bound: the evidence bound at the end.
    """

    posterior: TracePosterior
    bound: TraceBound


class FittedBound:
    """The bound less its penalty, () at the parameters as they are; every call is a fit that starts from the last one.

    The gradient is off by about the root of ``fit_tolerance``, the relative duality gap of the fits.
    """

    def __init__(
        self,
        prior: MatrixGP,
        likelihood: Any,
        data: ObservedMatrix,
        mu: float,
        fit_tolerance: float,
        max_iterations: int,
        options: dict[str, Any],
    ) -> None:
        self.prior, self.likelihood, self.data, self.mu, self.options = prior, likelihood, data, mu, options
        self.solver: dict[str, Any] = {"tolerance": fit_tolerance, "max_iterations": max_iterations, "strict": False}
        self.posterior: TracePosterior | None = None
        self.bound: TraceBound | None = None

    def __call__(self) -> Tensor:
        """() with a gradient."""
        prior, likelihood, data = self.prior, self.likelihood, self.data
        noise = likelihood.noise.detach().to(prior.dtype).reshape(())
        weighted = likelihood.weighted(data) if isinstance(likelihood, AxisNoiseGaussianLikelihood) else data
        problem = trace_problem(prior, weighted, likelihood, noise, row_bias=None, col_bias=None, tolerance=1e-8)
        start = None
        if self.posterior is not None:
            assert isinstance(self.posterior.solution, MeanSolution)
            start = carried_over(self.posterior.solution, problem.problem)
        penalty = SpectralElasticNet.from_noise(float(noise), self.mu)
        self.posterior = trace_posterior(problem, penalty, solver="proximal", start=start, **self.solver)
        self.bound = trace_bound(prior, likelihood, data, self.posterior, **self.options)
        return self.bound.value - self.mu * self.bound.trace_norm
