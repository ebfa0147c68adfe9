r"""The evidence bound of a variational posterior as a function of the hyperparameters, and learning by it.

.. math:: \mathcal{L} = \sum_t w_t E_q[\ln p(y_t \mid z_t)] - KL(q \,\|\, p)

At the best q the derivative by a hyperparameter is that at fixed q (the envelope theorem). The likelihood's parameters
enter the expectations alone, and those of the prior the divergence:

.. math:: d\mathcal{L} = \tfrac12 \alpha^T dK\, \alpha - \tfrac12 \operatorname{tr}\left((K_{TT} + D)^{-1} dK\right)
          + \alpha^T db, \qquad D = \Lambda^{-1}

With a trace norm on the mean, :math:`\mathcal{L} - \mu \|B\|_*` is what the fit maximises, form (4) with noise 1. On a
sum of terms the norm is the sum over those that have one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from ..checks import (
    check_instance,
    check_iterations,
    check_not_negative,
    check_tolerance,
    refuse_gradient,
    shown,
)
from ..data.observed import ObservedMatrix
from ..errors import InputError
from ..likelihoods.losses import is_pointwise, observed_parts
from ..likelihoods.pointwise import density_of
from ..mean.low_rank import LowRank
from ..mean.problem import SpectralElasticNet
from ..models.full_gp import FullGP
from ..models.trace_gp import TraceGP
from ..posteriors.gaussian import FullPosterior, TracePosterior
from ..posteriors.trace_sum import TraceSumPosterior
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from ..progress import Progress, check_progress
from .learning import LearningResult, Objective, ParameterVector
from .marginal import MarginalSettings, check_problem, pair_log_marginal
from .probes import with_gradients

MATCH = 1e-6  # relative difference up to which the penalty's Hilbert part counts as 1


@dataclass(frozen=True)
class EvidenceBound:
    r"""The bound, with its gradient.

    :param value: (), with gradients to the parameters of kernels, mean and likelihood.
    :param standard_error: of its gradient's log determinant, from probes; 0 where it is exact.
    :param trace_norm: :math:`\|B\|_*`, of a sum of terms their sum; None without a trace norm.
    """

    value: Tensor
    standard_error: float
    trace_norm: float | None = None


def evidence_bound(
    prior: MatrixGP | SumGP,
    likelihood: Any,
    data: ObservedMatrix,
    posterior: FullPosterior | TracePosterior,
    **options: Any,
) -> EvidenceBound:
    r"""The bound at a posterior that was fitted with the very parameters that ``prior`` and ``likelihood`` have now.

    :param prior: the matrix-variate prior, or a sum of such terms.
    :param likelihood: pointwise: Bernoulli, Poisson, ...
    :param data: T observed pairs.
    :param posterior: fitted to them with ``approximation="variational"``. One with a trace norm needs a penalty whose
        Hilbert part is 1, ``SpectralElasticNet.from_noise(1.0, mu)``, for each term of a sum.
    :param options: ``method``, ``tolerance`` and so on of the log determinant, as in
        :func:`~mvgp.hyperparameters.log_marginal`.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.hyperparameters import evidence_bound
        >>> prior = mvgp.MatrixGP(*[gpytorch.kernels.RBFKernel().double() for _ in range(2)],
        ...     row_inputs=torch.arange(3.0).double(), col_inputs=torch.arange(4.0).double())
        >>> data = mvgp.ObservedMatrix([0, 1, 2], [1, 3, 0], [1.0, 0.0, 1.0], (3, 4))
        >>> likelihood = gpytorch.likelihoods.BernoulliLikelihood()
        >>> posterior = mvgp.FullGP(prior, likelihood).fit(data)
        >>> bound = evidence_bound(prior, likelihood, data, posterior)
        >>> bound.value.backward()
        >>> prior.row_axis.kernel.raw_lengthscale.grad.shape
        torch.Size([1, 1])

    """
    check_problem(prior, data)
    check_instance(posterior, "posterior", (FullPosterior, TracePosterior), "that of mvgp.FullGP or mvgp.TraceGP")
    refuse_gradient(data, "data")
    sites = posterior.sites
    if not is_pointwise(likelihood) or sites is None or sites.variance is None or sites.bound is None:
        raise InputError(
            "posterior: expected one of a pointwise likelihood (Bernoulli, Poisson, ...), as fitted in this process; "
            "under Gaussian noise use log_marginal or trace_bound"
        )
    if sites.report.approximation != "variational":
        raise InputError("posterior: Laplace's approximation is no bound; fit with approximation='variational'")
    rows, cols, values, weights = observed_parts(data, prior.mean_module)
    joint = prior(rows, cols)
    density = density_of(likelihood, values)
    latent = joint.loc.detach() + sites.psi
    expected = density.expected_log_prob(latent, sites.variance)
    expected = (expected if weights is None else weights * expected).sum()
    means: tuple[LowRank | None, ...] = (None,)
    if isinstance(posterior, TracePosterior):
        _check_ridge(posterior)
        means = posterior.means if isinstance(posterior, TraceSumPosterior) else (posterior.mean_factors,)
    low_rank = [mean for mean in means if mean is not None]
    if not low_rank:
        moving = _ridge_part(joint, sites.coefficients) + (sites.coefficients * joint.loc).sum()
    else:
        slope = density.expect(latent, sites.variance).slope
        slope = slope if weights is None else weights * slope
        moving = (slope * joint.loc).sum()
        for term, mean in zip(prior.terms, means, strict=True):
            moving = moving + (
                _ridge_part(term(rows, cols), slope) if mean is None else _low_rank_part(term, data, mean, slope)
            )
    noise = posterior.conditional.noise
    rest = pair_log_marginal(joint.lazy_covariance_matrix, torch.zeros_like(latent), noise, MarginalSettings(**options))
    moving = moving + expected + rest.value
    value = with_gradients(latent.new_tensor(sites.bound), [(moving, torch.ones_like(moving))])
    trace_norm = sum(float(mean.values.double().sum()) for mean in low_rank) if low_rank else None
    return EvidenceBound(value, rest.standard_error, trace_norm)


def _ridge_part(joint: MultivariateNormal, coefficients: Tensor) -> Tensor:
    """Half of <dK, a a^T> for the covariance K (T, T) of a term and its dual coefficients a (T,)."""
    return (coefficients * (joint.lazy_covariance_matrix @ coefficients)).sum() / 2


def _low_rank_part(prior: MatrixGP, data: ObservedMatrix, mean: LowRank, slope: Tensor) -> Tensor:
    """Half of <dK_M, G K_N A^T> + <dK_N, G^T K_M A>, with G the slopes (T,) as a matrix and A = C diag(s) D^T."""
    row_op, col_op = prior.row_axis.covariance(), prior.col_axis.covariance()
    pattern = data.pattern.to(slope.device)
    sparse, sparse_t = pattern.matrix(slope), pattern.matrix_t(slope)
    by_rows = (row_op @ mean.left) * (sparse @ (mean.right_image * mean.values))
    by_cols = (col_op @ mean.right) * (sparse_t @ (mean.left_image * mean.values))
    return (by_rows.sum() + by_cols.sum()) / 2


def _check_ridge(posterior: Any) -> None:
    """A mean that maximises another function has no envelope theorem."""
    penalties = posterior.penalties if isinstance(posterior, TraceSumPosterior) else [posterior.penalty]
    for penalty in penalties if torch.is_grad_enabled() else []:
        if not math.isclose(penalty.ridge, 1.0, rel_tol=MATCH):
            raise InputError(
                f"posterior: expected a penalty whose Hilbert part is 1, got {penalty.ridge:.6g}; fit with "
                "penalty=SpectralElasticNet.from_noise(1.0, mu), or ask for the value alone under torch.no_grad()"
            )


def learn_evidence(
    model: Any,
    data: ObservedMatrix,
    *,
    mu: float = 0.0,
    max_steps: int = 100,
    tolerance: float = 1e-3,
    progress: Progress = "auto",
    **options: Any,
) -> LearnedEvidence:
    r"""Maximise the evidence bound (less :math:`\mu \|B\|_*`) over all raw parameters that take gradients, in place.

    :param model: :class:`mvgp.FullGP` or :class:`mvgp.TraceGP` with a pointwise likelihood; its own strength and
        penalty are not used.
    :param data: the observed pairs.
    :param mu: multiplier of the trace norm, of each term of a sum; 0 for none.
    :param max_steps: of L-BFGS, each with a fit that starts from the one before.
    :param tolerance: on the largest derivative by a raw parameter, divided by the root of the number of observations.
        Missing it warns.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.
    :param options: ``method``, ``tolerance`` and so on of the log determinant.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.hyperparameters import learn_evidence
        >>> kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
        >>> x = torch.linspace(0, 3, 6).double()
        >>> prior = mvgp.MatrixGP(kernel, gpytorch.kernels.RBFKernel().double(), row_inputs=x, col_inputs=x)
        >>> counts = torch.tensor([4, 7, 5, 0, 1, 0, 6, 2, 1.0])
        >>> data = mvgp.ObservedMatrix([0, 0, 1, 4, 5, 5, 1, 3, 3], [0, 1, 0, 5, 4, 5, 1, 3, 4], counts, (6, 6))
        >>> result = learn_evidence(mvgp.FullGP(prior, mvgp.likelihoods.LogPoissonLikelihood()), data)
        >>> result.converged
        True

    """
    prior: Any = getattr(model, "prior", None)
    likelihood: Any = getattr(model, "likelihood", None)
    if not isinstance(prior, MatrixGP | SumGP) or not is_pointwise(likelihood):
        raise InputError(
            f"model: expected mvgp.FullGP or mvgp.TraceGP with a pointwise likelihood (Bernoulli, Poisson, ...), got "
            f"{shown(model)}"
        )
    check_instance(data, "data", ObservedMatrix, "mvgp.ObservedMatrix")
    refuse_gradient(data, "data")
    prior.refuse_gradients()
    mu = check_not_negative(mu, "mu")
    tolerance, max_steps = check_tolerance(tolerance), check_iterations(max_steps, "max_steps")
    progress = check_progress(progress)
    likelihood.to(prior.dtype)
    vector = ParameterVector({"": prior, "likelihood": likelihood})
    fitted: list[FullPosterior | TracePosterior] = []

    def evaluate() -> Tensor:
        with torch.no_grad():
            fitted[:] = [_fit(prior, likelihood, data, mu)]
        bound = evidence_bound(prior, likelihood, data, fitted[0], **options)
        return bound.value - mu * (bound.trace_norm or 0.0)

    objective = Objective(vector, evaluate)
    objective.maximise(
        max_steps,
        tolerance * len(data) ** 0.5,
        unit=len(data) ** 0.5,
        precision=1e-12,
        searches=30,
        label="evidence bound",
        progress=progress,
    )
    fields = objective.result_fields(tolerance, len(data))
    result = LearnedEvidence(**fields, posterior=fitted[0])
    result.warn_unless_converged("allow more steps")
    return result


@dataclass(frozen=True, kw_only=True)
class LearnedEvidence(LearningResult):
    r"""The outcome of :func:`learn_evidence`; its objective is :math:`\mathcal{L} - \mu \|B\|_*`.

    :param posterior: the one at the end.
    """

    posterior: FullPosterior | TracePosterior


def _fit(prior: MatrixGP | SumGP, likelihood: Any, data: ObservedMatrix, mu: float) -> FullPosterior | TracePosterior:
    """The posterior at the parameters as they are."""
    if mu == 0:
        return FullGP(prior, likelihood).fit(data)
    penalty = SpectralElasticNet.from_noise(1.0, mu)
    return TraceGP(prior, likelihood, penalty=penalty, tolerance=1e-8, max_iterations=5000).fit(data)
