"""choose: strength and trace share by validation along warm-started paths."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from ..checks import check_flag, check_instance, check_seed, check_share, check_whole_number, shown
from ..errors import InputError
from ..likelihoods.losses import Data
from ..models.trace_gp import TraceGP, path_strengths
from ..posteriors.fitted import TracePosterior
from ..tensor_checks import check_list
from .negatives import NegativeSets, check_negatives
from .records import (
    AveragedRanker,
    PathRecord,
    Point,
    Settings,
    best_of,
    digest_model,
    digest_splits,
    fitted_sets,
    joined,
    strongest_within,
    summarise,
    walk,
    with_share,
)
from .scoring import resolve_metric
from .splits import Split, check_data, make_splits

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
    progress: bool = True,
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
    :param progress: whether to show a progress bar.
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
    shares = _check_shares(trace_shares)
    seed, progress = check_seed(seed), check_flag(progress, "progress")
    one_standard_error = check_flag(one_standard_error, "one_standard_error")
    splits = make_splits(data, by, folds, share, seed)
    judge = resolve_metric(metric, model.likelihood, data)
    model = copy.deepcopy(model)  # a choice is a snapshot
    settings = Settings(
        strengths=_check_strengths(strengths, lowest),
        num_folds=len(splits),
        metric=judge.name,
        max_rank=_check_limit(max_rank, "max_rank"),
        patience=_check_limit(patience, "patience"),
        negatives=check_negatives(negatives, data),
        seed=seed,
        splits=digest_splits(splits),
        model=digest_model(model),
    )
    finished = _finished(resume, settings)

    def result() -> Choice:
        paths = [finished[key] for key in _keys(shares, splits) if key in finished]
        return Choice(tuple(record for path in paths for record in path), shares, settings, one_standard_error, model)

    todo = [key for key in _keys(shares, splits) if key not in finished]
    try:
        with tqdm(total=len(todo) * len(settings.strengths), desc="choose", disable=not progress) as bar:
            for trace_share, fold in todo:
                path = []
                for record in walk(model, splits[fold], fold, trace_share, judge, settings):
                    path.append(record)
                    bar.update()
                finished[trace_share, fold] = path
                bar.update(len(settings.strengths) - len(path))  # what an early end has saved
    except KeyboardInterrupt:
        raise ChoiceInterrupted(result()) from None
    return result()


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
        return len(self.finished) == len(self.trace_shares) * self.settings.num_folds

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Mean and standard error of each trace share and strength that every fold has reached."""
        return summarise(self.records, self.settings.num_folds)

    @property
    def best(self) -> Point:
        """The largest mean."""
        if not self.complete:
            total = len(self.trace_shares) * self.settings.num_folds
            raise InputError(
                f"expected all {total} paths, got {len(self.finished)}: finish with choose(..., resume=this)"
            )
        return best_of(self.points)

    @property
    def best_one_standard_error(self) -> Point:
        """The strongest penalty whose mean is within one standard error of the best, its trace share the same.

        Penalties of one trace share are ordered by strength; those of different shares have no order.
        """
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
        model = with_share(self.model, self.chosen.trace_share)
        model.strength = self.chosen.strength
        return model

    def refit(self, data: Data) -> TracePosterior | AveragedRanker:
        """The posterior given ``data`` at the chosen point, by way of the stronger ones.

        With several sets of negatives, drawn anew for ``data``, it is a ranker with their average scores.
        """
        chosen = self.chosen
        check_data(data)
        negatives = check_negatives(self.settings.negatives, data)
        recipe = with_share(self.model, chosen.trace_share)
        strengths = [strength for strength in self.settings.strengths if strength >= chosen.strength]
        posteriors = []
        for labelled in fitted_sets(data, negatives, self.settings.seed, 0):
            *_, last = recipe.path(labelled, strengths)
            posteriors.append(last.posterior)
        return joined(posteriors, negatives)

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
            total = len(self.trace_shares) * self.settings.num_folds
            return f"Choice({len(self.finished)} of {total} paths)"
        best = self.best
        return (
            f"Choice(best: trace_share {best.trace_share:g}, strength {best.strength:.3g}, {self.settings.metric} "
            f"{best.mean:.4g} +- {best.standard_error:.2g}; {len(self.records)} fits)"
        )


class ChoiceInterrupted(KeyboardInterrupt):
    """A choice was interrupted.

    :param partial: its finished paths; give it to :func:`choose` as ``resume``.
    """

    def __init__(self, partial: Choice) -> None:
        super().__init__(f"{partial!r} in .partial, to be given to choose as resume=")
        self.partial = partial


def _keys(trace_shares: Sequence[float], splits: Sequence[Split]) -> list[tuple[float, int]]:
    return [(trace_share, fold) for trace_share in trace_shares for fold in range(len(splits))]


def _finished(resume: Choice | None, settings: Settings) -> dict[tuple[float, int], list[PathRecord]]:
    paths: dict[tuple[float, int], list[PathRecord]] = {}
    if resume is None:
        return paths
    check_instance(resume, "resume", Choice, "a Choice")
    settings.check_same(resume.settings)
    for record in resume.records:
        paths.setdefault((record.trace_share, record.fold), []).append(record)
    return paths


def check_model(model: Any) -> None:
    """A recipe whose strength is relative."""
    check_instance(model, "model", TraceGP, "mvgp.TraceGP")
    if model.penalty is not None:
        raise InputError("model: strengths are relative, a model with an absolute penalty has none; leave penalty out")
    model.prior.refuse_gradients()


def _check_shares(trace_shares: Any) -> tuple[float, ...]:
    entries = check_list(trace_shares, "trace_shares", "different numbers from 0 to 1, at least one")
    shares = tuple(check_share(entry, f"trace_shares[{at}]") for at, entry in enumerate(entries))
    if not shares or len(set(shares)) < len(shares):
        raise InputError(f"trace_shares: expected different numbers from 0 to 1, at least one, got {shown(entries)}")
    return shares


def _check_strengths(strengths: Any, lowest: float) -> tuple[float, ...]:
    checked = tuple(path_strengths(strengths, lowest))
    if len(set(checked)) < len(checked):
        raise InputError(f"strengths: expected different numbers, got {list(checked)}")
    return checked


def _check_limit(value: Any, name: str) -> int | None:
    return None if value is None else check_whole_number(value, name)
