"""What every recipe prior x likelihood shares."""

from __future__ import annotations

from typing import Any

import gpytorch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from ..checks import refuse_gradient
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..likelihoods.losses import check_gaussian
from ..likelihoods.ranking import RankingLikelihood
from ..priors.matrix_gp import MatrixGP


class Recipe(gpytorch.Module):
    """A prior and a likelihood, checked.

    :param prior: the matrix-variate prior.
    :param likelihood: gpytorch's ``GaussianLikelihood``, or a ranking likelihood of ours; its noise is the variance of
        an observation (or of a score) with weight 1.
    """

    def __init__(self, prior: MatrixGP, likelihood: GaussianLikelihood | RankingLikelihood) -> None:
        super().__init__()
        if not isinstance(prior, MatrixGP):
            raise InputError(f"prior: expected mvgp.MatrixGP, got {type(prior).__name__}")
        if not isinstance(likelihood, GaussianLikelihood | RankingLikelihood):
            raise InputError(
                f"likelihood: {type(self).__name__} takes gpytorch's GaussianLikelihood or a ranking likelihood, "
                f"got {type(likelihood).__name__} (for known noise of each entry, give the data weights)"
            )
        if isinstance(likelihood, GaussianLikelihood):
            check_gaussian(likelihood, type(self).__name__)
        self.prior, self.likelihood = prior, likelihood

    def forward(self, rows: Any, cols: Any) -> MultivariateNormal:
        """The prior at pairs (``rows``, ``cols``)."""
        return self.prior(rows, cols)

    def _noise_for(self, data: Any) -> Tensor:
        """() noise variance of an observation with weight 1, once ``data`` is known to be data."""
        if not isinstance(data, ObservedMatrix | PositiveUnlabelled):
            raise InputError(f"data: expected mvgp.ObservedMatrix, got {type(data).__name__}")
        refuse_gradient(data, "data")
        self.prior.refuse_gradients()
        noise = self.likelihood.noise.detach().to(self.prior.dtype).reshape(-1)
        if noise.numel() != 1:
            raise InputError(f"likelihood: expected one noise variance, got {noise.numel()}")
        if not 0 < float(noise) < float("inf"):
            raise InputError(
                f"likelihood: expected a positive finite noise variance in {noise.dtype}, got {float(noise)!r}"
            )
        return noise[0]
