"""Candidates of each row: all of them as data of the page, which shows one row at a time."""

from __future__ import annotations

from typing import Any

from .contents import StudyContents
from .markup import NONE, Cell, Heading, decimal, embedded_json, name_cell, number_cell, places, table, text
from .section import Section, left_out, source
from .tables import Table
from .words import Words

TITLE = "Candidates"


def candidates_section(study: StudyContents, words: Words) -> Section:
    """A table for one row, a choice of the row, and a search over all of them."""
    found = study.tables.get("candidates")
    if not found:
        return left_out("candidates", TITLE, found)
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
        TITLE,
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
