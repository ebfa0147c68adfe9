"""The posterior of a factor GP: a maximum a posteriori of user-chosen rank."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.likelihoods import Likelihood
from torch import Tensor

from ..data import ObservedMatrix
from ..priors import MatrixGP
from ..solvers import MeanProblem
from ..solvers.factored import FactoredProblem
from ..solvers.hybrid import svd_of_product
from ..solvers.low_rank import from_images
from .coefficients import LowRankCoefficients
from .full import condition
from .gaussian import GaussianPosterior
from .laplace import LaplaceCovariance
from .loss import make_loss


class FactorPosterior(GaussianPosterior):
    r"""A local optimum of equation (7), :math:`\psi = b + U V^T`; its covariance is a Laplace approximation.

    :param objective: value of equation (7) times noise / 2, comparable with the trace norm's objective.
    :param restarts: the objective of every restart, best first.
    :param rank: rank of the mean.
    """

    def __init__(self, *parts: Any, objective: float, restarts: list[float], rank: int) -> None:
        super().__init__(*parts)
        self.objective, self.restarts, self.rank = objective, restarts, rank

    @property
    def factors(self) -> tuple[Tensor, Tensor]:
        """(M, R) and (N, R): their product is the mean, up to the prior mean."""
        found = self.conditional
        assert isinstance(found, LaplaceCovariance)
        return found.row_root._matmul(found.x), found.col_root._matmul(found.z)


@torch.no_grad()
def factor_posterior(
    prior: MatrixGP,
    data: ObservedMatrix,
    likelihood: Likelihood,
    noise: Tensor,
    *,
    rank: int,
    restarts: int,
    max_iterations: int,
    seed: int,
) -> FactorPosterior:
    r"""Equation (7) times noise / 2.

    :math:`\tfrac12 \sum w (r - u \cdot v)^2 + \tfrac{\sigma^2}{2} (\|X\|^2 + \|Z\|^2)` in whitened factors.

    At sufficient rank its global optimum is that of the trace norm with lam = noise and alpha = 1.
    """
    prior = prior.snapshot()
    conditional = condition(prior, data, noise, tolerance=1e-8)
    pairs = conditional.pairs
    values = data.values.to(dtype=prior.dtype, device=pairs.rows.device)
    targets = values - prior.mean_module(pairs.rows, pairs.cols)
    problem = MeanProblem(
        *conditional.ops, data.pattern.to(targets.device), make_loss(prior, data, likelihood, targets.device)
    )
    factored = FactoredProblem(problem)
    generator = torch.Generator().manual_seed(seed)
    scale = float(targets.square().mean().sqrt().clamp_min(1e-6) / rank**0.5) ** 0.5
    tried = []
    for _ in range(restarts):
        start = factored.random(rank, scale / max(factored.sizes) ** 0.25, generator)
        x, z, value, _ = factored.minimise(*start, float(noise), 0.0, max_iterations=max_iterations)
        tried.append((value, x, z))
    tried.sort(key=lambda found: found[0])
    value, x, z = tried[0]
    u, s, v = svd_of_product(x, z)
    mean = from_images(problem, factored.row_root._matmul(u), factored.col_root._matmul(v), s)
    laplace = LaplaceCovariance(
        factored.row_root, factored.col_root, u * s.sqrt(), v * s.sqrt(), pairs, conditional.noise
    )
    posterior = FactorPosterior(
        prior,
        conditional.ops,
        LowRankCoefficients(mean.left * mean.values, mean.right),
        laplace,
        objective=value,
        restarts=[found[0] for found in tried],
        rank=mean.rank,
    )
    posterior._noise = float(noise)
    return posterior
