"""Variances: a block of cells of a grid, and a whole row of a matrix on graphs."""

from __future__ import annotations

from collections.abc import Callable

import gpytorch
import torch

import mvgp

from .defaults import botorch_settings
from .grid import ProductGP, latent_kronecker, points_of
from .problems import gaussian, grid, planted


def full_gp(shape: list[int], block: list[int], tolerance: float | None = None) -> Callable[[], dict]:
    problem = grid(shape)
    posterior = mvgp.FullGP(problem.prior, gaussian(), tolerance=tolerance)

    def run() -> dict:
        # fitted within the time: what is kept from one question to the next is no answer to this one
        return {"variance": posterior.fit(problem.data).variance(*problem.cells(*block)).tolist()}

    return run


def botorch(shape: list[int], block: list[int]) -> Callable[[], dict]:
    problem = grid(shape)
    rows, cols = problem.block(*block)

    def run() -> dict:
        model = latent_kronecker(problem)
        with torch.no_grad(), botorch_settings(), model.use_iterative_methods():
            return {"variance": model.posterior(problem.x[rows], problem.t[cols]).variance.flatten().tolist()}

    return run


def exact_gp(shape: list[int], block: list[int], fast: bool) -> Callable[[], dict]:
    problem = grid(shape)
    seen = points_of(problem, problem.data.rows, problem.data.cols)
    asked = points_of(problem, *problem.cells(*block))

    def run() -> dict:
        model = ProductGP(seen, problem.data.values, problem.lengthscale).eval()
        with torch.no_grad(), gpytorch.settings.fast_pred_var(fast):
            return {"variance": model(asked).variance.tolist()}

    return run


def whole_row(shape: list[int], observed: int, rank: int, kept: int = 100) -> Callable[[], dict]:
    """The variances of a row; fitting is not timed."""
    problem = planted(shape, observed, rank, held_out=10)
    posterior = mvgp.FullGP(problem.prior, gaussian(problem.noise_std**2)).fit(problem.data)

    def run() -> dict:
        found = posterior.variances([0])
        return {
            "variance": found.values[0, :kept].tolist(),
            "largest_standard_error": float(found.error.max()),
            "probes": found.probes,
        }

    return run
