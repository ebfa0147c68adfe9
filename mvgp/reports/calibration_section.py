"""Calibration of P(top k): how often what was promised comes true."""

from __future__ import annotations

import math
from typing import Any

from .contents import StudyContents
from .figure import Figure, Series, panel
from .markup import Heading, decimal, name_cell, number_cell, table
from .section import Section, figure_html, left_out, shortened, source

TITLE = "Calibration of P(top k)"
Row = dict[str, Any]


def calibration_section(study: StudyContents) -> Section:
    """A reliability diagram, the number of candidates in each bin, and the numbers."""
    found = study.tables.get("calibration")
    if not found:
        return left_out("calibration", TITLE, found)
    models = {model: sorted(rows, key=lambda row: row["low"]) for (model,), rows in found.groups("model").items()}
    promised = [_reliability(place, model, rows) for place, (model, rows) in enumerate(models.items())]
    counted = [_counts(place, model, rows) for place, (model, rows) in enumerate(models.items())]
    unit = (0.0, 1.0)
    panels = [panel("Share in the top k", "promised P(top k)", promised, x_range=unit, y_range=unit, diagonal=True)]
    counted = [one for one in counted if one.x]
    if counted:
        title = "Candidates in each bin"
        panels.append(panel(title, "promised P(top k)", counted, x_range=unit, y_log=True))
    figure = Figure("calibration", TITLE, tuple(panels), tuple(map(shortened, models)))
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
    return Section("calibration", TITLE, shown + numbers + source("calibration"), (figure,))


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
