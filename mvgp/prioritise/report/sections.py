"""Sections of the report: a function computes what a section shows, the template of its name shows it."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from ...text import visible
from ..tables.typed import TypedTable as Table
from .candidates import Compact, component
from .figures import Figure, Panel, Series

Row = dict[str, Any]
MEASURES = (("precision", "Precision"), ("recall", "Recall"), ("map", "Mean average precision"))
LABEL_LENGTH = 40  # characters of a name in a figure


def metrics(table: Table) -> dict[str, Any]:
    """Mean and standard deviation over folds of every metric and model, the best, and the two best of some metrics."""
    names, models = table.distinct("metric"), table.distinct("model")
    ranked = {}
    for (metric,), rows in table.groups("metric").items():
        means = [(row["mean"], row["model"]) for row in rows if row["mean"] is not None]
        ranked[metric] = sorted(means, key=lambda pair: -pair[0])  # best first
    shown = dict.fromkeys([_leading_metric(names), "AUC"])
    return {
        "names": names,
        "models": models,
        "values": {(row["model"], row["metric"]): row for row in table},
        "best": {metric: means[0][0] if means else None for metric, means in ranked.items()},
        "leaders": [(metric, *ranked[metric][:2]) for metric in shown if len(ranked.get(metric, ())) > 1],
    }


def _leading_metric(names: list[str]) -> str:
    """Choose the metric that is shown first: average precision at the largest k, else the first of them."""
    by_k = {int(name[4:]): name for name in names if name.startswith("MAP@") and name[4:].isdecimal()}
    return by_k[max(by_k)] if by_k else names[0]


def comparisons(table: Table) -> dict[str, Any]:
    """Every pair of models on every metric; with JavaScript one metric at a time."""
    widest = {
        metric: max(abs(row[side] or 0) for row in rows for side in ("low", "high", "difference")) or 1.0
        for (metric,), rows in table.groups("metric").items()
    }
    return {
        "lines": [_comparison(row, widest[row["metric"]]) for row in table],
        "metrics": list(widest),
        "chosen": _leading_metric(list(widest)),
        "models": list(dict.fromkeys([*table.distinct("model_a"), *table.distinct("model_b")])),
    }


def _comparison(row: Row, widest: float) -> Row:
    """Add the interval's ends on a scale where zero is at 60, and whether it is clear of zero."""
    if row["low"] is None or row["high"] is None:
        return {**row, "interval": None, "excludes_zero": False}
    interval = [round(60 + 56 * row[side] / widest, 1) for side in ("low", "difference", "high")]
    return {**row, "interval": interval, "excludes_zero": row["low"] > 0 or row["high"] < 0}


def curves(table: Table) -> dict[str, Any]:
    """Curves with bands over folds, and their numbers for some k."""
    models = {model: sorted(rows, key=lambda row: row["k"]) for (model,), rows in table.groups("model").items()}
    panels = []
    for key, title in MEASURES:
        lines = []
        for index, (model, rows) in enumerate(models.items()):
            y, spread = [row[key] for row in rows], [row[f"{key}_std"] for row in rows]
            edges = () if None in spread else band(y, spread)
            lines.append(Series(index, shortened(model), [row["k"] for row in rows], y, *edges))
        panels.append(Panel(title, "k, places at the top of the list", lines, from_zero=True))
    figure = Figure("curves", "Precision, recall and average precision", panels, [*map(shortened, models)])
    ks = [k for k in (1, 5, 10, 20, 50, 100) if any(row["k"] == k for row in table)]
    numbers = {}
    for model, rows in models.items():
        row_of = {row["k"]: row for row in rows}
        numbers[model] = [row_of[k][key] if k in row_of else None for key, _ in MEASURES for k in ks]
    bands = any(row["precision_std"] is not None for row in table)
    return {"figures": [figure], "bands": bands, "ks": ks, "numbers": numbers}


def band(values: list[float], errors: list[float]) -> tuple[list[float], list[float]]:
    """Give the edges of a band around shares, which stays between 0 and 1."""
    pairs = list(zip(values, errors, strict=True))
    return [max(0.0, value - error) for value, error in pairs], [min(1.0, value + error) for value, error in pairs]


