"""What is maximised: metrics by name, or any function."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Protocol

import torch
from gpytorch.likelihoods import GaussianLikelihood, Likelihood

from ..checks import as_tensor
from ..data import ObservedMatrix
from ..data.positive_pairs import positive_pairs
from ..errors import InputError
from ..metrics import ranking_scores
from ..posteriors.loss import Data
from .gaussian_metrics import LogDensity, SquaredError
from .score import Score, score_over_tasks


class Metric(Protocol):
    """How well a posterior does on held-out data; larger is better.

    :param name: what tables call it.
    """

    name: str

    def __call__(self, posterior: Any, train: Data, held_out: Data) -> Score:
        """The score of a posterior that was fitted to ``train``."""
        ...


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
        found = ranking_scores(posterior, held_out, exclude=train, k=self.k, rows=tasks)
        return score_over_tasks(self.name, found.tasks, found.per_task(self.name))


class CustomMetric:
    """A function of (posterior, train, held_out): a number, or (R,) numbers, one for each task (NaN for none)."""

    def __init__(self, function: Callable[[Any, Data, Data], Any]) -> None:
        self.function = function
        self.name: str = getattr(function, "__qualname__", type(function).__qualname__)

    def __call__(self, posterior: Any, train: Data, held_out: Data) -> Score:
        """What the function says."""
        found = as_tensor(self.function(posterior, train, held_out), self.name)
        if found.dim() > 1 or found.is_complex():
            raise InputError(f"{self.name}: expected a number or one for each task, got shape {tuple(found.shape)}")
        if found.dim() == 1:
            return score_over_tasks(self.name, torch.arange(len(found)), found.double())
        if not bool(torch.isfinite(found)):
            raise InputError(f"{self.name}: expected a finite number, got {found.item()}")
        return Score(float(found), math.nan)


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
