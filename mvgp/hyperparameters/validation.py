"""choose: strength and trace share by validation along warm-started paths; and nested cross-validation around it."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..checks import check_flag, check_instance, check_seed, check_share, check_whole_number, shown, whole
from ..errors import InputError
from ..likelihoods.losses import Data
from ..models.trace_gp import TraceGP
from ..models.trace_sum import path_strengths
from ..posteriors.gaussian import TracePosterior
from ..progress import Progress, check_progress, progress_bar
from ..tensor_checks import check_list
from .records import (
    AveragedRanker,
    PathRecord,
    Score,
    Settings,
    digest_model,
    digest_splits,
    fitted_sets,
    joined,
    resolve_metric,
    walk,
    with_share,
)
from .splits import NegativeSets, Split, check_data, check_negatives, make_splits

if TYPE_CHECKING:
    import pandas as pd


def choose(
    model: TraceGP,
    data: Data,
    *,
    trace_shares: Sequence[float] = (1.0, 0.8, 0.6, 0.4),
    strengths: int | Sequence[float] = 30,
    lowest: float = 1e-3,
    folds: int | Sequence[Split] = 1,
    share: float = 0.2,
    by: str = "pairs",
    metric: str | Callable[[Any, Data, Data], Any] = "MAP@100",
    one_standard_error: bool = False,
    max_rank: int | None = None,
    patience: int | None = None,
    negatives: int | NegativeSets | None = None,
    seed: int = 0,
    progress: Progress = "auto",
    resume: Choice | None = None,
) -> Choice:
    """Fit part of the data over shares and strengths, judge each fit by the rest, and keep the whole table.

    Interrupting it raises :class:`ChoiceInterrupted`, which holds the finished paths.

    :param model: the recipe; its own strength and trace share are not used.
    :param data: observations, labels, or links. Test data are no part of it.
    :param trace_shares: one path for each of them and each fold.
    :param strengths: how many, log-spaced from 1 down to ``lowest``; or the strengths themselves, decreasing.
    :param lowest: strength, where their number is given.
    :param folds: K for cross-validation, 1 for one split, or the splits themselves.
    :param share: that is held out when ``folds`` is 1.
    :param by: "pairs" holds out random pairs, "rows" whole rows (new tasks).
    :param metric: what is maximised: "AUC", "MAP@100", "P@10", "R@10", "nDCG@10" (held-out positives among all
        items but training positives), "-MSE" or "log density" (Gaussian likelihood), or a function (posterior, train,
        held_out) that returns a number, or an array with a number for each task.
    :param one_standard_error: whether the stronger penalty of the one-standard-error rule is chosen.
    :param max_rank: a path ends after the first point whose rank exceeds it, unless its trace share is 0.
    :param patience: a path ends after so many points without a new best, unless its trace share is 0.
    :param negatives: for links: sets of sampled negatives, whose scores are averaged; None fits whole lists.
    :param seed: of splits and negatives.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.
    :param resume: a choice with the same settings; its finished paths are taken over.

    Example:
        >>> import mvgp
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> from mvgp.likelihoods import BipartiteRankingLikelihood
        >>> from mvgp.hyperparameters import choose
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2), (2, 3), (3, 0)], 4))
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 3], shape=(4, 4))
        >>> model = mvgp.TraceGP(mvgp.MatrixGP(kernel, kernel), BipartiteRankingLikelihood())
        >>> choice = choose(model, links, trace_shares=[0.8], strengths=[0.5, 0.1], metric="AUC", progress=False)
        >>> len(choice.records), choice.complete, choice.refit(links).shape
        (2, True, (4, 4))

    """
    check_model(model)
    listed = check_list(trace_shares, "trace_shares", "different numbers from 0 to 1, at least one")
    shares = tuple(check_share(entry, f"trace_shares[{at}]") for at, entry in enumerate(listed))
    if not shares or len(set(shares)) < len(shares):
        raise InputError(f"trace_shares: expected different numbers from 0 to 1, at least one, got {shown(listed)}")
    seed, progress = check_seed(seed), check_progress(progress)
    one_standard_error = check_flag(one_standard_error, "one_standard_error")
    splits = make_splits(data, by, folds, share, seed)
    judge = resolve_metric(metric, model.likelihood, data)
    path = tuple(path_strengths(strengths, lowest))
    if len(set(path)) < len(path):
        raise InputError(f"strengths: expected different numbers, got {list(path)}")
    model = copy.deepcopy(model)  # a choice is a snapshot
    settings = Settings(
        strengths=path,
        num_folds=len(splits),
        metric=judge.name,
        max_rank=None if max_rank is None else check_whole_number(max_rank, "max_rank"),
        patience=None if patience is None else check_whole_number(patience, "patience"),
        negatives=check_negatives(negatives, data),
        seed=seed,
        splits=digest_splits(splits),
        model=digest_model(model),
    )
    finished: dict[tuple[float, int], list[PathRecord]] = {}
    if resume is not None:
        check_instance(resume, "resume", Choice, "a Choice")
        settings.check_same(resume.settings)
        for record in resume.records:
            finished.setdefault((record.trace_share, record.fold), []).append(record)
    keys = [(trace_share, fold) for trace_share in shares for fold in range(len(splits))]

    def result() -> Choice:
        records = tuple(record for key in keys for record in finished.get(key, ()))
        return Choice(records, shares, settings, one_standard_error, model)

    todo = [key for key in keys if key not in finished]
    try:
        with progress_bar("choose", len(todo) * len(path), unit="fits", progress=progress) as bar:
            for trace_share, fold in todo:
                records = []
                for record in walk(model, splits[fold], fold, trace_share, judge, settings):
                    records.append(record)
                    bar.update()
                finished[trace_share, fold] = records
                bar.update(len(path) - len(records))  # what an early end has saved
    except KeyboardInterrupt:
        raise ChoiceInterrupted(result()) from None
    return result()


def check_model(model: Any) -> None:
    """A recipe whose strength is relative."""
    check_instance(model, "model", TraceGP, "mvgp.TraceGP")
    if model.penalty is not None:
        raise InputError("model: strengths are relative, a model with an absolute penalty has none; leave penalty out")
    model.prior.refuse_gradients()


@dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """Strength and trace share, chosen by validation. From :func:`choose`.

    :param records: the table: every point of every finished path, by trace share, then fold, then strength.
    :param trace_shares: those requested.
    :param settings: what all paths have in common.
    :param one_standard_error: whether :attr:`chosen` follows the one-standard-error rule.
    :param model: the recipe as it was.
    """

    records: tuple[PathRecord, ...]
    trace_shares: tuple[float, ...]
    settings: Settings
    one_standard_error: bool
    model: TraceGP

    @cached_property
    def finished(self) -> frozenset[tuple[float, int]]:
        """The paths that were walked to their end: (trace share, fold)."""
        return frozenset((record.trace_share, record.fold) for record in self.records)

    @property
    def complete(self) -> bool:
        """Whether every path is finished."""
        return len(self.finished) == self._total

    @property
    def _total(self) -> int:
        return len(self.trace_shares) * self.settings.num_folds

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Mean and standard error of each trace share and strength that every fold has reached."""
        return summarise(self.records, self.settings.num_folds)

    @property
    def best(self) -> Point:
        """The largest mean."""
        if not self.complete:
            raise InputError(
                f"expected all {self._total} paths, got {len(self.finished)}: finish with choose(..., resume=this)"
            )
        return best_of(self.points)

    @property
    def best_one_standard_error(self) -> Point:
        """The strongest penalty whose mean is within one standard error of the best, its trace share the same."""
        best = self.best
        if math.isnan(best.standard_error):
            raise InputError(
                f"{self.settings.metric}: expected at least two folds, or a metric with a value for each of at least "
                "two tasks, got neither: there is no standard error"
            )
        return strongest_within(self.points, best)

    @property
    def chosen(self) -> Point:
        """One of the two, as requested."""
        return self.best_one_standard_error if self.one_standard_error else self.best

    @property
    def recipe(self) -> TraceGP:
        """The model with the chosen strength and trace share."""
        return with_share(self.model, self.chosen.trace_share, self.chosen.strength)

    def refit(self, data: Data) -> TracePosterior | AveragedRanker:
        """The posterior given ``data`` at the chosen point, by way of the stronger ones.

        With several sets of negatives, drawn anew for ``data``, it is a ranker with their average scores.
        """
        recipe = self.recipe
        check_data(data)
        negatives = check_negatives(self.settings.negatives, data)
        strengths = [strength for strength in self.settings.strengths if strength >= recipe.strength]
        sets = fitted_sets(data, negatives, self.settings.seed, 0)
        return joined([[*recipe.path(labelled, strengths)][-1].posterior for labelled in sets], negatives)

    def to_frame(self) -> pd.DataFrame:
        """The table as a pandas frame, one line for each record; the metric under its own name."""
        import pandas as pd

        columns = ("trace_share", "strength", "fold", "rank", "relative_gap", "iterations", "seconds")
        frame = pd.DataFrame([{name: getattr(record, name) for name in columns} for record in self.records])
        frame.insert(3, self.settings.metric, [record.score.value for record in self.records])
        frame.insert(4, "standard_error", [record.score.standard_error for record in self.records])
        return frame

    def __repr__(self) -> str:
        if not self.complete:
            return f"Choice({len(self.finished)} of {self._total} paths)"
        best = self.best
        return (
            f"Choice(best: trace_share {best.trace_share:g}, strength {best.strength:.3g}, {self.settings.metric} "
            f"{best.mean:.4g} +- {best.standard_error:.2g}; {len(self.records)} fits)"
        )


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
    points = []
    for (trace_share, strength), group in groups.items():
        if len(group) == num_folds:
            values = [record.score.value for record in group]
            error = standard_error(values, group[0].score.standard_error)
            rank = statistics.fmean(record.rank for record in group)
            points.append(Point(trace_share, strength, statistics.fmean(values), error, rank))
    return tuple(points)


