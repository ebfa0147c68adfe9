"""Paired comparisons of models: differences over tasks with their intervals, and tests."""

from __future__ import annotations

from typing import Any

from .contents import StudyContents
from .markup import MINUS, NONE, Cell, Heading, decimal, name_cell, number_cell, pvalue, table, text
from .section import Section, left_out, source

TITLE = "Paired comparisons"


def comparisons_section(study: StudyContents) -> Section:
    """Every pair of models on every metric; with JavaScript one metric at a time."""
    found = study.tables.get("comparisons")
    if not found:
        return left_out("comparisons", TITLE, found)
    metrics = found.distinct("metric")
    widest = {
        metric: max(abs(row[side] or 0) for row in rows for side in ("low", "high", "difference")) or 1.0
        for (metric,), rows in found.groups("metric").items()
    }
    rows = [_line(row, widest[row["metric"]]) for row in found]
    attributes = [
        f'data-metric="{text(row["metric"])}" data-models="{text(row["model_a"])}\t{text(row["model_b"])}"'
        for row in found
    ]
    headings = [
        Heading("Model A", number=False, first="up"),
        Heading("Model B", number=False, first="up"),
        Heading("Metric", number=False, first="up"),
        *(Heading(label) for label in ("Mean A", "Mean B", f"A {MINUS} B")),
        Heading("95&#8239;% interval", number=False, first=""),
        *(Heading(label) for label in ("p (t)", "p (Wilcoxon)", "A wins", "B wins", "Equal", "Tasks")),
    ]
    chosen = study.leading_metric("comparisons")
    options = "".join(f"<option{' selected' if metric == chosen else ''}>{text(metric)}</option>" for metric in metrics)
    names = dict.fromkeys([*found.distinct("model_a"), *found.distinct("model_b")])
    models = "".join(f"<option>{text(model)}</option>" for model in names)
    controls = (
        '<div class="controls" data-for="comparisons-table" hidden>'
        f'<label>Metric <select id="comparisons-metric">{options}</select></label>'
        f'<label>Model <select id="comparisons-model"><option value="">all</option>{models}</select></label>'
        '<output id="comparisons-count" aria-live="polite"></output></div>'
    )
    caption = (
        "Differences over the same tasks, pooled over folds. The interval is a bootstrap over tasks; "
        "p-values are two-sided and not corrected for the number of comparisons."
    )
    body = table(caption, headings, rows, css="comparisons tall", attributes=attributes, identity="comparisons-table")
    return Section("comparisons", TITLE, controls + body + source("comparisons"))


def _line(row: dict[str, Any], widest: float) -> list[Cell]:
    clear = row["low"] is not None and row["high"] is not None and (row["low"] > 0 or row["high"] < 0)
    difference = ("+" if row["difference"] > 0 else "") + decimal(row["difference"])
    return [
        name_cell(row["model_a"]),
        name_cell(row["model_b"]),
        name_cell(row["metric"], css="metric"),
        number_cell(decimal(row["mean_a"]), row["mean_a"]),
        number_cell(decimal(row["mean_b"]), row["mean_b"]),
        number_cell(f"<strong>{difference}</strong>" if clear else difference, row["difference"]),
        Cell(_interval(row, widest, clear), css="interval"),
        number_cell(pvalue(row["t_pvalue"]), row["t_pvalue"]),
        number_cell(pvalue(row["wilcoxon_pvalue"]), row["wilcoxon_pvalue"]),
        *(number_cell(f"{row[key]:,}", row[key]) for key in ("wins", "losses", "ties", "tasks")),
    ]


def _interval(row: dict[str, Any], widest: float, clear: bool) -> str:
    """The interval as a line with a dot, on the scale of its metric; zero is the middle."""
    if row["low"] is None or row["high"] is None:
        return NONE
    low, middle, high = (round(60 + 56 * row[side] / widest, 1) for side in ("low", "difference", "high"))
    words = f"{decimal(row['low'])} to {decimal(row['high'])}"
    tone = "var(--accent)" if clear else "var(--muted)"
    return (
        f'<svg class="forest" viewBox="0 0 120 14" role="img" aria-label="{words}"><title>{words}</title>'
        '<path d="M60 0V14" stroke="var(--muted)" stroke-opacity="0.6"/>'
        f'<path d="M{low} 7H{high}" stroke="{tone}" stroke-width="2"/>'
        f'<circle cx="{middle}" cy="7" r="3.2" fill="{tone}"/></svg>'
    )
