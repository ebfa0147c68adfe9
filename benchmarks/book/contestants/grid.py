"""Exact GPs on a partly observed grid: fit, the mean of all cells, and the variances of a block of cells."""

from __future__ import annotations

import time
from collections.abc import Callable

import gpytorch
import torch
from botorch.models.latent_kronecker_gp import LatentKroneckerGP
from torch import Tensor

import mvgp

from .defaults import botorch_settings
from .problems import NOISE, Grid, gaussian, grid

KEPT = (10, 10)  # cells whose means are compared
BATCH = 4096  # cells that a dense model is asked for at a time


def _answer(problem: Grid, began: float, mean: Tensor, fitted: float, variance: Tensor) -> dict:
    """:param mean: (M, N); :param fitted: when it was there; :param variance: of the block."""
    rows, cols = problem.cells(*KEPT)
    return {
        "mean": mean[rows, cols].tolist(),
        "mean_seconds": fitted - began,
        "variance": variance.tolist(),
        "variance_seconds": time.perf_counter() - fitted,
    }


def full_gp(shape: list[int], block: list[int], tolerance: float | None = None) -> Callable[[], dict]:
    problem = grid(shape)

    def run() -> dict:
        began = time.perf_counter()
        posterior = mvgp.FullGP(problem.prior, gaussian(), tolerance=tolerance).fit(problem.data)
        mean = posterior.scores()
        fitted = time.perf_counter()
        return _answer(problem, began, mean, fitted, posterior.variance(*problem.cells(*block)))

    return run


def botorch(shape: list[int], block: list[int]) -> Callable[[], dict]:
    problem = grid(shape)

    def run() -> dict:
        began = time.perf_counter()
        with torch.no_grad(), botorch_settings(), latent_kronecker(problem).use_iterative_methods():
            with gpytorch.settings.skip_posterior_variances(True):  # else it forms the covariance of all cells
                mean = latent_kronecker(problem).posterior(problem.x).mean
            fitted = time.perf_counter()
            rows, cols = problem.block(*block)
            variance = latent_kronecker(problem).posterior(problem.x[rows], problem.t[cols]).variance.flatten()
        return _answer(problem, began, mean.reshape(problem.data.shape), fitted, variance)

    return run


def latent_kronecker(problem: Grid) -> LatentKroneckerGP:
    """BoTorch's model with the same kernels and noise."""
    model = LatentKroneckerGP(
        train_X=problem.x,
        train_T=problem.t,
        train_Y=problem.data.to_dense(),
        covar_module_X=gpytorch.kernels.RBFKernel().to(problem.x),
        covar_module_T=gpytorch.kernels.RBFKernel().to(problem.x),
        mean_module_X=gpytorch.means.ZeroMean(),
        mean_module_T=gpytorch.means.ZeroMean(),
        outcome_transform=None,
    )
    model.covar_module_X.lengthscale = model.covar_module_T.lengthscale = problem.lengthscale
    model.likelihood.noise = torch.tensor(NOISE, dtype=torch.float64)
    return model.eval()


def dense(shape: list[int], block: list[int]) -> Callable[[], dict]:
    """Cholesky factor of the T x T covariance."""
    problem = grid(shape)

    @torch.no_grad()
    def run() -> dict:
        began = time.perf_counter()
        kernels = [problem.prior.row_axis.covariance().to_dense(), problem.prior.col_axis.covariance().to_dense()]
        rows, cols = problem.data.rows, problem.data.cols

        def cross(row: Tensor, col: Tensor) -> Tensor:
            """(Q, T)"""
            return kernels[0][row][:, rows].mul_(kernels[1][col][:, cols])

        covariance = torch.empty(len(rows), len(rows), dtype=torch.float64)
        for start in range(0, len(rows), BATCH):
            covariance[start : start + BATCH] = cross(rows[start : start + BATCH], cols[start : start + BATCH])
        covariance.diagonal().add_(NOISE)
        factor = torch.linalg.cholesky(covariance)
        weights = torch.zeros(problem.data.shape, dtype=torch.float64)
        weights[rows, cols] = torch.cholesky_solve(problem.data.values.unsqueeze(1), factor).squeeze(1)
        mean = kernels[0] @ weights @ kernels[1]
        fitted = time.perf_counter()
        asked = problem.cells(*block)
        root = torch.linalg.solve_triangular(factor, cross(*asked).mT, upper=False)
        prior = kernels[0].diagonal()[asked[0]] * kernels[1].diagonal()[asked[1]]
        return _answer(problem, began, mean, fitted, prior - root.square().sum(0))

    return run


class ProductGP(gpytorch.models.ExactGP):
    """A GP on points (x, t) with the product of two RBF kernels."""

    def __init__(self, points: Tensor, values: Tensor, lengthscale: float) -> None:
        super().__init__(points, values, gaussian())
        self.mean_module = gpytorch.means.ZeroMean()
        kernels = [gpytorch.kernels.RBFKernel(active_dims=[axis]).double() for axis in (0, 1)]
        kernels[0].lengthscale = kernels[1].lengthscale = lengthscale
        self.covar_module = kernels[0] * kernels[1]

    def forward(self, points: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at points (Q, 2)."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(points), self.covar_module(points))


def points_of(problem: Grid, rows: Tensor, cols: Tensor) -> Tensor:
    """(Q, 2)"""
    return torch.cat([problem.x[rows], problem.t[cols]], dim=1)


def exact_gp(shape: list[int], block: list[int], fast: bool = False) -> Callable[[], dict]:
    """GPyTorch with its default settings; ``fast`` is its ``fast_pred_var`` (LOVE) for the variances."""
    problem = grid(shape)

    def run() -> dict:
        began = time.perf_counter()
        seen = points_of(problem, problem.data.rows, problem.data.cols)
        model = ProductGP(seen, problem.data.values, problem.lengthscale).eval()
        everywhere = torch.cartesian_prod(*(torch.arange(size) for size in problem.data.shape))
        with torch.no_grad():
            with gpytorch.settings.skip_posterior_variances(True):
                parts = [model(points_of(problem, *part.mT)).mean for part in everywhere.split(BATCH)]
            fitted = time.perf_counter()
            asked = points_of(problem, *problem.cells(*block))
            with gpytorch.settings.fast_pred_var(fast):
                variance = model(asked).variance
        return _answer(problem, began, torch.cat(parts).reshape(problem.data.shape), fitted, variance)

    return run
