"""One path of a validation (a trace share and a fold, over decreasing strengths): its metric and its records."""

from __future__ import annotations

import copy
import hashlib
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from torch import Tensor

from ..checks import check_instance
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled, positive_pairs
from ..errors import InputError
from ..likelihoods.losses import Data
from ..metrics.ranking import Ranker, ranking_scores
from ..models.trace_gp import TraceGP
from ..posteriors.gaussian import TracePosterior
from ..tensor_checks import as_tensor, check_list
from .splits import NegativeSets, Split


def walk(
    model: TraceGP, split: Split, fold: int, trace_share: float, metric: Metric, settings: Settings
) -> Iterator[PathRecord]:
    """The records of one path, as they come; it ends early by rank or for lack of improvement.

    Without a trace norm no rank is low and all strong penalties rank alike: such a path is walked to its end.
    """
    recipe = with_share(model, trace_share)
    sets = fitted_sets(split.train, settings.negatives, settings.seed, fold + 1)
    paths = [recipe.path(data, settings.strengths) for data in sets]  # the sets go down together
    best, since = -float("inf"), 0
    for strength in settings.strengths:
        began = time.perf_counter()
        posteriors = [next(path).posterior for path in paths]
        seconds = time.perf_counter() - began
        score = metric(joined(posteriors, settings.negatives), split.train, split.held_out)
        proofs = [posterior.certificate for posterior in posteriors]
        rank, gap = max(proof.rank for proof in proofs), max(proof.relative_gap for proof in proofs)
        iterations = sum(proof.iterations for proof in proofs)
        yield PathRecord(trace_share, strength, fold, score, rank, gap, iterations, seconds)
        best, since = (score.value, 0) if score.value > best else (best, since + 1)
        stalled = settings.patience is not None and since >= settings.patience
        if trace_share > 0 and (stalled or (settings.max_rank is not None and rank > settings.max_rank)):
            return


@dataclass(frozen=True)
class PathRecord:
    """One point of one path.

    :param trace_share: of the path.
    :param strength: lam / lam_max.
    :param fold: whose training part was fitted.
    :param score: on its held-out part.
    :param rank: of the mean; the largest over sets of negatives.
    :param relative_gap: of the certificate; the largest over sets of negatives.
    :param iterations: of the solver, over all sets of negatives.
    :param seconds: of the fit; the first point of a path includes setting up.
    """

    trace_share: float
    strength: float
    fold: int
    score: Score
    rank: int
    relative_gap: float
    iterations: int
    seconds: float = field(compare=False)


@dataclass(frozen=True)
class Settings:
    """All that has an influence on a path, except its trace share and fold; splits and model as digests."""

    strengths: tuple[float, ...]
    num_folds: int
    metric: str
    max_rank: int | None
    patience: int | None
    negatives: NegativeSets | None
    seed: int
    splits: str
    model: str

    def check_same(self, other: Settings) -> None:
        """Refuse a choice that was begun with other settings."""
        for name, mine in vars(self).items():
            theirs = getattr(other, name)
            if mine != theirs:
                raise InputError(f"resume: expected a choice with the same {name}, {mine!r}, got {theirs!r}")


