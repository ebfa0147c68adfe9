"""Metrics of held-out numbers under Gaussian noise."""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from torch import Tensor

from ..data import ObservedMatrix
from ..errors import InputError
from ..posteriors.loss import Data
from .score import Score, score_over_rows


class SquaredError:
    """Minus the mean squared error of held-out entries, weighted by their weights."""

    name = "-MSE"

    def __init__(self, likelihood: Likelihood, data: Data) -> None:
        _check_gaussian(self.name, likelihood, data)

    def __call__(self, posterior: Any, train: Data, held_out: Data) -> Score:
        """Averaged over entries; rows are the tasks of the standard error."""
        values, weights, mean = _entries(self.name, posterior, held_out)
        return score_over_rows(self.name, held_out.rows, -(values - mean).square(), weights)


class LogDensity:
    """Log density of held-out entries, noise included, averaged over entries.

    The variance is the same along a path, so the last one is kept.
    """

    name = "log density"

    def __init__(self, likelihood: Likelihood, data: Data) -> None:
        _check_gaussian(self.name, likelihood, data)
        self._noise = likelihood.noise.detach().item()  # of an entry with weight 1
        self._last: tuple[Any, Any, Tensor] | None = None

    def __call__(self, posterior: Any, train: Data, held_out: Data) -> Score:
        """Averaged over entries; rows are the tasks of the standard error."""
        values, weights, mean = _entries(self.name, posterior, held_out)
        variance = self._variance(posterior, held_out) + self._noise / weights
        density = -0.5 * ((values - mean).square() / variance + variance.log() + math.log(2 * math.pi))
        return score_over_rows(self.name, held_out.rows, density, torch.ones_like(density))

    def _variance(self, posterior: Any, held_out: Data) -> Tensor:
        """(Q,) of the noise-free entries."""
        last = self._last
        if last is not None and last[0] is posterior.conditional and last[1] is held_out:
            return last[2]
        found: Tensor = posterior.variance(held_out.rows, held_out.cols).double().cpu()
        self._last = posterior.conditional, held_out, found
        return found


def _check_gaussian(name: str, likelihood: Likelihood, data: Data) -> None:
    if not isinstance(likelihood, GaussianLikelihood):
        raise InputError(f"metric: {name!r} needs a Gaussian likelihood, got {type(likelihood).__name__}")
    if not isinstance(data, ObservedMatrix):
        raise InputError(f"metric: {name!r} needs an ObservedMatrix, got {type(data).__name__}")


def _entries(name: str, posterior: Any, held_out: Data) -> tuple[Tensor, Tensor, Tensor]:
    """(Q,) each: held-out values, their weights, the posterior mean there."""
    if not isinstance(held_out, ObservedMatrix):
        raise InputError(f"{name}: expected an ObservedMatrix held out, got {type(held_out).__name__}")
    values = held_out.values.double().cpu()
    weights = torch.ones_like(values) if held_out.weights is None else held_out.weights.double().cpu()
    return values, weights, posterior.mean(held_out.rows, held_out.cols).double().cpu()
