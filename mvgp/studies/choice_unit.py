"""The unit of a choice: one path, or one grid, judged on a validation part of the training links."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..selection import choose
from ..selection.metric import resolve_metric
from ..selection.splits import make_splits
from ..selection.walk import fitted_sets
from . import entrants
from .grid_records import best_record, grid_records
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
        max_rank=study.max_rank,
        patience=study.patience,
        negatives=study.negatives(study.validation_sets) if family == "sampled" else None,
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
    negatives = study.negatives(study.validation_sets) if entrants.needs_negatives(model) else None
    sets = fitted_sets(split.train, negatives, options["seed"], 1)
    part = replace(task.train, rows=split.train.rows, cols=split.train.cols)
    recipes = entrants.grid(model, study, part, unit_seed(study.seed, "choice", task.unit.fold, model=model))
    records = list(grid_records(recipes, sets, split, judge))
    best_record(records, model)  # or none could be fitted, which is an error of this unit
    return records


def settled(parts: list[Outcome]) -> Setting:
    """The best of all that was tried; of equal ones the strongest penalty, or the first of a grid."""
    family, share = entrants.family_of(parts[0].unit.what)
    records = [record for part in parts for record in part.info["records"]]
    if share is None:
        best = best_record(records, family)
        return Setting(family, best["text"], best["score"], place=best["place"])
    best = max(records, key=lambda one: (one["score"], one["strength"], one["trace_share"]))
    text = f"trace_share {best['trace_share']:g}, strength {best['strength']:.4g}"
    return Setting(family, text, best["score"], trace_share=best["trace_share"], strength=best["strength"])
