"""Precision, recall and average precision among the first k."""

from __future__ import annotations

from typing import Any

from .contents import StudyContents
from .figure import Figure, Series, panel
from .markup import Cell, Heading, decimal, name_cell, number_cell, table
from .section import Section, figure_html, left_out, shortened, source

TITLE = "Precision and recall"
MEASURES = (("precision", "Precision"), ("recall", "Recall"), ("map", "Mean average precision"))
SHOWN = (1, 5, 10, 20, 50, 100)  # places in the table


def curves_section(study: StudyContents) -> Section:
    """Curves with bands over folds, and their numbers at some places."""
    found = study.tables.get("curves")
    if not found:
        return left_out("curves", TITLE, found)
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
    return Section("curves", TITLE, shown + numbers + source("curves"), (figure,))


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