def best_of(points: Sequence[Point]) -> Point:
    """The largest mean; of equal ones the strongest penalty."""
    return max(points, key=lambda point: (point.mean, point.strength, point.trace_share))


def strongest_within(points: Sequence[Point], best: Point) -> Point:
    """The strongest penalty of the same trace share whose mean is within one standard error of the best."""
    threshold = best.mean - best.standard_error
    same = [point for point in points if point.trace_share == best.trace_share and point.mean >= threshold]
    return max(same, key=lambda point: point.strength)


def standard_error(values: Sequence[float], alone: float) -> float:
    """Of the mean over folds; ``alone``, that over tasks, if there is one fold."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else alone


class ChoiceInterrupted(KeyboardInterrupt):
    """A choice was interrupted.

    :param partial: its finished paths; give it to :func:`choose` as ``resume``.
    """

    def __init__(self, partial: Choice) -> None:
        super().__init__(f"{partial!r} in .partial, to be given to choose as resume=")
        self.partial = partial


def nested_cross_validation(
    model: TraceGP,
    data: Data,
    outer_folds: int | Sequence[Split] = 5,
    *,
    outer_share: float = 0.2,
    folds: int = 1,
    by: str = "pairs",
    metric: str | Callable[[Any, Data, Data], Any] = "MAP@100",
    seed: int = 0,
    progress: Progress = "auto",
    **options: Any,
) -> NestedResult:
    """Choose, refit and score on each outer fold; the choice sees the outer training part only.

    :param model: the recipe; its own strength and trace share are not used.
    :param data: all of it, test data included.
    :param outer_folds: K, 1 for one split, or the splits themselves.
    :param outer_share: that is held out when ``outer_folds`` is 1.
    :param folds: of the inner cross-validation, within each outer training part; 1 for one split.
    :param by: "pairs" or "rows", for outer and inner splits alike.
    :param metric: what is maximised, and what the outer folds are judged by.
    :param seed: of the outer splits; each inner choice has one of its own that follows from it.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.
    :param options: the other arguments of :func:`choose`: ``trace_shares``, ``strengths``, ``negatives`` and so on.

    Example:
        >>> import mvgp
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> from mvgp.likelihoods import BipartiteRankingLikelihood
        >>> from mvgp.hyperparameters import nested_cross_validation
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2), (2, 3), (3, 0)], 4))
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 3], shape=(4, 4))
        >>> model = mvgp.TraceGP(mvgp.MatrixGP(kernel, kernel), BipartiteRankingLikelihood())
        >>> inner = {"trace_shares": [0.8], "strengths": [0.5, 0.1], "metric": "AUC", "progress": False}
        >>> len(nested_cross_validation(model, links, outer_folds=2, **inner).folds)
        2

    """
    check_model(model)
    if whole(folds) is None:
        raise InputError(f"folds: expected a whole number, as splits would hold outer test data, got {shown(folds)}")
    folds, seed = check_whole_number(folds, "folds"), check_seed(seed)
    splits = make_splits(data, by, outer_folds, outer_share, seed)
    judge = resolve_metric(metric, model.likelihood, data)
    outer = []
    with progress_bar("nested", len(splits), unit="outer folds", progress=progress) as bar:
        for at, split in enumerate(splits):
            choice = choose(model, split.train, folds=folds, by=by, metric=metric, seed=seed + 1 + at, **options)
            outer.append(OuterFold(choice, judge(choice.refit(split.train), split.train, split.held_out)))
            bar.update()
    return NestedResult(judge.name, tuple(outer))


@dataclass(frozen=True, eq=False, repr=False)
class NestedResult:
    """What nested cross-validation found.

    :param metric: its name.
    :param folds: one for each outer fold.
    """

    metric: str
    folds: tuple[OuterFold, ...]

    @property
    def scores(self) -> tuple[float, ...]:
        """The metric on each outer fold's held-out part."""
        return tuple(fold.score.value for fold in self.folds)

    @property
    def mean(self) -> float:
        """Average over outer folds."""
        return statistics.fmean(self.scores)

    @property
    def standard_error(self) -> float:
        """Of the average over outer folds; over tasks if there is one fold."""
        return standard_error(self.scores, self.folds[0].score.standard_error)

    def to_frame(self) -> pd.DataFrame:
        """One line for each outer fold, as a pandas frame."""
        import pandas as pd

        chosen = [fold.choice.chosen for fold in self.folds]
        lines = [(at, point.trace_share, point.strength, point.mean) for at, point in enumerate(chosen)]
        frame = pd.DataFrame(lines, columns=["fold", "trace_share", "strength", "validation"])
        return frame.assign(**{self.metric: self.scores})

    def __repr__(self) -> str:
        return f"NestedResult({self.metric} {self.mean:.4g} +- {self.standard_error:.2g} over {len(self.folds)} folds)"


@dataclass(frozen=True, eq=False)
class OuterFold:
    """One outer fold.

    :param choice: made within its training part, with the whole table.
    :param score: of the model refitted to the training part, on the held-out part.
    """

    choice: Choice
    score: Score
