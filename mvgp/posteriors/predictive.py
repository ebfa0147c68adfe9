"""Predictions of observations: the posterior of a latent value, seen through the likelihood."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood, _GaussianLikelihoodBase, _OneDimensionalLikelihood
from torch.distributions import Bernoulli, Categorical, Distribution, MixtureSameFamily

from ..checks import without_gradient
from ..errors import InputError, SizeError
from ..mean.sites import SiteReport, Sites

NODES = 64  # of Gauss-Hermite quadrature, up to a standard deviation of 1
STEP = 0.125  # between nodes beyond that: a likelihood is smooth on the scale of 1
MAX_NODES = 4096


def predictive(likelihood: Any, latent: MultivariateNormal, **params: Any) -> Distribution:
    r"""The distribution of observations: :math:`\int p(y \mid z)\, q(z)\, dz` at each of Q cells.

    Where a likelihood has a ``marginal`` of its own (Gaussian, probit), that is used. Otherwise the integral is a sum
    over quadrature nodes, and the result a mixture: its mean, variance, log density and samples are those of counts or
    real numbers; for two classes it is one Bernoulli distribution.

    :param latent: the posterior at Q cells.
    :param params: further arguments of the likelihood, such as ``noise=`` of a ``FixedNoiseGaussianLikelihood``.
    """
    if isinstance(likelihood, _GaussianLikelihoodBase):
        result: Distribution = likelihood(latent, **params)
        return result
    plain = (Likelihood.marginal, _OneDimensionalLikelihood.marginal)
    if getattr(type(likelihood), "marginal", None) not in plain:
        return likelihood.marginal(latent, **params)
    deviation = latent.variance.sqrt()
    nodes, weights = (torch.from_numpy(part).to(latent.loc) for part in normal_quadrature(float(deviation.max())))
    at = latent.loc.unsqueeze(-1) + deviation.unsqueeze(-1) * nodes  # (Q, K)
    components = likelihood.forward(at, **params)
    share = weights.expand(at.shape)
    if isinstance(components, Bernoulli):
        return Bernoulli(probs=(share * components.probs).sum(-1).clamp(0, 1))
    if not isinstance(components, Distribution) or components.batch_shape != at.shape or components.event_shape:
        raise InputError(
            f"likelihood: {type(likelihood).__name__} gives no distribution of one number for each cell; predict with "
            "likelihood.marginal(posterior(rows, cols))"
        )
    return MixtureSameFamily(Categorical(probs=share), components)


def normal_quadrature(deviation: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Nodes and weights (K,) of the standard normal distribution, for functions of ``deviation`` times it.

    Gauss-Hermite nodes are too far apart for a wide distribution. The trapezoidal rule on a grid of step h has an error
    of about :math:`\exp(-2 \pi^2 / h^2)` for the weight itself, and reaches as far as exponentials of counts need.
    """
    if deviation <= 1:
        nodes, weights = np.polynomial.hermite.hermgauss(NODES)
        return math.sqrt(2) * nodes, weights / math.sqrt(math.pi)
    reach = min(9 + 2 * deviation, 38.0)  # from there on weights are 0 in double precision
    count = min(math.ceil(2 * reach * deviation / STEP), MAX_NODES) + 1
    nodes = np.linspace(-reach, reach, count)
    weights = np.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


class Predictions:
    """What a posterior says about observations, and about itself under a pointwise likelihood.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.kernels import PrecomputedKernel
        >>> kernel = PrecomputedKernel(torch.eye(2, dtype=torch.float64))
        >>> data = mvgp.ObservedMatrix([0, 1], [0, 1], [1.0, 0.0], (2, 2))
        >>> likelihood = gpytorch.likelihoods.BernoulliLikelihood()
        >>> posterior = mvgp.FullGP(mvgp.MatrixGP(kernel, kernel), likelihood).fit(data)
        >>> posterior.predictive([0, 0], [0, 1]).probs.round(decimals=2), posterior.inference.converged
        (tensor([0.6700, 0.5000], dtype=torch.float64), True)

    """

    likelihood: Any = None  # set by a fit: the likelihood as it was, constant
    sites: Sites | None = None  # set by a fit under a pointwise likelihood

    @without_gradient
    def predictive(
        self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None, **params: Any
    ) -> Distribution:
        """The distribution of observations at pairs (``rows``, ``cols``): probabilities, counts, noisy values.

        It is one of torch or gpytorch with batch shape (Q,), or a joint normal distribution under Gaussian noise.

        :param params: further arguments of the likelihood, such as ``noise=`` of a ``FixedNoiseGaussianLikelihood``.
        """
        if self.likelihood is None:
            raise InputError(
                "predictive: the posterior has no likelihood of single observations (a ranking has none, files hold "
                "those of mvgp and gpytorch only); use posterior(rows, cols) for the latent values"
            )
        if hasattr(self.likelihood, "noise_at"):  # a noise of each row or column has to know which
            for name, new in (("row", row_inputs), ("col", col_inputs)):
                if new is not None and getattr(self.likelihood, f"{name}_deviation") is not None:
                    raise InputError(f"{name}_inputs: the noise of a new {name} is not known; use the posterior itself")
            params = {"rows": rows, "cols": cols, **params}
        latent = self(rows, cols, row_inputs=row_inputs, col_inputs=col_inputs)  # type: ignore[operator]
        return predictive(self.likelihood, latent, **params)

    @property
    def inference(self) -> SiteReport | None:
        """Under a pointwise likelihood: how well the equations of the posterior hold; None otherwise."""
        return None if self.sites is None else self.sites.report

    @property
    def evidence_bound(self) -> float:
        """Under a pointwise likelihood: the evidence bound, or Laplace's approximation of the log evidence."""
        if self.sites is None:
            raise InputError(
                "evidence_bound: expected a posterior of FullGP or TraceGP with a pointwise likelihood, as it was "
                "fitted; under Gaussian noise use mvgp.hyperparameters.log_marginal or trace_bound"
            )
        if self.sites.bound is None:
            raise SizeError("evidence_bound: there are too many observed pairs for the log determinant")
        return self.sites.bound
