"""From the name of a model to something that can be fitted, its settings given or chosen by validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm

from ..baselines import BASELINE_NAMES
from ..data import PositiveUnlabelled
from ..datasets import LinkSet
from ..metrics.sources import Ranker
from ..models import TraceGP
from ..selection import Choice, NegativeSets, choose, split_pairs
from ..selection.metric import resolve_metric
from ..selection.walk import fitted_sets, with_share
from ..studies import Study
from ..studies.entrants import SAMPLED, grid, needs_negatives, ranking, trace_recipe
from ..studies.study import OWN, WHOLE, WITH_VARIANCE

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
    splits = split_pairs(links, share=study.validation_share, seed=study.seed)
    choice = choose(
        trace_recipe(study, link_set, shares[0], family, splits[0].train),
        links,
        trace_shares=shares,
        strengths=strengths,
        folds=splits,
        metric=study.metric,
        patience=study.patience,
        max_rank=study.max_rank,
        negatives=NegativeSets(study.validation_sets, study.ratio) if takes_negatives(model) else None,
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
    best, at = -float("inf"), 0
    if len(recipes) > 1:
        split = split_pairs(links, share=study.validation_share, seed=study.seed)[0]
        negatives = NegativeSets(study.validation_sets, study.ratio) if takes_negatives(model) else None
        data = fitted_sets(split.train, negatives, study.seed, 1)[0]
        judge = resolve_metric(study.metric, ranking(study), links)
        for place, (_, recipe) in enumerate(tqdm(recipes, desc="choose", disable=not progress)):
            with torch.no_grad():
                score = judge(recipe.fit(data), split.train, split.held_out).value
            best, at = (score, place) if score > best else (best, at)
    text, recipe = recipes[at]
    return Chosen(text, recipe.fit)
