"""The tables of a study, from what its units have saved."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...metrics.comparison import compare
from ...metrics.ranking import RankingScores
from ...text import to_cell
from ..tables.typed import Column, read_typed
from .models import Setting
from .units import Outcome, Workload
from .work import BINS, mixture

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


def candidates_table(load: Workload, model: str, parts: Sequence[Outcome]) -> tuple[list[str], Table]:
    """Known links are no candidates. With a subsample, links outside of it are held out, and marked."""
    data, top, width = load.data, load.study.top, load.data.shape[1]
    scores, std, promised = mixture(parts)
    known = set((data.rows * width + data.cols).tolist())
    every = set((load.all_links.rows * width + load.all_links.cols).tolist())
    table: Table = []
    for at, row in enumerate(load.candidate_rows.tolist()):
        best = [col for col in np.argsort(-scores[at], kind="stable").tolist() if row * width + col not in known]
        for place, col in enumerate(best[:top]):
            table.append(
                {
                    "row_id": data.row_ids[row],
                    "row_name": data.row_names[row],
                    "rank": place + 1,
                    "col_id": data.col_ids[col],
                    "col_name": data.col_names[col],
                    "score": float(scores[at, col]),
                    "std": float(std[at, col]),
                    "p_top": float(promised[at, col]),
                    "k": top,
                    "model": model,
                    "held_out": int(row * width + col in every),
                }
            )
    return COLUMNS, table


Scores = Mapping[str, Sequence[RankingScores]]  # of each model, one for each fold
CURVES = {"precision": "P", "recall": "R", "map": "MAP"}


def metrics_table(scores: Scores) -> tuple[list[str], Table]:
    """Mean and standard deviation over folds of every metric."""
    table: Table = []
    folds = max((len(one) for one in scores.values()), default=0)
    for model, found in scores.items():
        summaries = [one.summary() for one in found]
        for metric in summaries[0]:
            values = [summary[metric] for summary in summaries]
            entry = {"model": model, "metric": metric, "mean": statistics.fmean(values), "std": _spread(values)}
            each = {f"fold_{fold}": value for fold, value in enumerate(values)}
            table.append({**entry, "folds": len(values), **each})
    return ["model", "metric", "mean", "std", "folds", *(f"fold_{fold}" for fold in range(folds))], table


def compared_metrics(k: int, chosen_by: str) -> list[str]:
    """The metrics that are tested: those of the curves at their end, AUC, and the one of choices."""
    found = ["AUC", f"MAP@{k}", f"P@{k}", f"R@{k}"]
    place = chosen_by.partition("@")[2]
    within = not place or int(place) <= k
    return found if chosen_by in found or not within else [*found, chosen_by]


def comparisons_table(scores: Scores, metrics: Sequence[str]) -> tuple[list[str], Table]:
    """Paired tests of all pairs of models over the tasks of all folds."""
    columns = ["metric", "model_a", "model_b", "mean_a", "mean_b", "difference", "low", "high"]
    columns += ["t_pvalue", "wilcoxon_pvalue", "wins", "losses", "ties", "tasks"]
    table: Table = []
    for metric in metrics:
        pooled = {model: torch.cat([one.per_task(metric) for one in found]) for model, found in scores.items()}
        for a, b in itertools.combinations(pooled, 2):
            if int((~torch.isnan(pooled[a])).sum()) < 2:
                continue  # nothing to test
            found = compare(pooled[a], pooled[b], metric)
            entry = {name: getattr(found, name) for name in columns if hasattr(found, name)}
            low, high = found.interval
            table.append({**entry, "model_a": a, "model_b": b, "low": low, "high": high, "tasks": found.num_tasks})
    return columns, table


def curves_table(scores: Scores) -> tuple[list[str], Table]:
    """Precision, recall and MAP at 1..k, means and standard deviations over folds."""
    columns = ["model", "k", *(name + end for name in CURVES for end in ("", "_std"))]
    table: Table = []
    for model, found in scores.items():
        curves = [one.curves() for one in found]
        for place in range(found[0].k):
            entry: dict[str, object] = {"model": model, "k": place + 1}
            for name, short in CURVES.items():
                values = [float(curve[short][place]) for curve in curves]
                entry |= {name: statistics.fmean(values), f"{name}_std": _spread(values)}
            table.append(entry)
    return columns, table


def path_table(
    choices: Mapping[tuple[str, int], Sequence[Outcome]], settings: Mapping[tuple[str, int], Setting], metric: str
) -> tuple[list[str], Table]:
    """Every fit of every path, with what was chosen."""
    columns = ["model", "fold", "trace_share", "strength", "metric", "score", "standard_error"]
    columns += ["rank", "relative_gap", "iterations", "chosen"]
    table: Table = []
    for (model, fold), parts in choices.items():
        setting = settings[model, fold]
        for record in (record for part in parts for record in part.info["records"] if "strength" in record):
            chosen = (record["trace_share"], record["strength"]) == (setting.trace_share, setting.strength)
            table.append({"model": model, "fold": fold, "metric": metric, **record, "chosen": int(chosen)})
    return columns, table


def grids_table(
    choices: Mapping[tuple[str, int], Sequence[Outcome]], settings: Mapping[tuple[str, int], Setting], metric: str
) -> tuple[list[str], Table]:
    """Every setting of models without a path, with what was chosen."""
    columns = ["model", "fold", "place", "setting", "metric", "score", "standard_error", "chosen"]
    columns += ["failure"]  # why a setting could not be fitted
    table: Table = []
    for (model, fold), parts in choices.items():
        for record in (record for part in parts for record in part.info["records"] if "place" in record):
            entry = {"model": model, "fold": fold, "setting": record["text"], "metric": metric}
            entry["failure"] = record.get("failure", "")
            table.append({**record, **entry, "chosen": int(record["place"] == settings[model, fold].place)})
    return columns, table


def times_table(choices: Mapping[tuple[str, int], Sequence[Outcome]]) -> tuple[list[str], Table]:
    """How long every fit of every path and grid took: measured, and so not the same in two runs."""
    columns = ["model", "fold", "trace_share", "strength", "setting", "seconds"]
    table: Table = []
    for (model, fold), parts in choices.items():
        for record in (record for part in parts for record in part.info["records"]):
            entry = {"trace_share": record.get("trace_share"), "strength": record.get("strength")}
            named = {"model": model, "fold": fold, "setting": record.get("text", "")}
            table.append({**named, **entry, "seconds": record["seconds"]})
    return columns, table


def choices_table(settings: Mapping[tuple[str, int], Setting]) -> tuple[list[str], Table]:
    """What was chosen."""
    table: Table = [
        {"model": model, "fold": fold, "setting": one.text, "score": one.score}
        for (model, fold), one in settings.items()
    ]
    return ["model", "fold", "setting", "score"], table


def calibration_table(found: Mapping[str, Outcome]) -> tuple[list[str], Table]:
    """The bins of P(top k) that are not empty."""
    table: Table = []
    for model, outcome in found.items():
        sums, members, counts = (outcome.arrays[name] for name in ("probability", "members", "count"))
        for place in np.flatnonzero(counts).tolist():
            count = float(counts[place])
            ends = {"low": place / BINS, "high": (place + 1) / BINS}
            means = {"mean_probability": float(sums[place]) / count, "share": float(members[place]) / count}
            table.append({"model": model, **ends, **means, "count": int(count)})
    return ["model", "low", "high", "mean_probability", "share", "count"], table


def _spread(values: Sequence[float]) -> float | None:
    """None with one fold, or where a fold has no value."""
    return None if len(values) < 2 or any(map(math.isnan, values)) else statistics.stdev(values)
