"""Regularisation paths: validation metric, rank and duality gap against strength."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from typing import Any

from .contents import StudyContents
from .figure import Figure, Panel, Series, panel
from .markup import Cell, Heading, name, name_cell, number_cell, significant, table
from .section import Section, figure_html, left_out, shortened, source
from .tables import Table

TITLE = "Regularisation path"
Row = dict[str, Any]


def path_section(study: StudyContents) -> Section:
    """One figure for each model that has a path, and the settings that were chosen."""
    found = study.tables.get("path")
    settings = _choices(study.tables.get("choices")) + _grids(study.tables.get("grids"))
    if not found:
        section = left_out("path", TITLE, found)
        return Section("path", TITLE, section.body + settings)
    figures, shown, taken = [], [], set[str]()
    for (model,), rows in found.groups("model").items():
        drawn = [row for row in rows if row["strength"]]  # a logarithmic axis has no place for 0
        if not drawn:
            shown.append(f'<p class="missing">{name(model)}: no fit with a positive strength, so no path.</p>')
            continue
        figure = _figure(_file_name(model, taken), model, drawn)
        figures.append(figure)
        caption = _caption(len({row["fold"] for row in drawn}), len(rows) - len(drawn))
        drawing = figure_html(figure, caption, legend_title="Trace shares")
        shown.append(f"<h3>{name(model)}</h3>{drawing}")
    return Section("path", TITLE, "".join(shown) + source("path") + settings, tuple(figures))


def _figure(file: str, model: str, rows: list[Row]) -> Figure:
    shares = sorted({row["trace_share"] for row in rows}, key=lambda share: -1.0 if share is None else -share)
    metric = shortened(rows[0]["metric"] or "metric")
    label = "strength of the penalty, λ / λmax"
    panels: list[Panel] = []
    kinds: list[tuple[str, str, Callable[[float], bool]]] = [
        (f"Validation {metric}", "score", lambda value: True),
        ("Rank of the mean", "rank", lambda value: True),
        ("Relative duality gap", "relative_gap", lambda value: value > 0),
    ]
    for title, key, allowed in kinds:
        known = [row for row in rows if row[key] is not None and allowed(row[key])]
        if not known:
            continue
        lines = [line for place, share in enumerate(shares) for line in _lines(place, share, known, key)]
        log, start = key == "relative_gap", 0.0 if key == "rank" else None
        panels.append(panel(title, label, lines, x_log=True, y_log=log, y_from=start))
    legend = tuple("no trace share" if share is None else f"trace share {share:g}" for share in shares)
    return Figure(file, f"Regularisation path of {shortened(model)}", tuple(panels), legend)


def _lines(place: int, share: float | None, rows: list[Row], key: str) -> list[Series]:
    """A line for each fold, the mean over folds where all have got to, and what was chosen."""
    label = "no trace share" if share is None else f"trace share {share:g}"
    mine = sorted((row for row in rows if row["trace_share"] == share), key=lambda row: row["strength"])
    folds: dict[int, list[Row]] = {}
    for row in mine:
        folds.setdefault(row["fold"], []).append(row)
    several = len(folds) > 1
    lines = [
        Series(place, label, [row["strength"] for row in one], [row[key] for row in one], thin=several)
        for one in folds.values()
    ]
    if several:
        at: dict[str, list[Row]] = {}
        for row in mine:
            at.setdefault(f"{row['strength']:.8g}", []).append(row)
        common = [group for group in at.values() if len(group) == len(folds)]
        middle = max if key == "relative_gap" else statistics.fmean  # of a certificate the worst counts
        means = [middle([row[key] for row in group]) for group in common]
        lines.append(Series(place, label, [group[0]["strength"] for group in common], means))
    chosen = [row for row in mine if row["chosen"]]
    if chosen:
        tips = [
            f"chosen in fold {row['fold']}: {label}, strength {row['strength']:.3g}, {row[key]:.4g}" for row in chosen
        ]
        xs, ys = [row["strength"] for row in chosen], [row[key] for row in chosen]
        lines.append(Series(place, label, xs, ys, line=False, marks="ring", tips=tips))
    return [line for line in lines if line.x]


def _caption(folds: int, missing: int) -> str:
    said = "Rings mark what was chosen" + (" in each fold. " if folds > 1 else ". ")
    if folds > 1:
        said += (
            f"Faint lines are the {folds} folds, strong lines their mean (of the gap the largest) "
            "as far as all of them have got. "
        )
    if missing:
        said += f"Fits without a positive strength, which have no place on the axis: {missing}. "
    return said


def _file_name(model: str, taken: set[str]) -> str:
    base = "path-" + (re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:40] or "model")
    number, file = 2, base
    while file in taken:
        number, file = number + 1, f"{base}-{number}"
    taken.add(file)
    return file


def _choices(choices: Table | None) -> str:
    if not choices:
        return ""
    headings = [
        Heading("Model", number=False, first="up"),
        Heading("Fold", first="up"),
        Heading("Setting", number=False, first="up"),
        Heading("Score"),
    ]
    rows = [
        [
            name_cell(row["model"]),
            number_cell(str(row["fold"]), row["fold"]),
            name_cell(row["setting"]),
            number_cell(significant(row["score"], 4), row["score"]),
        ]
        for row in choices
    ]
    shown = table(
        "Settings chosen by validation inside the training part of each fold", headings, rows, css="narrow tall"
    )
    return f"<h3>Chosen settings</h3>{shown}{source('choices')}"


def _grids(grids: Table | None) -> str:
    """Every setting that models without a path have tried."""
    if not grids:
        return ""
    headings = [
        Heading("Model", number=False, first="up"),
        Heading("Fold", first="up"),
        Heading("Setting", number=False, first="up"),
        Heading("Metric", number=False, first="up"),
        Heading("Score"),
        Heading("Chosen", number=False),
    ]
    rows = [
        [
            name_cell(row["model"]),
            number_cell(str(row["fold"]), row["fold"]),
            name_cell(row["setting"]),
            name_cell(row["metric"]),
            number_cell(significant(row["score"], 4), row["score"]),
            Cell('<span class="held">chosen</span>' if row["chosen"] else "", row["chosen"]),
        ]
        for row in grids
    ]
    shown = table("Settings tried for models without a path", headings, rows, css="narrow tall")
    return f"<details><summary>Settings tried for models without a path</summary>{shown}</details>{source('grids')}"
