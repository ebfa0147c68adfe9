"""The table of metrics: a line for each model, a column for each metric, the best in bold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .contents import StudyContents
from .markup import Cell, Heading, decimal, name, name_cell, number_cell, table, text
from .section import Section, left_out, source

TITLE = "Metrics"


def metrics_section(study: StudyContents) -> Section:
    """Mean and standard deviation over folds of every metric and model."""
    found = study.tables.get("metrics")
    if not found:
        return left_out("metrics", TITLE, found)
    metrics, models = found.distinct("metric"), found.distinct("model")
    values = {(row["model"], row["metric"]): row for row in found}
    best = {
        metric: max((row["mean"] for row in found if row["metric"] == metric and row["mean"] is not None), default=None)
        for metric in metrics
    }
    rows = []
    for model in models:
        cells = [name_cell(model)]
        for metric in metrics:
            row = values.get((model, metric), {"mean": None, "std": None})
            cells.append(_cell(row["mean"], row["std"], row["mean"] is not None and row["mean"] == best[metric]))
        rows.append(cells)
    headings = [Heading("Model", number=False, first="up"), *(Heading(text(metric)) for metric in metrics)]
    folds = study.num_folds
    spread = f"Mean ± standard deviation over {folds} folds" if folds > 1 else "One fold, so no standard deviation"
    caption = f"{spread}. The best of each column is in bold."
    leaders = _leaders(values, models, dict.fromkeys([study.leading_metric("metrics"), "AUC"]))
    return Section("metrics", TITLE, leaders + table(caption, headings, rows, css="metrics") + source("metrics"))


def _cell(mean: float | None, std: float | None, best: bool) -> Cell:
    shown = decimal(mean)
    if best:
        shown = f"<strong>{shown}</strong>"
    if std is not None:
        shown += f" <small>±&#8239;{decimal(std)}</small>"
    return number_cell(shown, mean)


def _leaders(values: dict[tuple[str, str], dict[str, Any]], models: list[str], metrics: Iterable[Any]) -> str:
    """The two best models of some metrics, in words."""
    told = []
    for metric in metrics:
        ranked = [(values[model, metric]["mean"], model) for model in models if (model, metric) in values]
        known = sorted(((mean, model) for mean, model in ranked if mean is not None), key=lambda pair: -pair[0])
        if len(known) > 1:
            (first, leader), (second, next_one) = known[:2]
            told.append(
                f"<li><span>{text(metric)}</span> <strong>{name(leader)}</strong> {decimal(first)}, "
                f"then {name(next_one)} {decimal(second)}</li>"
            )
    return f'<ul class="leaders">{"".join(told)}</ul>' if told else ""
