"""The head of the report: what was studied, with what, and whether it is finished."""

from __future__ import annotations

import json
from typing import Any

from .contents import StudyContents
from .markup import NONE, text
from .section import Section
from .words import Words


def masthead(study: StudyContents, words: Words) -> str:
    """Title, source, sizes, folds and dates, and a warning if the study goes on."""
    sizes = {
        "rows": words.rows,
        "cols": words.cols,
        "links": "known links",
        "used_links": "of them used",
        "row_edges": f"edges between {words.rows}",
        "col_edges": f"edges between {words.cols}",
    }
    if study.data.get("used_links") == study.data.get("links"):
        del sizes["used_links"]
    facts = [(label, _count(study.data[key])) for key, label in sizes.items() if study.data.get(key) is not None]
    facts.append(("folds", str(study.num_folds or NONE)))
    if "negative_sets" in study.settings:
        facts.append(("sets of negatives", _plain(study.settings["negative_sets"])))
    if "metrics" in study.tables:
        facts.append(("models", str(len(study.tables["metrics"].distinct("model")))))
    shown = "".join(f"<div><dt>{text(label)}</dt><dd>{text(value)}</dd></div>" for label, value in facts)
    saved = f'<time datetime="{study.saved.isoformat()}">{study.saved:%d %B %Y, %H:%M} UTC</time>'
    warning = ""
    if not study.finished:
        warning = (
            '<p class="warning" role="status"><strong>This study is not finished.</strong> '
            f"{study.units_done:,} of {study.units_total:,} units of work are done; what follows will change.</p>"
        )
    notes = ""
    if study.notes:
        lines = "".join(f"<li>{text(note)}</li>" for note in study.notes)
        title = f"Notes of the study: {len(study.notes)}"
        notes = f'<details class="notes"><summary>{title}</summary><ul>{lines}</ul></details>'
    return (
        f'<p class="kicker">Study report · {saved}</p><h1><bdi>{text(study.title or "Untitled study")}</bdi></h1>'
        f'<p class="standfirst">Data: <bdi>{text(study.data.get("source") or "not stated")}</bdi></p>'
        f'{warning}<dl class="facts">{shown}</dl>{notes}'
    )


def about(study: StudyContents) -> Section:
    """Settings, data and versions, at the end of the page."""
    work = {
        "units of work": f"{study.units_done:,} of {study.units_total:,}",
        "time of work": _duration(study.seconds),
        "saved": f"{study.saved:%Y-%m-%d %H:%M:%S} UTC",
    }
    parts = [("Settings", study.settings), ("Data", study.data), ("Versions", study.versions), ("Work", work)]
    body = "".join(f"<div><h3>{title}</h3>{_list(values)}</div>" for title, values in parts)
    return Section("about", "How it was made", f'<div class="about">{body}</div>')


def _list(values: dict[str, Any]) -> str:
    if not values:
        return "<p>None are stated.</p>"
    lines = "".join(f"<dt>{text(key)}</dt><dd><bdi>{text(_plain(value))}</bdi></dd>" for key, value in values.items())
    return f"<dl>{lines}</dl>"


def _plain(value: Any) -> str:
    if isinstance(value, list) and not any(isinstance(part, list | dict) for part in value):
        return ", ".join(_plain(part) for part in value)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