class AveragedRanker:
    """Scores averaged over posteriors, one for each set of negatives; all that metrics need.

    :param posteriors: of the same shape (M, N), at least one.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines import EASE, Popularity
        >>> from mvgp.hyperparameters.records import AveragedRanker
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1], [0, 1, 1], shape=(2, 3))
        >>> AveragedRanker([Popularity().fit(links), EASE(1.0).fit(links)]).scores([1]).shape
        torch.Size([1, 3])

    """

    def __init__(self, posteriors: Sequence[Ranker]) -> None:
        self.posteriors = tuple(check_list(posteriors, "posteriors", "a list of rankers"))
        for at, posterior in enumerate(self.posteriors):
            check_instance(posterior, f"posteriors[{at}]", Ranker, "a ranker with shape and scores")
        shapes = {posterior.shape for posterior in self.posteriors}
        if len(shapes) != 1:
            raise InputError(f"posteriors: expected at least one, all of the same shape, got {sorted(shapes)}")

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.posteriors[0].shape

    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): average scores of whole rows, all of them when ``rows`` (R,) is left out."""
        return torch.stack([posterior.scores(rows) for posterior in self.posteriors]).mean(0)

    def __repr__(self) -> str:
        return f"AveragedRanker({self.shape[0]} x {self.shape[1]}, {len(self.posteriors)} posteriors)"


def digest_splits(splits: Sequence[Split]) -> str:
    """Equal for equal splits of equal data."""
    parts: list[Any] = []
    for data in (part for split in splits for part in (split.train, split.held_out)):
        parts += [(type(data).__name__, data.shape, len(data)), data.rows, data.cols]
        if isinstance(data, PositiveUnlabelled):
            parts.append(data.weight)
        else:
            parts += [data.values] if data.weights is None else [data.values, data.weights]
    return _digest(parts)


def digest_model(model: TraceGP) -> str:
    """Equal for recipes of the same kind with equal parameters; fixed matrices and graphs are not looked at."""
    parts = (type(model.likelihood).__name__, model.prior.shape, model.row_bias, model.col_bias, model.solver)
    tensors = [part for named in sorted(model.state_dict().items()) for part in named]
    return _digest([(*parts, model.tolerance, model.max_iterations, model.prior.dtype), *tensors])


def _digest(parts: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.detach().cpu().numpy().tobytes() if isinstance(part, Tensor) else repr(part).encode())
    return digest.hexdigest()[:16]


def with_share(model: TraceGP, trace_share: float, strength: float | None = None) -> TraceGP:
    """The same recipe with another trace share, and another strength."""
    other = copy.copy(model)
    other.trace_share, other.strength = trace_share, model.strength if strength is None else strength
    return other


def fitted_sets(data: Data, negatives: NegativeSets | None, seed: int, stream: int) -> list[Data]:
    """What is fitted: the data, or labelled data for each set of negatives."""
    return [data] if negatives is None else list(negatives.draw(data, seed, stream))


def joined(posteriors: Sequence[TracePosterior], negatives: NegativeSets | None) -> TracePosterior | AveragedRanker:
    """The posterior, or the average over the sets of negatives."""
    return posteriors[0] if negatives is None else AveragedRanker(posteriors)


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


class RankingMetric:
    """A figure of :func:`~mvgp.metrics.ranking_scores`: held-out positives among all but training positives."""

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
            raise InputError(f"{self.name}: expected a held-out positive, got none among {len(held_out)} pairs")
        scores = ranking_scores(posterior, held_out, exclude=train, k=self.k, rows=tasks)
        return score_over_tasks(self.name, scores.tasks, scores.per_task(self.name))


class GaussianMetric:
    """``-MSE``, weighted by the entries' weights, or ``log density``, noise included; over held-out entries."""

    def __init__(self, name: str, likelihood: Likelihood, data: Data) -> None:
        if not isinstance(likelihood, GaussianLikelihood):
            raise InputError(f"metric: {name!r} needs a Gaussian likelihood, got {type(likelihood).__name__}")
        if not isinstance(data, ObservedMatrix):
            raise InputError(f"metric: {name!r} needs an ObservedMatrix, got {type(data).__name__}")
        self.name = name
        self._noise = likelihood.noise.detach().item()  # of an entry with weight 1
        self._last: tuple[Any, Any, Tensor] | None = None  # the variance is the same along a path

    def __call__(self, posterior: Any, train: Data, held_out: Data) -> Score:
        """Averaged over entries; rows are the tasks of the standard error."""
        if not isinstance(held_out, ObservedMatrix):
            raise InputError(f"{self.name}: expected an ObservedMatrix held out, got {type(held_out).__name__}")
        values, rows, cols = held_out.values.double().cpu(), held_out.rows, held_out.cols
        weights = torch.ones_like(values) if held_out.weights is None else held_out.weights.double().cpu()
        error = (values - posterior.mean(rows, cols).double().cpu()).square()
        if self.name == "-MSE":
            return score_over_rows(self.name, rows, -error, weights)
        last = self._last
        if last is None or last[0] is not posterior.conditional or last[1] is not held_out:
            last = self._last = posterior.conditional, held_out, posterior.variance(rows, cols).double().cpu()
        variance = last[2] + self._noise / weights
        density = -0.5 * (error / variance + variance.log() + math.log(2 * math.pi))
        return score_over_rows(self.name, rows, density, torch.ones_like(density))


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


Metric = RankingMetric | GaussianMetric | CustomMetric


def resolve_metric(metric: str | Callable[[Any, Data, Data], Any], likelihood: Likelihood, data: Data) -> Metric:
    """By name, or from a function; refuses what makes no sense for the likelihood or the data."""
    if isinstance(metric, str):
        name = {"-mse": "-MSE", "log density": "log density"}.get(metric.lower())
        return GaussianMetric(name, likelihood, data) if name else RankingMetric(metric, likelihood, data)
    if not callable(metric):
        raise InputError(f"metric: expected a name or a function (posterior, train, held_out), got {metric!r}")
    return CustomMetric(metric)


def score_over_tasks(name: str, tasks: Tensor, values: Tensor, weights: Tensor | None = None) -> Score:
    """The average of ``values`` (R,) over ``tasks`` (R,), those with NaN left out.

    With ``weights`` (R,) its standard error treats the sum over a task as one draw: that of a ratio of two sums.
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
    """The weighted average over entries, all (Q,), each row a task."""
    tasks, task = rows.cpu().unique(return_inverse=True)
    sums = torch.zeros(2, len(tasks), dtype=torch.float64)
    sums.index_add_(1, task, torch.stack([weights * values, weights]).double().cpu())
    return score_over_tasks(name, tasks, sums[0] / sums[1], sums[1])
