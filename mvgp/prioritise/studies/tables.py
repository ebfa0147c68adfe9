"""The tables of a study, from what its units have saved, and the result that holds them."""

from __future__ import annotations

import itertools
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...checks import check_path
from ...errors import InputError
from ...metrics.comparison import compare
from ...metrics.ranking import RankingScores
from ..ranking.mixture import mixture_std
from ..ranking.outputs import table_cell
from ..ranking.rows import aligned
from ..tables.typed import Column, read_typed
from ..tuning.tune import Setting
from .directory import Outcome, Study, read_description
from .work import BINS, Workload

Table = list[dict[str, Any]]
# columns of words, of whole numbers, and of 0 and 1
TEXT = ("model", "metric", "model_a", "model_b", "setting", "failure", "row_id", "row_name", "col_id", "col_name")
COUNTS = ("folds", "fold", "place", "rank", "iterations", "wins", "losses", "ties", "tasks", "k", "count")
FLAGS = ("chosen", "held_out")


def to_text(columns: list[str], table: Table) -> str:
    """A header and a line for each entry; undefined values are empty, texts are made harmless (:mod:`mvgp.text`)."""
    lines = ["\t".join(columns)]
    lines += ["\t".join(table_cell(entry[name]) for name in columns) for entry in table]
    return "\n".join(lines) + "\n"


def from_file(path: Path) -> Table:
    """Read a table that :func:`to_text` has made; undefined numbers are NaN."""
    kinds = dict.fromkeys(TEXT, "text") | dict.fromkeys((*COUNTS, *FLAGS), "integer")
    return read_typed(path, lambda name: Column(name, kinds.get(name, "float"))).rows


COLUMNS = ["row_id", "row_name", "rank", "col_id", "col_name", "score", "std", "p_top", "k", "model", "held_out"]
Scores = Mapping[str, Sequence[RankingScores]]  # of each model, one for each fold
Choices = Mapping[tuple[str, int], Sequence[Outcome]]  # of each model and fold
Settings = Mapping[tuple[str, int], Setting]
CURVES = {"precision": "P", "recall": "R", "map": "MAP"}


def candidates_table(load: Workload, model: str, parts: Sequence[Outcome]) -> tuple[list[str], Table]:
    """Known links are no candidates. With a subsample, links outside of it are held out, and marked."""
    data, top, width = load.data, load.study.top, load.data.shape[1]
    sets = [torch.from_numpy(np.stack([part.arrays[name] for part in parts])) for name in ("scores", "std", "p_top")]
    means, deviations, chances = (each.double() for each in sets)  # (S, R, N) each, for S sets of negatives
    scores, probability = means.mean(0), chances.mean(0)
    std = mixture_std(means, deviations.square())
    known = set((data.rows * width + data.cols).tolist())
    all_links = set((load.all_links.rows * width + load.all_links.cols).tolist())
    table: Table = []
    for at, row in enumerate(load.candidate_rows.tolist()):
        best = [col for col in (-scores[at]).argsort(stable=True).tolist() if row * width + col not in known]
        for rank, col in enumerate(best[:top], 1):
            ids = (data.row_ids[row], data.row_names[row], rank, data.col_ids[col], data.col_names[col])
            numbers = (float(values[at, col]) for values in (scores, std, probability))
            entry = (*ids, *numbers, top, model, int(row * width + col in all_links))
            table.append(dict(zip(COLUMNS, entry, strict=True)))
    return COLUMNS, table


def metrics_table(scores: Scores) -> tuple[list[str], Table]:
    """Mean and standard deviation over folds of every metric."""
    table: Table = []
    for model, each in scores.items():
        summaries = [fold.summary() for fold in each]
        for metric in summaries[0]:
            values = [summary[metric] for summary in summaries]
            entry = {"model": model, "metric": metric, "mean": statistics.fmean(values), "std": _spread(values)}
            by_fold = {f"fold_{fold}": value for fold, value in enumerate(values)}
            table.append({**entry, "folds": len(values), **by_fold})
    return list(table[0]), table


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


def tried_tables(choices: Choices, settings: Settings, metric: str) -> dict[str, tuple[list[str], Table]]:
    """Every fit of every path, and every setting of other models; ``failure`` says why one could not be fitted."""
    path, grids = Table(), Table()
    for model, fold, record in _records(choices):
        entry, setting = {**record, "model": model, "fold": fold, "metric": metric}, settings[model, fold]
        if "strength" in record:
            chosen = (record["trace_share"], record["strength"]) == (setting.trace_share, setting.strength)
            path.append({**entry, "chosen": int(chosen)})
        else:
            more = {"setting": record["text"], "failure": record.get("failure", "")}
            grids.append({**entry, **more, "chosen": int(record["place"] == setting.index)})
    start, scores = ["model", "fold"], ["metric", "score", "standard_error"]
    return {
        "path": ([*start, "trace_share", "strength", *scores, "rank", "relative_gap", "iterations", "chosen"], path),
        "grids": ([*start, "place", "setting", *scores, "chosen", "failure"], grids),
    }


