"""Predictions of observations: the posterior of a latent value, seen through the likelihood."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood, _GaussianLikelihoodBase, _OneDimensionalLikelihood
from torch.distributions import Bernoulli, Categorical, Distribution, MixtureSameFamily

from ..errors import InputError

NODES = 64  # of the quadrature


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
        return likelihood.marginal(latent, **params)  # type: ignore[no-any-return]
    nodes, weights = (torch.from_numpy(part).to(latent.loc) for part in np.polynomial.hermite.hermgauss(NODES))
    at = latent.loc.unsqueeze(-1) + (2 * latent.variance).sqrt().unsqueeze(-1) * nodes  # (Q, K)
    components = likelihood.forward(at, **params)
    share = (weights / math.sqrt(math.pi)).expand(at.shape)
    if isinstance(components, Bernoulli):
        return Bernoulli(probs=(share * components.probs).sum(-1).clamp(0, 1))
    if not isinstance(components, Distribution) or components.batch_shape != at.shape or components.event_shape:
        raise InputError(
            f"likelihood: {type(likelihood).__name__} gives no distribution of one number for each cell; predict with "
            "likelihood.marginal(posterior(rows, cols))"
        )
    return MixtureSameFamily(Categorical(probs=share), components)
