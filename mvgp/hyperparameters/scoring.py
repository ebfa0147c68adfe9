"""What a validation maximises: metrics by name, or any function."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from torch import Tensor

from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import positive_pairs
from ..errors import InputError
from ..likelihoods.losses import Data
from ..metrics.ranking import ranking_scores
from ..tensor_checks import as_tensor


@dataclass(frozen=True)
class Score:
    """One metric of one fit, larger is better.

    :param value: the average over tasks (weighted where tasks have weights), or the number itself.
    :param standard_error: of the average over tasks; NaN with fewer than two tasks.
    :param tasks: (R,) row of each task that has a value; None where there are no tasks.
    :param per_task: (R,) its values.
    """

    value: float
    standard_error: float
    tasks: Tensor | None = field(default=None, compare=False, repr=False)
    per_task: Tensor | None = field(default=None, compare=False, repr=False)


class Metric(Protocol):
    """How well a posterior does on held-out data; larger is better.

    :param name: what tables call it.
    """

    name: str

    def __call__(self, posterior: Any, train: Data, held_out: Data) -> Score:
        """The score of a posterior that was fitted to ``train``."""
        ...


def resolve_metric(metric: str | Callable[[Any, Data, Data], Any], likelihood: Likelihood, data: Data) -> Metric:
    """By name, or from a function; refuses what makes no sense for the likelihood or the data."""
    if isinstance(metric, str):
        if metric.lower() == "-mse":
            return SquaredError(likelihood, data)
        return (
            LogDensity(likelihood, data) if metric.lower() == "log density" else RankingMetric(metric, likelihood, data)
        )
    if not callable(metric):
        raise InputError(f"metric: expected a name or a function (posterior, train, held_out), got {metric!r}")
    return CustomMetric(metric)


class RankingMetric:
    """A figure of merit of :func:`~mvgp.metrics.ranking_scores`: held-out positives among all but training positives.

    :param name: ``AUC``, or ``P@10``, ``R@10``, ``MAP@10``, ``nDCG@10``, or any other k.
    :param likelihood: that of the model; with a Gaussian one the data have to be labels all the same.
    :param data: all of it.
    """

    def __init__(self, name: str, likelihood: Likelihood, data: Data) -> None:
        match = re.fullmatch(r"auc|(?:p|r|ap|map|ndcg)@([1-9]\d*)", name.lower())
        if match is None:
            raise InputError(
                "metric: expected 'AUC', or P, R, MAP or nDCG with a place, as 'MAP@100', or '-MSE', 'log density', "
                f"or a function, got {name!r}"
            )
        self.name, self.k = name, int(match[1] or 1)
        if isinstance(likelihood, GaussianLikelihood) and isinstance(data, ObservedMatrix):
            kinds = len(data.values.unique())
            if kinds > 2:
                raise InputError(
                    f"metric: {self.name!r} ranks positives, but the data hold {kinds} different numbers and the "
                    "likelihood is Gaussian; use '-MSE', 'log density' or a function"
                )

    def __call__(self, posterior: Any, train: Data, held_out: Data) -> Score:
        """Averaged over tasks with a held-out positive."""
        tasks = positive_pairs(held_out, held_out.shape, "held_out")[0].unique()
        if len(tasks) == 0:
            raise InputError(
                f"{self.name}: expected a held-out positive, got none among {len(held_out)} held-out pairs"
            )
        scores = ranking_scores(posterior, held_out, exclude=train, k=self.k, rows=tasks)
        return score_over_tasks(self.name, scores.tasks, scores.per_task(self.name))


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
        variance: Tensor = posterior.variance(held_out.rows, held_out.cols).double().cpu()
        self._last = posterior.conditional, held_out, variance
        return variance


class CustomMetric:
    """A function of (posterior, train, held_out): a number, or (R,) numbers, one for each task (NaN for none)."""

    def __init__(self, function: Callable[[Any, Data, Data], Any]) -> None:
        self.function = function
        self.name: str = getattr(function, "__qualname__", type(function).__qualname__)

    def __call__(self, posterior: Any, train: Data, held_out: Data) -> Score:
        """What the function says."""
        values = as_tensor(self.function(posterior, train, held_out), self.name)
        if values.dim() > 1 or values.is_complex():
            raise InputError(f"{self.name}: expected a number or one for each task, got shape {tuple(values.shape)}")
        if values.dim() == 1:
            return score_over_tasks(self.name, torch.arange(len(values)), values.double())
        if not bool(torch.isfinite(values)):
            raise InputError(f"{self.name}: expected a finite number, got {values.item()}")
        return Score(float(values), math.nan)


def score_over_tasks(name: str, tasks: Tensor, values: Tensor, weights: Tensor | None = None) -> Score:
    """The average over tasks, those with NaN left out.

    With weights its standard error treats the sum over a task as one draw: it is that of a ratio of two sums.

    :param name: of the metric, for messages.
    :param tasks: (R,).
    :param values: (R,).
    :param weights: (R,) positive; all 1 when left out.
    """
    kept = ~torch.isnan(values)
    if not bool(kept.any()):
        raise InputError(f"{name}: expected at least one held-out task with a value, got none of {len(values)}")
    tasks, values = tasks[kept].cpu(), values[kept].double().cpu()
    weights = torch.ones_like(values) if weights is None else weights[kept].double().cpu()
    total, count = weights.sum(), len(values)
    value = (weights * values).sum() / total
    error = math.nan
    if count > 1:
        error = float(((weights * (values - value)).square().sum() * count / (count - 1)).sqrt() / total)
    if not math.isfinite(value):
        raise InputError(f"{name}: expected a finite value, got {float(value)}")
    return Score(float(value), error, tasks, values)


def score_over_rows(name: str, rows: Tensor, values: Tensor, weights: Tensor) -> Score:
    """The weighted average over entries, each row a task.

    :param rows: (Q,) of each entry.
    :param values: (Q,).
    :param weights: (Q,) positive.
    """
    tasks, task = rows.cpu().unique(return_inverse=True)
    sums = torch.zeros(2, len(tasks), dtype=torch.float64)
    sums.index_add_(1, task, torch.stack([weights * values, weights]).double().cpu())
    return score_over_tasks(name, tasks, sums[0] / sums[1], sums[1])


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