def times_table(choices: Choices) -> tuple[list[str], Table]:
    """How long every fit of every path and grid took: measured, and so not the same in two runs."""
    blank = {"trace_share": None, "strength": None}
    table: Table = [
        {**blank, **record, "model": model, "fold": fold, "setting": record.get("text", "")}
        for model, fold, record in _records(choices)
    ]
    return ["model", "fold", "trace_share", "strength", "setting", "seconds"], table


def choices_table(settings: Settings) -> tuple[list[str], Table]:
    """What was chosen."""
    table: Table = [
        {"model": model, "fold": fold, "setting": setting.text, "score": setting.score}
        for (model, fold), setting in settings.items()
    ]
    return ["model", "fold", "setting", "score"], table


def calibration_table(outcomes: Mapping[str, Outcome]) -> tuple[list[str], Table]:
    """The bins of P(top k) that are not empty."""
    table: Table = []
    for model, outcome in outcomes.items():
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


def _table_property(name: str, text: str) -> property:
    """A table of a :class:`StudyResult`."""

    def table(self: StudyResult) -> Table:
        if name not in self.tables:
            raise InputError(f"{self.directory}: the study has no table {name} yet; run it to its end")
        return self.tables[name]

    table.__doc__ = text
    return property(table)


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult:
    """What a study has found: lists of entries, each with the columns of its table by name.

    :param directory: where it is.
    :param study: the settings.
    :param description: what ``study.json`` says.
    :param tables: by name; those that were not asked for are missing.
    """

    directory: Path
    study: Study
    description: dict[str, Any]
    tables: dict[str, Table]

    @property
    def finished(self) -> bool:
        """Whether all of it was run."""
        return bool(self.description["finished"])

    @property
    def notes(self) -> list[str]:
        """What one should know: fits that missed their tolerance."""
        return list(self.description.get("notes", []))

    metrics = _table_property("metrics", "Mean and standard deviation over folds of each model and metric.")
    comparisons = _table_property("comparisons", "Paired tests over tasks of each pair of models.")
    curves = _table_property("curves", "Precision, recall and MAP at 1..k of each model.")
    path = _table_property("path", "Every fit of every regularisation path.")
    choices = _table_property("choices", "What was chosen for each model and fold.")

    @property
    def times(self) -> Table:
        """Seconds of every fit of every path and grid; measured, so that no two runs have the same."""
        file = self.directory / "times.tsv"
        if not file.exists():
            raise InputError(f"{self.directory}: the study has no times yet; run it to its end")
        return from_file(file)

    def mean(self, model: str, metric: str) -> float:
        """The mean over folds of one metric of one model."""
        for entry in self.metrics:
            if (entry["model"], entry["metric"]) == (model, metric):
                return float(entry["mean"])
        models = sorted({entry["model"] for entry in self.metrics})
        metrics = sorted({entry["metric"] for entry in self.metrics})
        raise InputError(f"expected a model of {models} and a metric of {metrics}, got {model!r} and {metric!r}")

    def cells(self, plus_minus: str = "±") -> list[list[str]]:
        """Mean and standard deviation over folds: a line of headings, and one for each model."""
        lines: dict[str, list[str]] = {}
        for entry in self.metrics:
            spread = "" if entry["folds"] == 1 else f" {plus_minus} {entry['std']:.3f}"
            lines.setdefault(entry["model"], []).append(f"{entry['mean']:.3f}{spread}")
        metrics = dict.fromkeys(entry["metric"] for entry in self.metrics)
        return [["model", *metrics], *([model, *line] for model, line in lines.items())]

    def __str__(self) -> str:
        (_, *metrics), *lines = self.cells()
        return "\n".join(aligned([["", *metrics], *lines], left=[0]))

    def __repr__(self) -> str:
        units = self.description["units"]
        state = "finished" if self.finished else f"{units['done']} of {units['total']} units"
        return f"StudyResult({str(self.directory)!r}, {', '.join(self.study.models)}; {state})"


def load_study(directory: str | os.PathLike[str]) -> StudyResult:
    """The tables of a study that was run before, as far as it got.

    :param directory: of the study.

    Example:
        >>> import tempfile
        >>> from mvgp.prioritise.tables import LinkSet
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.studies import Study, load_study, run_study
        >>> pairs = [(i, (i + step) % 6) for i in range(6) for step in range(3)]
        >>> links = LinkSet("abcdef", "uvwxyz", *zip(*pairs), Graph([], 6), Graph([], 6))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = run_study(links, Study(models=("popularity",), folds=2, k=3), folder, progress=False)
        ...     again = load_study(folder)
        >>> again.finished, again.mean("popularity", "AUC") == done.mean("popularity", "AUC")
        (True, True)

    """
    path = check_path(directory, "directory")
    description = read_description(path)
    if description is None:
        raise InputError(f"{path}: expected the directory of a study, got one without study.json")
    tables = {file.stem: from_file(file) for file in sorted((path / "tables").glob("*.tsv"))}
    return StudyResult(path, Study.from_dict(description["settings"]), description, tables)
