"""tune: the choice of a setting by validation, and the fit at a setting."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import ConvergenceError
from ...hyperparameters.negatives import NegativeSets
from ...hyperparameters.records import AveragedRanker, fitted_sets
from ...hyperparameters.scoring import Metric, resolve_metric
from ...hyperparameters.splits import Split, make_splits
from ...hyperparameters.validation import Choice, choose
from ...likelihoods.losses import Data
from ...metrics.ranking import Ranker
from ..tables.link_set import LinkSet
from . import registry
from .registry import has_path, takes_negatives
from .settings import FitSettings

Record = dict[str, Any]  # one setting that was tried, and its score; JSON can hold it


@dataclass(frozen=True)
class Setting:
    """A setting of a family of models.

    :param family: ``registry.SAMPLED`` or another name of a path, or the name of the model whose grid it is from.
    :param text: in words.
    :param score: of the validation; NaN without one.
    :param trace_share: of a path.
    :param strength: of a path.
    :param index: in a grid.
    """

    family: str
    text: str
    score: float = math.nan
    trace_share: float = 1.0
    strength: float = 1.0
    index: int = 0

    @property
    def key(self) -> str:
        """The same for equal fits."""
        if has_path(self.family):
            return f"{self.family}_{self.trace_share:g}_{self.strength:.8g}"
        return f"{self.family}_{self.index}"


@dataclass(frozen=True, eq=False)
class Tuning:
    """What :func:`tune` has chosen.

    :param setting: the best one.
    :param records: all that was tried; empty when there was nothing to choose.
    :param choice: the validation along a path.
    """

    setting: Setting
    records: list[Record]
    choice: Choice | None = None


def tune(
    family: str,
    link_set: LinkSet,
    settings: FitSettings,
    *,
    seed: int,
    recipe_seed: int | None = None,
    trace_shares: Sequence[float] = (),
    skip_single: bool = True,
    progress: bool = False,
) -> Tuning:
    """The setting that ranks held-out links best.

    :param family: ``registry.SAMPLED``, or the name of a model.
    :param link_set: the links that may be looked at; a part of them is held out.
    :param seed: of the validation part and the sampled negatives.
    :param recipe_seed: of recipes that start at random; ``seed`` when left out.
    :param trace_shares: of a path: what is chosen among, with the strengths of the settings.
    :param skip_single: whether a single setting is taken without a validation.
    :param progress: whether to show a bar.
    """
    if has_path(family):
        if skip_single and len(trace_shares) == len(settings.path) == 1:
            return Tuning(path_setting(family, trace_shares[0], settings.path[0]), [])
        return _tune_path(family, link_set, settings, trace_shares, seed, progress)
    recipes = registry.grid(family, settings, link_set, seed if recipe_seed is None else recipe_seed)
    if skip_single and len(recipes) == 1:
        return Tuning(Setting(family, recipes[0][0]), [])
    return _tune_grid(family, link_set, settings, recipes, seed, progress)


def _tune_path(
    family: str, link_set: LinkSet, settings: FitSettings, trace_shares: Sequence[float], seed: int, progress: bool
) -> Tuning:
    links, split, negatives = _validation(family, link_set, settings, seed)
    choice = choose(
        registry.trace_recipe(settings, link_set, trace_shares[0], family, split.train),
        links,
        folds=[split],
        trace_shares=trace_shares,
        strengths=settings.path,
        metric=settings.metric,
        max_rank=settings.max_rank,
        patience=settings.patience,
        negatives=negatives,
        seed=seed,
        progress=progress,
    )
    names = ("trace_share", "strength", "rank", "relative_gap", "iterations", "seconds")
    records = [
        {
            **{name: getattr(point, name) for name in names},
            "score": point.score.value,
            "standard_error": point.score.standard_error,
        }
        for point in choice.records
    ]
    return Tuning(best_setting(family, records), records, choice)


def _tune_grid(
    family: str, link_set: LinkSet, settings: FitSettings, recipes: registry.Grid, seed: int, progress: bool
) -> Tuning:
    """A recipe that cannot be fitted is passed over with a warning."""
    links, split, negatives = _validation(family, link_set, settings, seed)
    sets = fitted_sets(split.train, negatives, seed, 1)
    judge = resolve_metric(settings.metric, registry.likelihood(settings), links)
    records: list[Record] = []
    for index, (text, recipe) in enumerate(tqdm(recipes, desc="choose", disable=not progress)):
        record = {"place": index, "text": text, **_try(recipe, sets, split, judge)}
        if record["failure"]:
            message = f"{family}: {text} is passed over: {record['failure']}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        records.append(record)
    return Tuning(best_setting(family, records), records)


def _validation(
    family: str, link_set: LinkSet, settings: FitSettings, seed: int
) -> tuple[PositiveUnlabelled, Split, NegativeSets | None]:
    """The links, how they are split, and how negatives are drawn for the training part."""
    links = link_set.links(settings.whole_weight)
    split = make_splits(links, settings.split, 1, settings.validation_share, seed)[0]
    return links, split, settings.negatives(settings.validation_sets) if takes_negatives(family) else None


def _try(recipe: registry.Recipe, sets: Sequence[Data], split: Split, judge: Metric) -> Record:
    """The score of a recipe, averaged over sets of negatives; without one if it cannot be fitted."""
    began, score, failure = time.perf_counter(), None, ""
    try:
        score = judge(AveragedRanker([recipe.fit(data) for data in sets]), split.train, split.held_out)
    except ConvergenceError as error:  # this setting is out of the running, the others are not
        failure = " ".join(str(error).split())
    return {
        "score": score and score.value,
        "standard_error": score and score.standard_error,
        "seconds": time.perf_counter() - began,
        "failure": failure,
    }


def best_setting(family: str, records: Sequence[Record]) -> Setting:
    """The best of all that was tried; of equal ones the strongest penalty, or the first of a grid."""
    if has_path(family):
        best = max(records, key=lambda record: (record["score"], record["strength"], record["trace_share"]))
        return path_setting(family, best["trace_share"], best["strength"], best["score"])
    fitted = [record for record in records if not record.get("failure")]
    if not fitted:
        raise ConvergenceError(f"{family}: none of {len(records)} settings could be fitted; {records[-1]['failure']}")
    best = max(fitted, key=lambda record: (record["score"], -record["place"]))
    return Setting(family, best["text"], best["score"], index=best["place"])


def path_setting(family: str, trace_share: float, strength: float, score: float = math.nan) -> Setting:
    """A point of a path."""
    text = f"trace_share {trace_share:g}, strength {strength:.4g}"
    return Setting(family, text, score, trace_share=trace_share, strength=strength)


def fit(
    settings: FitSettings,
    link_set: LinkSet,
    setting: Setting,
    sets: Sequence[Data],
    seed: int,
    progress: bool = False,
) -> list[Ranker]:
    """The model at a setting, fitted to each set of data; a path is walked from its strongest penalty, as when tuned.

    :param sets: links, or links with sampled negatives.
    :param seed: of recipes that start at random.
    """
    shown = tqdm(sets, desc="fit", unit="fit", disable=not progress)
    if not has_path(setting.family):
        recipe = registry.grid(setting.family, settings, link_set, seed)[setting.index][1]
        return [recipe.fit(data) for data in shown]
    path = registry.trace_recipe(settings, link_set, setting.trace_share, setting.family, sets[0])
    strengths = [strength for strength in settings.path if strength >= setting.strength]
    rankers: list[Ranker] = []
    for data in shown:
        *_, last = path.path(data, strengths)
        rankers.append(last.posterior)
    return rankers
