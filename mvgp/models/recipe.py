"""What every recipe prior x likelihood shares."""

from __future__ import annotations

from typing import Any

import gpytorch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from ..data import ObservedMatrix
from ..errors import InputError
from ..priors import MatrixGP


class GaussianRecipe(gpytorch.Module):
    """A prior and a Gaussian likelihood, checked.

    :param prior: the matrix-variate prior.
    :param likelihood: gpytorch's ``GaussianLikelihood``; its noise is the variance of an observation with weight 1.
    """

    def __init__(self, prior: MatrixGP, likelihood: GaussianLikelihood) -> None:
        super().__init__()
        if not isinstance(prior, MatrixGP):
            raise InputError(f"prior: expected mvgp.MatrixGP, got {type(prior).__name__}")
        if not isinstance(likelihood, GaussianLikelihood):
            raise InputError(
                f"likelihood: {type(self).__name__} takes gpytorch.likelihoods.GaussianLikelihood, got "
                f"{type(likelihood).__name__} (for known noise of each entry, give the data weights)"
            )
        self.prior, self.likelihood = prior, likelihood

    def forward(self, rows: Any, cols: Any) -> MultivariateNormal:
        """The prior at pairs (``rows``, ``cols``)."""
        found: MultivariateNormal = self.prior(rows, cols)
        return found

    def _noise_for(self, data: Any) -> Tensor:
        """() noise variance of an observation with weight 1, once ``data`` is known to be data."""
        if not isinstance(data, ObservedMatrix):
            raise InputError(f"data: expected mvgp.ObservedMatrix, got {type(data).__name__}")
        noise = self.likelihood.noise.detach().to(self.prior.dtype).reshape(-1)
        if noise.numel() != 1:
            raise InputError(f"likelihood: expected one noise variance, got {noise.numel()}")
        return noise[0]
