"""write_report: the page of a study, its figures and its tables, whole or not at all."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ...checks import check_path
from ...errors import InputError
from ...storage.files import check_output_directory, check_output_file, replacing
from .candidates import candidates_section, path_section
from .contents import TABLES, StudyContents, read_study
from .drawing import Section, png_file, svg_file
from .figures import DARK, LIGHT, variables
from .markup import NONE, Words, text
from .sections import calibration_section, comparisons_section, curves_section, metrics_section


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


FIGURES = ("curves", "calibration", "path-*")  # names of all that sections draw


def write_report(
    directory: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    row_word: str = "disease",
    col_word: str = "gene",
) -> Path:
    """Write the report of a study: ``report.html``, ``figures/*.svg`` and ``figures/*.png``, and its path.

    The page is whole, it needs no network. Everything is prepared before the first file is replaced: after an error
    an older report is as it was. Figures and copies of tables that only the older one had are removed.

    :param directory: of the study, with ``study.json`` and ``tables/*.tsv``; a table that is not there is a section
        less, one that is malformed an :class:`~mvgp.errors.InputError` with file, line and column.
    :param out: directory for the report, made if it is not there; copies of the tables go there too. That of the
        study when left out.
    :param row_word: what a row is called in the page.
    :param col_word: what a column is called in the page.

    Example:
        >>> import json, pathlib, tempfile
        >>> from mvgp.prioritise.report import write_report
        >>> study = {"format": 1, "title": "Small", "settings": {}, "data": {"source": "none"}, "versions": {},
        ...          "finished": False, "units": {"done": 0, "total": 4}, "seconds": 0.0}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "study.json").write_text(json.dumps(study))
        ...     page = write_report(folder).read_text(encoding="utf-8")
        >>> "This study is not finished" in page
        True

    """
    for label, word in (("row_word", row_word), ("col_word", col_word)):
        if not isinstance(word, str) or not word.strip():
            raise InputError(f"{label}: expected a word, got {word!r}")
    study_directory = check_path(directory, "directory")
    target = study_directory if out is None else check_path(out, "out")
    if target.is_file() or (target.suffix == ".html" and not target.is_dir()):
        raise InputError(f"{target}: expected a directory for report.html and its figures, got the path of a file")
    check_output_directory(target)
    study, words = read_study(study_directory), Words(row_word, col_word)
    sections = [
        metrics_section(study),
        comparisons_section(study),
        curves_section(study),
        path_section(study),
        calibration_section(study),
        candidates_section(study, words),
        about(study),
    ]
    contents = {"report.html": _page(study, words, sections)}
    for figure in (figure for section in sections for figure in section.figures):
        contents[f"figures/{figure.name}.svg"] = svg_file(figure)
        contents[f"figures/{figure.name}.png"] = png_file(figure)
    if target.resolve() != study_directory.resolve():
        contents |= {f"tables/{name}.tsv": table.content for name, table in study.tables.items()}
    _write(target, contents)
    _remove_old(target, contents, copies=target.resolve() != study_directory.resolve())
    return target / "report.html"


def _page(study: StudyContents, words: Words, sections: list[Section]) -> bytes:
    from ...version import __version__

    css, script, page = (_asset(name) for name in ("page.css", "page.js", "page.html"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    links = "".join(f'<a href="#{section.identity}">{text(section.title)}</a>' for section in sections)
    return (
        Template(page)
        .substitute(
            title=text(study.title or "Study report"),
            version=text(__version__),
            css=css,
            script=script,
            script_hash=f"sha256-{digest}",
            light=variables(LIGHT),
            dark=variables(DARK),
            navigation=links,
            masthead=masthead(study, words),
            sections="\n".join(section.html() for section in sections),
        )
        .encode()
    )


def _asset(name: str) -> str:
    return files("mvgp.prioritise.report").joinpath("assets", name).read_text(encoding="utf-8")


def _remove_old(target: Path, contents: Mapping[str, bytes], *, copies: bool) -> None:
    """Files of an older report that are no part of this one; whatever has another name is not ours.

    :param copies: whether the tables in ``target`` are copies.
    """
    ours = [f"figures/{name}.{kind}" for name in FIGURES for kind in ("svg", "png")]
    ours += [f"tables/{name}.tsv" for name in TABLES] if copies else []
    for file in (file for pattern in ours for file in target.glob(pattern)):
        if file.relative_to(target).as_posix() not in contents:
            file.unlink()


def _write(target: Path, contents: Mapping[str, bytes]) -> None:
    """Write all files beside their places, then move them there; the page, which comes first, is moved last."""
    for place in (target / name for name in contents):
        check_output_directory(place.parent)
        if os.path.lexists(place):
            check_output_file(place)
    try:
        for folder in {target / name for name in contents}:
            folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            for name, content in contents.items():
                file = stack.enter_context(replacing(str(target / name)))
                file.write(content)
                file.flush()
    except OSError as error:
        raise InputError(f"{target}: expected a directory that can be written to, got {error}") from error
