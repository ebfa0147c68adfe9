"""The end of a study: the later stages, and all tables."""

from __future__ import annotations

import json
import platform
from collections import Counter
from importlib.metadata import version
from typing import Any

import torch

from ...metrics.ranking import RankingScores
from . import tables
from .directory import FORMAT
from .models import Setting
from .run import StudyRun
from .tables import Table, candidates_table, to_text
from .units import ranking_of

PACKAGES = ("torch", "gpytorch", "linear_operator", "numpy", "scipy")


def description(run: StudyRun, spent: float, *, ended: bool) -> dict[str, Any]:
    """Settings, data, versions, and how far it is.

    :param spent: seconds of all runs before this one.
    :param ended: whether there is nothing more to do.
    """
    every, study, progress = run.load.all_links, run.load.study, run.progress
    finished = ended and not run.failures
    return {
        "format": FORMAT,
        "title": study.title or f"{every.shape[0]} rows, {every.shape[1]} columns, {len(every)} links",
        "finished": finished,
        "settings": json.loads(study.to_json()),
        "data": {
            "source": every.source,
            "rows": every.shape[0],
            "cols": every.shape[1],
            "links": len(every),
            "used_links": len(run.load.data),
            "row_edges": every.row_graph.num_links,
            "col_edges": every.col_graph.num_links,
            "digest": run.place.digest,
        },
        "versions": versions(),
        "units": {"done": progress.done, "total": progress.done if finished else progress.total},
        "seconds": spent + run.seconds,
        "notes": notes(run),
    }


def versions() -> dict[str, str]:
    """Of what the numbers may depend on."""
    from ...version import __version__

    return {"mvgp": __version__, "python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def notes(run: StudyRun) -> list[str]:
    """Fits that missed their tolerance, and units that failed, one line for each model and fold."""
    found = []
    for (model, fold), outcome in run.scores.items():
        missed = [one for one in outcome.info["fits"] if one.get("converged") is False]
        if missed:
            gap = max(one["relative_gap"] for one in missed)
            count = f"{len(missed)} of {len(outcome.info['fits'])} fits"
            found.append(f"{model}, fold {fold}: {count} missed the tolerance, the largest relative gap is {gap:.1e}")
    return found + [f"{one.unit} failed: {one.error}" for one in run.failures]


Tables = dict[str, tuple[list[str], Table]]
NAMES = ("metrics", "comparisons", "curves", "path", "grids", "choices", "calibration", "candidates")


def finish(run: StudyRun) -> None:
    """Do the later stages, and write the tables of all models that have every fold.

    What is measured by the clock is in a file beside them, so that all of ``tables`` is the same in every run.
    """
    found = _tables(run)
    for name in NAMES:
        if name in found:
            run.place.write(f"tables/{name}.tsv", to_text(*found[name]).encode())
        else:
            run.place.remove(f"tables/{name}.tsv")  # of an earlier run with other models
    run.place.write("times.tsv", to_text(*tables.times_table(run.choices)).encode())


def _tables(run: StudyRun) -> Tables:
    load, study = run.load, run.load.study
    whole = [model for model in study.models if all((model, fold) in run.scores for fold in load.folds)]
    scores = {model: [ranking_of(run.scores[model, fold]) for fold in load.folds] for model in whole}
    if not scores:
        return {}
    compared = tables.compared_metrics(study.k, study.metric)
    keys = [(model, fold) for model in whole for fold in load.folds]
    choices = {key: run.choices[key] for key in keys}
    settings = {key: run.settings[key] for key in keys}
    found: Tables = {
        "metrics": tables.metrics_table(scores),
        "comparisons": tables.comparisons_table(scores, compared),
        "curves": tables.curves_table(scores),
        "path": tables.path_table(choices, settings, study.metric),
        "grids": tables.grids_table(choices, settings, study.metric),
        "choices": tables.choices_table(settings),
    }
    certain = [model for model in load.certain if model in scores]
    if study.calibration_rows and certain:
        found["calibration"] = _calibration(run, certain)
    if study.candidate_rows and certain:
        model = _best(certain, scores, study.metric if study.metric in compared else f"MAP@{study.k}")
        setting = most_chosen([run.settings[model, fold] for fold in load.folds])
        parts = run.later(load.candidates(setting), "candidates")
        if parts is not None:
            found["candidates"] = candidates_table(load, model, parts)
    return found


def _calibration(run: StudyRun, models: list[str]) -> tuple[list[str], Table]:
    tasks = {model: run.load.calibration(run.settings[model, 0]) for model in models}
    distinct = {task.unit: task for task in tasks.values()}
    run.later(list(distinct.values()), "calibration")
    every = {model: run.place.load(task.unit) for model, task in tasks.items()}
    return tables.calibration_table({model: one for model, one in every.items() if one is not None})


def _best(models: list[str], scores: dict[str, list[RankingScores]], metric: str) -> str:
    """The model with the largest mean over folds; the first of equal ones."""

    def mean(model: str) -> float:
        return sum(float(torch.nanmean(one.per_task(metric))) for one in scores[model])

    return max(models, key=mean)


def most_chosen(settings: list[Setting]) -> Setting:
    """The setting that most folds chose; of equally frequent ones the one with the best validation score."""
    count = Counter(setting.key for setting in settings)
    return max(settings, key=lambda setting: (count[setting.key], setting.score))
