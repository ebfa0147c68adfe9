"""Classification on a partly observed grid: variational inference with a whole covariance, to the same evidence bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import gpytorch
import torch
from gpytorch.variational import CholeskyVariationalDistribution, NaturalVariationalDistribution, VariationalStrategy
from torch import Tensor

import mvgp
from mvgp.likelihoods.densities import ProbitDensity

from .grid import points_of
from .problems import Grid, grid

SHARE = 0.4  # of the cells that are observed
NEAR = 0.1  # how far below the largest bound counts as having reached it


def labels(shape: list[int]) -> tuple[Grid, mvgp.ObservedMatrix]:
    """A sample of the prior, seen through a probit link."""
    problem = grid(shape, share=SHARE)
    chance = torch.special.ndtr(2 * problem.data.values)
    drawn = torch.rand(len(problem.data), generator=torch.Generator().manual_seed(1), dtype=torch.float64) < chance
    data = problem.data
    return problem, mvgp.ObservedMatrix(data.rows, data.cols, drawn.double(), data.shape)


def full_gp(shape: list[int]) -> Callable[[], dict]:
    problem, data = labels(shape)

    def run() -> dict:
        posterior = mvgp.FullGP(problem.prior, gpytorch.likelihoods.BernoulliLikelihood()).fit(data)
        report = posterior.inference
        assert report is not None
        mean = posterior.mean(data.rows, data.cols)
        return {"bound": posterior.evidence_bound, "steps": report.iterations, "mean": mean[::20].tolist()}

    return run


class LatentGP(gpytorch.models.ApproximateGP):
    """GPyTorch's model with every observation as an inducing point: nothing but the optimiser is approximate."""

    def __init__(self, points: Tensor, lengthscale: float, natural: bool) -> None:
        kind = NaturalVariationalDistribution if natural else CholeskyVariationalDistribution
        strategy = VariationalStrategy(self, points, kind(len(points)), learn_inducing_locations=False)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        kernels = [gpytorch.kernels.RBFKernel(active_dims=[axis]) for axis in (0, 1)]
        kernels[0].lengthscale = kernels[1].lengthscale = lengthscale
        self.covar_module = kernels[0] * kernels[1]

    def forward(self, points: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at points (Q, 2)."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(points), self.covar_module(points))


def approximate_gp(shape: list[int], natural: bool, rate: float, budget: float) -> Callable[[], dict]:
    """Until the bound is ``NEAR`` the one that FullGP reaches, or for ``budget`` seconds; looking at it is not timed.

    The bound is computed from their Gaussian with exact values of ln Phi (GPyTorch's own are off by up to 5e-4 each).
    """
    problem, data = labels(shape)
    points = points_of(problem, data.rows, data.cols)
    likelihood = gpytorch.likelihoods.BernoulliLikelihood().double()
    goal = mvgp.FullGP(problem.prior, likelihood).fit(data).evidence_bound - NEAR
    density = ProbitDensity(2 * data.values - 1)

    def steps(model: LatentGP) -> Iterator[None]:
        model.covar_module.requires_grad_(False)
        objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(data))
        chosen = model.variational_parameters()
        optimiser = (
            gpytorch.optim.NGD(chosen, num_data=len(data), lr=rate) if natural else torch.optim.Adam(chosen, lr=rate)
        )
        while True:
            optimiser.zero_grad()
            loss = -objective(model(points), data.values)
            loss.backward()
            optimiser.step()
            yield

    @torch.no_grad()
    def bound(model: LatentGP) -> tuple[float, Tensor]:
        latent = model(points)
        expected = density.expected_log_prob(latent.mean, latent.variance.clamp_min(1e-12)).sum()
        return float(expected - model.variational_strategy.kl_divergence()), latent.mean

    def run() -> dict:
        torch.manual_seed(0)
        model = LatentGP(points, problem.lengthscale, natural).double().train()
        step, spent, count, best, mean = steps(model), 0.0, 0, -float("inf"), data.values
        while spent < budget and best < goal:
            began = time.perf_counter()
            next(step)
            spent, count = spent + time.perf_counter() - began, count + 1
            found, mean = bound(model)
            best = max(best, found)
        return {"bound": best, "steps": count, "spent": spent, "reached": best >= goal, "mean": mean[::20].tolist()}

    return run
