"""Regularisation paths: validation metric, rank and duality gap against strength."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from typing import Any

from .contents import StudyContents, Table
from .drawing import Section, figure_html, left_out, shortened, source
from .figures import Figure, Panel, Series, panel
from .markup import (
    NONE,
    Cell,
    Heading,
    Words,
    decimal,
    embedded_json,
    name,
    name_cell,
    number_cell,
    places,
    significant,
    table,
    text,
)

CANDIDATES_TITLE = "Candidates"


def candidates_section(study: StudyContents, words: Words) -> Section:
    """A table for one row, a choice of the row, and a search over all of them."""
    found = study.tables.get("candidates")
    if not found:
        return left_out("candidates", CANDIDATES_TITLE, found)
    lists = found.groups("model", "row_id")
    (model, _), first = next(iter(lists.items()))
    intro = (
        f"<p>{len(found):,} candidate {text(words.cols)} of {len(found.groups('row_id')):,} {text(words.rows)}. "
        f"P(top k) is the probability of being among the k best of the {text(words.row)}; "
        "a dot marks links that were held out, so that the model has not seen them.</p>"
    )
    unscripted = (
        f'<p class="missing" id="candidates-unscripted">JavaScript is off, so only the first {text(words.row)} is '
        "shown here; all of them are in tables/candidates.tsv.</p>"
    )
    data = f'<script type="application/json" id="candidates-data">{embedded_json(_data(found, words))}</script>'
    return Section(
        "candidates",
        CANDIDATES_TITLE,
        intro
        + _controls(words, found.distinct("model"))
        + unscripted
        + _first(first, model, words)
        + _search_results(words)
        + source("candidates")
        + data,
    )


def _data(found: Table, words: Words) -> dict[str, Any]:
    """Each id and name once; a candidate is [column, rank, score, std, P(top k), held out]."""
    places: dict[tuple[str, str], int] = {}
    lists = []
    models = {model: place for place, model in enumerate(found.distinct("model"))}
    for (model, row_id), rows in found.groups("model", "row_id").items():
        items = []
        for row in sorted(rows, key=lambda row: row["rank"]):
            place = places.setdefault((row["col_id"], row["col_name"]), len(places))
            numbers = [_rounded(row["score"]), _rounded(row["std"]), _rounded(row["p_top"])]
            items.append([place, row["rank"], *numbers, row["held_out"]])
        lists.append([models[model], row_id, rows[0]["row_name"], rows[0]["k"], items])
    return {"words": [words.row, words.col], "models": list(models), "columns": list(places), "lists": lists}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _controls(words: Words, models: list[str]) -> str:
    row, col = text(words.row), text(words.col)
    options = "".join(f'<option value="{place}">{text(model)}</option>' for place, model in enumerate(models))
    pick_model = f'<label class="field">Model <select id="candidates-model">{options}</select></label>'
    return f"""<div class="controls candidates-controls" hidden>
{pick_model if len(models) > 1 else ""}
<div class="field combobox"><label for="candidates-row">Choose a {row}</label>
<div class="picker"><input id="candidates-row" role="combobox" aria-expanded="false" aria-autocomplete="list"
 aria-controls="candidates-options" autocomplete="off" spellcheck="false" placeholder="Type a name or an id">
<button type="button" id="candidates-previous" aria-label="Previous {row}">&lsaquo;</button>
<button type="button" id="candidates-next" aria-label="Next {row}">&rsaquo;</button>
<ul id="candidates-options" role="listbox" aria-label="{text(words.rows)}" hidden></ul></div></div>
<div class="field"><label for="candidates-search">Search all {text(words.rows)} and {text(words.cols)}</label>
<input id="candidates-search" type="search" autocomplete="off" spellcheck="false"
 placeholder="Any {col} or {row}"></div>
</div>"""


def _first(rows: list[dict[str, Any]], model: str, words: Words) -> str:
    """The first row, without JavaScript too."""
    ordered = sorted(rows, key=lambda row: row["rank"])
    k = ordered[0]["k"]
    label = f"{ordered[0]['row_name']} ({ordered[0]['row_id']})" if ordered[0]["row_name"] else ordered[0]["row_id"]
    headings = [
        Heading("Rank", first="up"),
        Heading(text(words.col.capitalize()), number=False, first="up"),
        Heading(f"P(top {k})" if k else "P(top k)", number=False),
        Heading("Score"),
        Heading("Std"),
        Heading("Held out", number=False),
        Heading("Id", number=False, first="up"),
    ]
    caption = f'<bdi id="candidates-title">{text(label)}</bdi> <span id="candidates-of">ranked by {text(model)}</span>'
    score_places, std_places = (places(row[key] for row in ordered) for key in ("score", "std"))
    cells = [_cells(row, score_places, std_places) for row in ordered]
    return table(caption, headings, cells, css="candidates tall", identity="candidates-table")


def _cells(row: dict[str, Any], score_places: int, std_places: int) -> list[Cell]:
    return [
        number_cell(str(row["rank"]), row["rank"]),
        name_cell(row["col_name"] or row["col_id"], css="name"),
        Cell(_bar(row["p_top"]), row["p_top"], css="probability"),
        number_cell(decimal(row["score"], score_places), row["score"]),
        number_cell(decimal(row["std"], std_places), row["std"]),
        Cell('<span class="held">held out</span>' if row["held_out"] else "", row["held_out"]),
        name_cell(row["col_id"], css="id"),
    ]


def _bar(probability: float | None) -> str:
    if probability is None:
        return NONE
    width = round(60 * probability, 1)
    bar = f'<rect class="track" width="60" height="8" rx="2"/><rect class="fill" width="{width}" height="8" rx="2"/>'
    return f'<svg class="bar" viewBox="0 0 60 8" aria-hidden="true">{bar}</svg>{decimal(probability, 3)}'


def _search_results(words: Words) -> str:
    headings = [
        Heading(text(words.row.capitalize()), number=False, first="up"),
        Heading(text(words.col.capitalize()), number=False, first="up"),
        Heading("Rank", first="up"),
        Heading("P(top k)", number=False),
        Heading("Score"),
        Heading("Held out", number=False),
    ]
    results = table(
        '<span id="search-count" aria-live="polite"></span>',
        headings,
        [],
        css="candidates tall",
        identity="search-table",
        label="Search results",
    )
    return f'<div id="search-results" hidden>{results}</div>'


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
