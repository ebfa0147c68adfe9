"""Calibration of P(top k): how often what was promised comes true."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .contents import StudyContents
from .drawing import Section, figure_html, left_out, shortened, source
from .figures import Figure, Series, panel
from .markup import MINUS, NONE, Cell, Heading, decimal, name, name_cell, number_cell, pvalue, table, text

METRICS_TITLE = "Metrics"


def metrics_section(study: StudyContents) -> Section:
    """Mean and standard deviation over folds of every metric and model."""
    found = study.tables.get("metrics")
    if not found:
        return left_out("metrics", METRICS_TITLE, found)
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
    return Section(
        "metrics", METRICS_TITLE, leaders + table(caption, headings, rows, css="metrics") + source("metrics")
    )


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


CURVES_TITLE = "Precision and recall"
MEASURES = (("precision", "Precision"), ("recall", "Recall"), ("map", "Mean average precision"))
SHOWN = (1, 5, 10, 20, 50, 100)  # places in the table


def curves_section(study: StudyContents) -> Section:
    """Curves with bands over folds, and their numbers at some places."""
    found = study.tables.get("curves")
    if not found:
        return left_out("curves", CURVES_TITLE, found)
    models = {model: sorted(rows, key=lambda row: row["k"]) for (model,), rows in found.groups("model").items()}
    panels = tuple(
        panel(
            title,
            "k, places at the top of the list",
            [_series(place, model, rows, key) for place, (model, rows) in enumerate(models.items())],
            y_from=0.0,
        )
        for key, title in MEASURES
    )
    figure = Figure("curves", "Precision, recall and average precision", panels, tuple(map(shortened, models)))
    bands = any(row["precision_std"] is not None for row in found)
    caption = "Averages over the tasks of a fold, then over folds" + (
        "; bands are one standard deviation over folds to each side."
        if bands
        else "; with one fold there are no bands."
    )
    numbers = f"<details><summary>Numbers</summary>{_numbers(models)}</details>"
    shown = figure_html(figure, caption, legend_title="Models")
    return Section("curves", CURVES_TITLE, shown + numbers + source("curves"), (figure,))


def _series(place: int, model: str, rows: list[dict[str, Any]], key: str) -> Series:
    x, y = [row["k"] for row in rows], [row[key] for row in rows]
    spread = [row[f"{key}_std"] for row in rows]
    if any(value is None for value in spread):
        return Series(place, shortened(model), x, y)
    low = [max(0.0, value - std) for value, std in zip(y, spread, strict=True)]
    high = [min(1.0, value + std) for value, std in zip(y, spread, strict=True)]
    return Series(place, shortened(model), x, y, low, high)


def _numbers(models: dict[str, list[dict[str, Any]]]) -> str:
    there = {row["k"] for rows in models.values() for row in rows}
    places = [k for k in SHOWN if k in there]
    headings = [Heading("Model", number=False, first="up")]
    headings += [Heading(f"{letter}@{k}") for letter in ("P", "R", "MAP") for k in places]
    lines: list[list[Cell]] = []
    for model, rows in models.items():
        at = {row["k"]: row for row in rows}
        values = [at[k][key] if k in at else None for key, _ in MEASURES for k in places]
        lines.append([name_cell(model), *(number_cell(decimal(value), value) for value in values)])
    return table("Precision, recall and mean average precision at some places, mean over folds", headings, lines)


CALIBRATION_TITLE = "Calibration of P(top k)"
Row = dict[str, Any]


def calibration_section(study: StudyContents) -> Section:
    """A reliability diagram, the number of candidates in each bin, and the numbers."""
    found = study.tables.get("calibration")
    if not found:
        return left_out("calibration", CALIBRATION_TITLE, found)
    models = {model: sorted(rows, key=lambda row: row["low"]) for (model,), rows in found.groups("model").items()}
    promised = [_reliability(place, model, rows) for place, (model, rows) in enumerate(models.items())]
    counted = [_counts(place, model, rows) for place, (model, rows) in enumerate(models.items())]
    unit = (0.0, 1.0)
    panels = [panel("Share in the top k", "promised P(top k)", promised, x_range=unit, y_range=unit, diagonal=True)]
    counted = [one for one in counted if one.x]
    if counted:
        title = "Candidates in each bin"
        panels.append(panel(title, "promised P(top k)", counted, x_range=unit, y_log=True))
    figure = Figure("calibration", CALIBRATION_TITLE, tuple(panels), tuple(map(shortened, models)))
    caption = (
        "Probabilities of the fit to the training part, against the share of candidates that the same model puts into "
        "the top k once it is given the held-out links too. On the dashed diagonal both agree. Bands are two binomial "
        "standard errors to each side."
    )
    headings = [
        Heading("Model", number=False, first="up"),
        *(Heading(label) for label in ("From", "To", "Mean P", "Share", "Count")),
    ]
    lines = [
        [
            name_cell(row["model"]),
            number_cell(f"{row['low']:g}", row["low"]),
            number_cell(f"{row['high']:g}", row["high"]),
            number_cell(decimal(row["mean_probability"], 3), row["mean_probability"]),
            number_cell(decimal(row["share"], 3), row["share"]),
            number_cell(f"{row['count']:,}", row["count"]),
        ]
        for row in found
    ]
    numbers = f"<details><summary>Numbers</summary>{table('Bins of P(top k)', headings, lines, css='narrow')}</details>"
    shown = figure_html(figure, caption, legend_title="Models")
    return Section("calibration", CALIBRATION_TITLE, shown + numbers + source("calibration"), (figure,))


def _reliability(place: int, model: str, rows: list[Row]) -> Series:
    rows = [row for row in rows if row["count"] and row["mean_probability"] is not None and row["share"] is not None]
    errors = [2 * math.sqrt(row["share"] * (1 - row["share"]) / row["count"]) for row in rows]
    y = [row["share"] for row in rows]
    low = [max(0.0, value - error) for value, error in zip(y, errors, strict=True)]
    high = [min(1.0, value + error) for value, error in zip(y, errors, strict=True)]
    tips = [
        f"{model}: promised {row['mean_probability']:.3f}, in the top k {row['share']:.3f}, {row['count']:,} candidates"
        for row in rows
    ]
    return Series(
        place, shortened(model), [row["mean_probability"] for row in rows], y, low, high, marks="dot", tips=tips
    )


def _counts(place: int, model: str, rows: list[Row]) -> Series:
    rows = [row for row in rows if row["count"]]
    x, y = [(row["low"] + row["high"]) / 2 for row in rows], [row["count"] for row in rows]
    tips = [f"{model}: {row['low']:g} to {row['high']:g}, {row['count']:,} candidates" for row in rows]
    return Series(place, shortened(model), x, y, marks="dot", tips=tips)
