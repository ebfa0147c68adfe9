"""The unit of a choice: one path, or one grid, judged on a validation part of the training links."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ..errors import ConvergenceError
from ..selection import NegativeSets, choose
from ..selection.metric import resolve_metric
from ..selection.splits import make_splits
from ..selection.walk import fitted_sets
from . import entrants
from .averaged import average
from .seeds import unit_seed
from .setting import Setting
from .unit import Outcome, Task


def choice_unit(task: Task) -> Outcome:
    """All that was tried, with its score."""
    family, share = entrants.family_of(task.unit.what)
    records = _grid(task) if share is None else _path(task, family, share)
    return Outcome(task.unit, info={"records": records})


def _options(task: Task) -> dict[str, Any]:
    """Split and negatives, the same for all models of a fold."""
    study = task.study
    return {
        "share": study.validation_share,
        "by": study.split,
        "seed": unit_seed(study.seed, "choice", task.unit.fold),
    }


def _path(task: Task, family: str, share: float) -> list[dict[str, Any]]:
    study, options = task.study, _options(task)
    links = task.train.links(study.whole_weight)
    splits = make_splits(links, options["by"], 1, options["share"], options["seed"])
    choice = choose(
        entrants.trace_recipe(study, task.train, share, family, splits[0].train),
        links,
        folds=splits,
        trace_shares=[share],
        strengths=study.path,
        metric=study.metric,
        # without a trace norm no rank is low, and all strong penalties rank alike, which is no reason to stop
        max_rank=study.max_rank if share > 0 else None,
        patience=study.patience if share > 0 else None,
        negatives=NegativeSets(study.validation_sets, study.ratio) if family == "sampled" else None,
        seed=options["seed"],
        progress=False,
    )
    return [
        {
            "trace_share": one.trace_share,
            "strength": one.strength,
            "score": one.score.value,
            "standard_error": one.score.standard_error,
            "rank": one.rank,
            "relative_gap": one.relative_gap,
            "iterations": one.iterations,
            "seconds": one.seconds,
        }
        for one in choice.records
    ]


def _grid(task: Task) -> list[dict[str, Any]]:
    study, model, options = task.study, task.unit.what, _options(task)
    links = task.train.links(study.whole_weight)
    split = make_splits(links, options["by"], 1, options["share"], options["seed"])[0]
    judge = resolve_metric(study.metric, entrants.ranking(study), links)
    negatives = NegativeSets(study.validation_sets, study.ratio) if entrants.needs_negatives(model) else None
    sets = fitted_sets(split.train, negatives, options["seed"], 1)
    part = replace(task.train, rows=split.train.rows, cols=split.train.cols)
    records = []
    for place, (text, recipe) in enumerate(
        entrants.grid(model, study, part, unit_seed(study.seed, "choice", task.unit.fold, model=model))
    ):
        began, score, failure = time.perf_counter(), None, ""
        try:
            score = judge(average([recipe.fit(data) for data in sets]), split.train, split.held_out)
        except ConvergenceError as error:  # this setting is out of the running, the others are not
            failure = str(error)
        records.append(
            {
                "place": place,
                "text": text,
                "score": score and score.value,
                "standard_error": score and score.standard_error,
                "seconds": time.perf_counter() - began,
                "failure": failure,
            }
        )
    if all(record["failure"] for record in records):
        raise ConvergenceError(f"{model}: none of {len(records)} settings could be fitted; {records[-1]['failure']}")
    return records


def settled(parts: list[Outcome]) -> Setting:
    """The best of all that was tried; of equal ones the strongest penalty, or the first of a grid."""
    family, share = entrants.family_of(parts[0].unit.what)
    records = [record for part in parts for record in part.info["records"]]
    if share is None:
        fitted = [one for one in records if not one.get("failure")]
        best = max(fitted, key=lambda one: (one["score"], -one["place"]))
        return Setting(family, best["text"], best["score"], place=best["place"])
    best = max(records, key=lambda one: (one["score"], one["strength"], one["trace_share"]))
    text = f"trace_share {best['trace_share']:g}, strength {best['strength']:.4g}"
    return Setting(family, text, best["score"], trace_share=best["trace_share"], strength=best["strength"])