def path(table: Table) -> dict[str, Any]:
    """One figure for each model that has a path."""
    figures: list[Figure] = []
    models = []
    for (model,), rows in table.groups("model").items():
        drawn = [row for row in rows if row["strength"]]  # 0 is not on a logarithmic axis
        figure = _path_figure(_file_name(model, {figure.name for figure in figures}), model, drawn)
        figures += [figure] if figure else []
        models.append((model, figure, len({row["fold"] for row in drawn}), len(rows) - len(drawn)))
    return {"figures": figures, "models": models}


def _path_figure(file: str, model: str, rows: list[Row]) -> Figure | None:
    shares = sorted({row["trace_share"] for row in rows}, key=lambda share: -1.0 if share is None else -share)
    metric = next((row["metric"] for row in rows), "") or "metric"
    panels = []
    for title, key in (
        (f"Validation {shortened(metric)}", "score"),
        ("Rank of the mean", "rank"),
        ("Relative duality gap", "relative_gap"),
    ):
        log = key == "relative_gap"
        known = [row for row in rows if row[key] is not None and (row[key] > 0 or not log)]
        lines = [line for index, share in enumerate(shares) for line in _path_lines(index, share, known, key)]
        if lines:
            label = "strength of the penalty, λ / λmax"
            panels.append(Panel(title, label, lines, x_log=True, y_log=log, from_zero=key == "rank"))
    if not panels:
        return None
    return Figure(file, f"Regularisation path of {shortened(model)}", panels, [*map(_share_label, shares)])


def _share_label(share: float | None) -> str:
    return "no trace share" if share is None else f"trace share {share:g}"


def _path_lines(index: int, share: float | None, rows: list[Row], key: str) -> list[Series]:
    """Give a line for each fold, the mean over folds as far as all folds have points, and what was chosen."""
    label = _share_label(share)
    rows = sorted((row for row in rows if row["trace_share"] == share), key=lambda row: row["strength"])
    folds: dict[int, list[Row]] = {}
    strengths: dict[str, list[Row]] = {}
    for row in rows:
        folds.setdefault(row["fold"], []).append(row)
        strengths.setdefault(f"{row['strength']:.8g}", []).append(row)
    lines = [
        Series(index, label, [row["strength"] for row in fold], [row[key] for row in fold], thin=len(folds) > 1)
        for fold in folds.values()
    ]
    if len(folds) > 1:
        common = [group for group in strengths.values() if len(group) == len(folds)]
        middle = max if key == "relative_gap" else statistics.fmean  # of a certificate the worst counts
        means = [middle([row[key] for row in group]) for group in common]
        lines.append(Series(index, label, [group[0]["strength"] for group in common], means))
    chosen = [row for row in rows if row["chosen"]]
    tips = [f"chosen in fold {row['fold']}: {label}, strength {row['strength']:.3g}, {row[key]:.4g}" for row in chosen]
    x, y = [row["strength"] for row in chosen], [row[key] for row in chosen]
    lines.append(Series(index, label, x, y, line=False, marks="ring", tips=tips))
    return [line for line in lines if line.x]


def _file_name(model: str, taken: set[str]) -> str:
    base = "path-" + (re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:40] or "model")
    number, file = 2, base
    while file in taken:
        number, file = number + 1, f"{base}-{number}"
    return file


