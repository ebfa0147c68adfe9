"""From the name of a model to something that can be fitted, its settings given or chosen by validation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from ...data.positive_unlabelled import PositiveUnlabelled
from ...hyperparameters.negatives import NegativeSets
from ...hyperparameters.records import fitted_sets, with_share
from ...hyperparameters.scoring import resolve_metric
from ...hyperparameters.splits import Split, make_splits
from ...hyperparameters.validation import Choice, choose
from ...metrics.ranking import Ranker
from ...models.trace_gp import TraceGP
from ..baselines.candidates import BASELINE_NAMES
from ..studies.models import SAMPLED, grid, needs_negatives, ranking, trace_recipe
from ..studies.settings import OWN, WHOLE, WITH_VARIANCE, Study
from ..studies.work import best_record, grid_records
from ..tables.link_set import LinkSet

MODELS = (*OWN, *BASELINE_NAMES)
WITH_POSTERIOR = (*WITH_VARIANCE, "factor")  # can be saved, and say how certain they are


@dataclass(frozen=True)
class Chosen:
    """A model at one setting.

    :param setting: in words.
    :param fit: from labelled data, or from links, to a ranker.
    :param choice: the validation it comes from, of a path.
    """

    setting: str
    fit: Callable[[Any], Ranker]
    choice: Choice | None = None


def takes_strength(model: str) -> bool:
    """Whether it is a TraceGP."""
    return model in SAMPLED or model in ("best", *WHOLE)


def takes_negatives(model: str) -> bool:
    """Whether it is fitted to sampled negatives."""
    return needs_negatives(model)


def choose_recipe(
    model: str,
    link_set: LinkSet,
    study: Study,
    *,
    strength: float | None,
    trace_share: float | None,
    progress: bool,
) -> Chosen:
    """The model at the settings given, or at the best ones on held-out links.

    :param study: all other settings, as in a study.
    """
    links = link_set.links(study.whole_weight)
    if takes_strength(model):
        return _along_path(model, link_set, links, study, strength, trace_share, progress)
    return _on_grid(model, link_set, links, study, progress)


def _along_path(
    model: str,
    link_set: LinkSet,
    links: PositiveUnlabelled,
    study: Study,
    strength: float | None,
    trace_share: float | None,
    progress: bool,
) -> Chosen:
    family = model if model in WHOLE else "sampled"
    every = study.whole_shares if model in WHOLE else SAMPLED.get(model, study.trace_shares)
    shares = every if trace_share is None else (trace_share,)
    strengths = study.path if strength is None else [strength]
    recipe = trace_recipe(study, link_set, shares[0], family, links)
    if len(shares) == 1 and len(strengths) == 1:
        return _chosen(recipe, shares[0], strengths)
    split = _split(links, study)
    choice = choose(
        trace_recipe(study, link_set, shares[0], family, split.train),
        links,
        trace_shares=shares,
        strengths=strengths,
        folds=[split],
        metric=study.metric,
        patience=study.patience,
        max_rank=study.max_rank,
        negatives=_validation_sets(model, study),
        seed=study.seed,
        progress=progress,
    )
    best = choice.chosen
    return _chosen(recipe, best.trace_share, [one for one in strengths if one >= best.strength], choice)


def _chosen(recipe: TraceGP, trace_share: float, strengths: Sequence[float], choice: Choice | None = None) -> Chosen:
    """Fitted along the path down to the last of the strengths."""
    shared = with_share(recipe, trace_share)

    def fit(data: Any) -> Ranker:
        *_, last = shared.path(data, strengths)
        return last.posterior

    return Chosen(f"trace_share {trace_share:g}, strength {strengths[-1]:.4g}", fit, choice)


def _on_grid(model: str, link_set: LinkSet, links: PositiveUnlabelled, study: Study, progress: bool) -> Chosen:
    """The first of the recipes that rank held-out links best."""
    recipes = grid(model, study, link_set, study.seed)
    if len(recipes) == 1:
        return Chosen(recipes[0][0], recipes[0][1].fit)
    split = _split(links, study)
    sets = fitted_sets(split.train, _validation_sets(model, study), study.seed, 1)
    tried = grid_records(recipes, sets, split, resolve_metric(study.metric, ranking(study), links))
    records = list(tqdm(tried, desc="choose", total=len(recipes), disable=not progress))
    for one in records:
        if one["failure"]:
            told = f"{model}: {one['text']} is passed over: {one['failure']}"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
    text, recipe = recipes[best_record(records, model)["place"]]
    return Chosen(text, recipe.fit)


def _split(links: PositiveUnlabelled, study: Study) -> Split:
    """What settings are chosen on."""
    return make_splits(links, study.split, 1, study.validation_share, study.seed)[0]


def _validation_sets(model: str, study: Study) -> NegativeSets | None:
    return study.negatives(study.validation_sets) if takes_negatives(model) else None
