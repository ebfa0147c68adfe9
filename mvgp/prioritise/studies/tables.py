"""The tables of a study, from what its units have saved."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...metrics.comparison import compare
from ...metrics.ranking import RankingScores
from ...text import to_cell
from ..tables.reader import Column, read_typed
from ..tuning.tune import Setting
from .units import Outcome, Workload
from .work import BINS, candidate_mixture

Table = list[dict[str, Any]]
# columns of words, of whole numbers, and of 0 and 1
TEXT = ("model", "metric", "model_a", "model_b", "setting", "failure", "row_id", "row_name", "col_id", "col_name")
COUNTS = ("folds", "fold", "place", "rank", "iterations", "wins", "losses", "ties", "tasks", "k", "count")
FLAGS = ("chosen", "held_out")


def to_text(columns: list[str], table: Table) -> str:
    """A header and a line for each entry; undefined values are empty, texts are made harmless (:mod:`mvgp.text`)."""
    lines = ["\t".join(columns)]
    lines += ["\t".join(_cell(entry[name]) for name in columns) for entry in table]
    return "\n".join(lines) + "\n"


def from_file(path: Path) -> Table:
    """Read a table that :func:`to_text` has made; undefined numbers are NaN."""
    return read_typed(path, _column).rows


def _column(name: str) -> Column:
    kind = "text" if name in TEXT else "integer" if name in (*COUNTS, *FLAGS) else "float"
    return Column(name, kind)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return to_cell(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, bool | int) else f"{value:.10g}"


COLUMNS = ["row_id", "row_name", "rank", "col_id", "col_name", "score", "std", "p_top", "k", "model", "held_out"]
Scores = Mapping[str, Sequence[RankingScores]]  # of each model, one for each fold
Choices = Mapping[tuple[str, int], Sequence[Outcome]]  # of each model and fold
Settings = Mapping[tuple[str, int], Setting]
CURVES = {"precision": "P", "recall": "R", "map": "MAP"}


def candidates_table(load: Workload, model: str, parts: Sequence[Outcome]) -> tuple[list[str], Table]:
    """Known links are no candidates. With a subsample, links outside of it are held out, and marked."""
    data, top, width = load.data, load.study.top, load.data.shape[1]
    scores, std, probability = candidate_mixture(parts)
    known = set((data.rows * width + data.cols).tolist())
    all_links = set((load.all_links.rows * width + load.all_links.cols).tolist())
    table: Table = []
    for at, row in enumerate(load.candidate_rows.tolist()):
        best = [col for col in np.argsort(-scores[at], kind="stable").tolist() if row * width + col not in known]
        for rank, col in enumerate(best[:top], 1):
            ids = (data.row_ids[row], data.row_names[row], rank, data.col_ids[col], data.col_names[col])
            numbers = (float(values[at, col]) for values in (scores, std, probability))
            entry = (*ids, *numbers, top, model, int(row * width + col in all_links))
            table.append(dict(zip(COLUMNS, entry, strict=True)))
    return COLUMNS, table


def metrics_table(scores: Scores) -> tuple[list[str], Table]:
    """Mean and standard deviation over folds of every metric."""
    table: Table = []
    folds = max((len(each) for each in scores.values()), default=0)
    for model, each in scores.items():
        summaries = [fold.summary() for fold in each]
        for metric in summaries[0]:
            values = [summary[metric] for summary in summaries]
            entry = {"model": model, "metric": metric, "mean": statistics.fmean(values), "std": _spread(values)}
            by_fold = {f"fold_{fold}": value for fold, value in enumerate(values)}
            table.append({**entry, "folds": len(values), **by_fold})
    return ["model", "metric", "mean", "std", "folds", *(f"fold_{fold}" for fold in range(folds))], table


def compared_metrics(k: int, chosen_by: str) -> list[str]:
    """The metrics that are tested: those of the curves at their end, AUC, and the one of choices."""
    metrics = ["AUC", f"MAP@{k}", f"P@{k}", f"R@{k}"]
    length = chosen_by.partition("@")[2]
    within = not length or int(length) <= k
    return metrics if chosen_by in metrics or not within else [*metrics, chosen_by]


def comparisons_table(scores: Scores, metrics: Sequence[str]) -> tuple[list[str], Table]:
    """Paired tests of all pairs of models over the tasks of all folds."""
    columns = ["metric", "model_a", "model_b", "mean_a", "mean_b", "difference", "low", "high"]
    columns += ["t_pvalue", "wilcoxon_pvalue", "wins", "losses", "ties", "tasks"]
    table: Table = []
    for metric in metrics:
        pooled = {model: torch.cat([fold.per_task(metric) for fold in each]) for model, each in scores.items()}
        for a, b in itertools.combinations(pooled, 2):
            if int((~torch.isnan(pooled[a])).sum()) < 2:
                continue  # nothing to test
            test = compare(pooled[a], pooled[b], metric)
            entry = {name: getattr(test, name) for name in columns if hasattr(test, name)}
            low, high = test.interval
            table.append({**entry, "model_a": a, "model_b": b, "low": low, "high": high, "tasks": test.num_tasks})
    return columns, table


def curves_table(scores: Scores) -> tuple[list[str], Table]:
    """Precision, recall and MAP at 1..k, means and standard deviations over folds."""
    columns = ["model", "k", *(name + end for name in CURVES for end in ("", "_std"))]
    table: Table = []
    for model, each in scores.items():
        curves = [fold.curves() for fold in each]
        for at in range(each[0].k):
            entry: dict[str, object] = {"model": model, "k": at + 1}
            for name, short in CURVES.items():
                values = [float(curve[short][at]) for curve in curves]
                entry |= {name: statistics.fmean(values), f"{name}_std": _spread(values)}
            table.append(entry)
    return columns, table


def path_table(choices: Choices, settings: Settings, metric: str) -> tuple[list[str], Table]:
    """Every fit of every path, with what was chosen."""
    columns = ["model", "fold", "trace_share", "strength", "metric", "score", "standard_error"]
    columns += ["rank", "relative_gap", "iterations", "chosen"]
    table: Table = []
    for model, fold, record in _records(choices):
        if "strength" in record:
            setting = settings[model, fold]
            chosen = (record["trace_share"], record["strength"]) == (setting.trace_share, setting.strength)
            table.append({"model": model, "fold": fold, "metric": metric, **record, "chosen": int(chosen)})
    return columns, table


def grids_table(choices: Choices, settings: Settings, metric: str) -> tuple[list[str], Table]:
    """Every setting of models without a path, with what was chosen; ``failure`` says why one could not be fitted."""
    columns = ["model", "fold", "place", "setting", "metric", "score", "standard_error", "chosen", "failure"]
    table: Table = []
    for model, fold, record in _records(choices):
        if "place" in record:
            entry = {"model": model, "fold": fold, "setting": record["text"], "metric": metric}
            chosen = int(record["place"] == settings[model, fold].index)
            table.append({**record, **entry, "failure": record.get("failure", ""), "chosen": chosen})
    return columns, table


def times_table(choices: Choices) -> tuple[list[str], Table]:
    """How long every fit of every path and grid took: measured, and so not the same in two runs."""
    columns = ["model", "fold", "trace_share", "strength", "setting", "seconds"]
    blank = {"trace_share": None, "strength": None}
    table: Table = [
        {**blank, **record, "model": model, "fold": fold, "setting": record.get("text", "")}
        for model, fold, record in _records(choices)
    ]
    return columns, table


def choices_table(settings: Settings) -> tuple[list[str], Table]:
    """What was chosen."""
    table: Table = [
        {"model": model, "fold": fold, "setting": setting.text, "score": setting.score}
        for (model, fold), setting in settings.items()
    ]
    return ["model", "fold", "setting", "score"], table


def calibration_table(outcomes: Mapping[str, Outcome | None]) -> tuple[list[str], Table]:
    """The bins of P(top k) that are not empty, of models whose unit has not failed."""
    table: Table = []
    for model, outcome in outcomes.items():
        if outcome is None:
            continue
        sums, members, counts = (outcome.arrays[name] for name in ("probability", "members", "count"))
        for index in np.flatnonzero(counts).tolist():
            count = float(counts[index])
            ends = {"low": index / BINS, "high": (index + 1) / BINS}
            means = {"mean_probability": float(sums[index]) / count, "share": float(members[index]) / count}
            table.append({"model": model, **ends, **means, "count": int(count)})
    return ["model", "low", "high", "mean_probability", "share", "count"], table


def _records(choices: Choices) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Model, fold and record of all that was tried."""
    for (model, fold), parts in choices.items():
        for part in parts:
            yield from ((model, fold, record) for record in part.info["records"])


def _spread(values: Sequence[float]) -> float | None:
    """None with one fold, or where a fold has no value."""
    return None if len(values) < 2 or any(map(math.isnan, values)) else statistics.stdev(values)
