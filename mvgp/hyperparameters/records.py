"""One path of a validation (a trace share and a fold, over decreasing strengths), its records and their summary."""

from __future__ import annotations

import copy
import hashlib
import math
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from ..checks import check_instance
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..likelihoods.losses import Data
from ..metrics.ranking import Ranker
from ..models.trace_gp import TraceGP
from ..posteriors.fitted import TracePosterior
from ..tensor_checks import check_list
from .negatives import NegativeSets
from .scoring import Metric, Score
from .splits import Split


def walk(
    model: TraceGP, split: Split, fold: int, trace_share: float, metric: Metric, settings: Settings
) -> Iterator[PathRecord]:
    """The records of one path, as they come; it ends early by rank or for lack of improvement.

    Without a trace norm no rank is low, and all strong penalties rank alike, which is no reason to stop: such a path is
    walked to its end.
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
        rank = max(proof.rank for proof in proofs)
        yield PathRecord(
            trace_share=trace_share,
            strength=strength,
            fold=fold,
            score=score,
            rank=rank,
            relative_gap=max(proof.relative_gap for proof in proofs),
            iterations=sum(proof.iterations for proof in proofs),
            seconds=seconds,
        )
        if trace_share == 0:
            continue
        best, since = (score.value, 0) if score.value > best else (best, since + 1)
        if settings.patience is not None and since >= settings.patience:
            return
        if settings.max_rank is not None and rank > settings.max_rank:
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
    """All that has an influence on a path, except its trace share and fold.

    :param strengths: of every path, decreasing.
    :param num_folds: how many splits.
    :param metric: its name.
    :param max_rank: a path ends after the first point above it.
    :param patience: a path ends after so many points without a new best.
    :param negatives: how they are drawn.
    :param seed: of splits and negatives.
    :param splits: a digest of the data in all splits.
    :param model: a digest of the recipe and its parameters.
    """

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
        for setting in fields(self):
            mine, theirs = getattr(self, setting.name), getattr(other, setting.name)
            if mine != theirs:
                raise InputError(f"resume: expected a choice with the same {setting.name}, {mine!r}, got {theirs!r}")


@dataclass(frozen=True)
class Point:
    """What all folds say about a trace share and a strength.

    :param trace_share: between 0 and 1.
    :param strength: lam / lam_max.
    :param mean: of the metric over folds.
    :param standard_error: of that mean, over folds, or over tasks if there is one fold; NaN if there is neither.
    :param rank: average rank of the means.
    """

    trace_share: float
    strength: float
    mean: float
    standard_error: float
    rank: float


def summarise(records: Iterable[PathRecord], num_folds: int) -> tuple[Point, ...]:
    """The points that every fold has reached, in the order of the records."""
    groups: dict[tuple[float, float], list[PathRecord]] = {}
    for record in records:
        groups.setdefault((record.trace_share, record.strength), []).append(record)
    return tuple(_point(group) for group in groups.values() if len(group) == num_folds)


def best_of(points: Sequence[Point]) -> Point:
    """The largest mean; of equal ones the strongest penalty."""
    return max(points, key=lambda point: (point.mean, point.strength, point.trace_share))


def strongest_within(points: Sequence[Point], best: Point) -> Point:
    """The strongest penalty of the same trace share whose mean is within one standard error of the best."""
    threshold = best.mean - best.standard_error
    same = [point for point in points if point.trace_share == best.trace_share and point.mean >= threshold]
    return max(same, key=lambda point: point.strength)


def _point(group: Sequence[PathRecord]) -> Point:
    values = [record.score.value for record in group]
    error = math.nan
    if len(group) > 1:
        error = statistics.stdev(values) / math.sqrt(len(values))
    elif not math.isnan(group[0].score.standard_error):
        error = group[0].score.standard_error
    rank = statistics.fmean(record.rank for record in group)
    return Point(group[0].trace_share, group[0].strength, statistics.fmean(values), error, rank)


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
    digest = hashlib.sha256()
    for split in splits:
        for part in (split.train, split.held_out):
            digest.update(repr((type(part).__name__, part.shape, len(part))).encode())
            for tensor in _tensors(part):
                digest.update(tensor.detach().cpu().numpy().tobytes())
            if isinstance(part, PositiveUnlabelled):
                digest.update(repr(part.weight).encode())
    return digest.hexdigest()[:16]


def digest_model(model: TraceGP) -> str:
    """Equal for recipes of the same kind with equal parameters; fixed matrices and graphs are not looked at."""
    parts = (type(model.likelihood).__name__, model.prior.shape, model.row_bias, model.col_bias, model.solver)
    digest = hashlib.sha256(repr((*parts, model.tolerance, model.max_iterations, model.prior.dtype)).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _tensors(data: Data) -> list[Tensor]:
    if isinstance(data, PositiveUnlabelled):
        return [data.rows, data.cols]
    weights = [] if data.weights is None else [data.weights]
    return [data.rows, data.cols, data.values, *weights]


def with_share(model: TraceGP, trace_share: float) -> TraceGP:
    """The same recipe with another trace share."""
    other = copy.copy(model)
    other.trace_share = trace_share
    return other


def fitted_sets(data: Data, negatives: NegativeSets | None, seed: int, stream: int) -> list[Data]:
    """What is fitted: the data, or labelled data for each set of negatives."""
    if negatives is None:
        return [data]
    return list(negatives.draw(data, seed, stream))


def joined(posteriors: Sequence[TracePosterior], negatives: NegativeSets | None) -> TracePosterior | AveragedRanker:
    """The posterior, or the average over the sets of negatives."""
    return posteriors[0] if negatives is None else AveragedRanker(posteriors)