def calibration(table: Table) -> dict[str, Any]:
    """A reliability diagram, the number of candidates in each bin, and the numbers."""
    models = {model: sorted(rows, key=lambda row: row["low"]) for (model,), rows in table.groups("model").items()}
    shares, counts = [], []
    for index, (model, every) in enumerate(models.items()):
        label, rows = shortened(model), [row for row in every if row["count"]]
        if rows:
            x, y = [(row["low"] + row["high"]) / 2 for row in rows], [row["count"] for row in rows]
            tips = [f"{model}: {row['low']:g} to {row['high']:g}, {row['count']:,} candidates" for row in rows]
            counts.append(Series(index, label, x, y, marks="dot", tips=tips))
        rows = [row for row in rows if row["mean_probability"] is not None and row["share"] is not None]
        x, y = [row["mean_probability"] for row in rows], [row["share"] for row in rows]
        edges = band(y, [2 * math.sqrt(row["share"] * (1 - row["share"]) / row["count"]) for row in rows])
        tips = [
            f"{model}: promised {row['mean_probability']:.3f}, in the top k {row['share']:.3f}, "
            f"{row['count']:,} candidates"
            for row in rows
        ]
        shares.append(Series(index, label, x, y, *edges, marks="dot", tips=tips))
    unit, label = (0.0, 1.0), "promised P(top k)"
    panels = [Panel("Share in the top k", label, shares, x_range=unit, y_range=unit, diagonal=True)]
    if counts:
        panels.append(Panel("Candidates in each bin", label, counts, x_range=unit, y_log=True))
    return {"figures": [Figure("calibration", "Calibration of P(top k)", panels, [*map(shortened, models)])]}


def candidates(table: Table) -> dict[str, Any]:
    """The list of the first row for a page without JavaScript, and all lists as data for the script."""
    compact, models, first = Compact("held out"), table.distinct("model"), None
    for (model, row_id), rows in table.groups("model", "row_id").items():
        ranked = [{**row, "flag": row["held_out"]} for row in sorted(rows, key=lambda row: row["rank"])]
        first = first or ranked
        compact.add(models.index(model), (row_id, rows[0]["row_name"]), rows[0]["k"], ranked)
    return component(compact, models, first or ())


def summary(tables: Mapping[str, Table], words: Mapping[str, str]) -> list[str]:
    """Up to three sentences: which model is best, how far ahead, and what share of held-out links is at the top."""
    table = tables.get("metrics")
    shown = metrics(table) if table else {"leaders": [], "values": {}}
    if not table or not shown["leaders"]:
        return ["There are no metrics of two models yet, so that nothing can be said about which is better."]
    (metric, (value, first), (next_value, other)), folds = shown["leaders"][0], max(row["folds"] for row in table)
    best, second = (visible(shortened(name)) for name in (first, other))
    over = f" on average over {folds} folds" if folds > 1 else " on one fold"
    sentences = [
        f"Of {len(shown['models'])} models {best} ranks held-out links best: {metric} is {value:.3f}{over}, "
        f"and {next_value:.3f} with {second}, the next best."
    ]
    for row in tables.get("comparisons", ()):
        if row["metric"] == metric and {row["model_a"], row["model_b"]} == {first, other} and row["low"] is not None:
            sign = 1 if row["model_a"] == first else -1
            low, high = sorted((sign * row["low"], sign * row["high"]))
            verdict = "is ahead of" if low > 0 else "is behind" if high < 0 else "cannot be told apart from"
            sentences.append(
                f"Compared on the same {row['tasks']:,} tasks, {best} {verdict} {second}: the difference is "
                f"{sign * row['difference']:+.3f} (95\u202f% interval {low:+.3f} to {high:+.3f})."
            )
    places = [int(name[2:]) for name in shown["names"] if re.fullmatch("R@[0-9]+", name)]
    recall = shown["values"].get((first, f"R@{max(places)}"), {}) if places else {}
    if recall.get("mean") is not None:
        sentences.append(
            f"With {best}, {100 * recall['mean']:.0f}\u202f% of the held-out links of a {words['row']} are among its "
            f"first {max(places)} {words['cols']}, averaged over {words['rows']}."
        )
    return sentences


def shortened(name: str) -> str:
    """A name of a figure or a sentence, cut off where it is very long."""
    return name if len(name) <= LABEL_LENGTH else name[: LABEL_LENGTH - 1] + "…"


SECTIONS: dict[str, tuple[str, Callable[[Table], dict[str, Any]]]] = {
    "candidates": ("Candidates", candidates),
    "metrics": ("Metrics", metrics),
    "comparisons": ("Paired comparisons", comparisons),
    "curves": ("Precision and recall", curves),
    "path": ("Regularisation path", path),
    "calibration": ("Calibration of P(top k)", calibration),
}
