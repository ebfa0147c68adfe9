"""write_report: the page of a study, its figures and its tables, whole or not at all."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...checks import check_path
from ...errors import InputError
from ...storage.files import check_output_directory, check_output_file, replacing
from ...version import __version__
from .contents import TABLES, StudyContents, read_study
from .figures import DARK, LIGHT, css_variables, dashes
from .markup import Words, render
from .sections import SECTIONS

FIGURES = ("curves", "calibration", "path-*")  # names of all figures of sections


def write_report(
    directory: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    row_word: str = "disease",
    col_word: str = "gene",
) -> Path:
    """Write the report of a study: ``report.html``, ``figures/*.svg`` and ``figures/*.png``; return the page's path.

    The page needs no network. Everything is prepared before the first file is replaced: after an error
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
    shown = {name: show(study.tables[name]) for name, (_, show) in SECTIONS.items() if study.tables.get(name)}
    contents = {"report.html": _page(study, words, shown)}
    for figure in (figure for section in shown.values() for figure in section.get("figures", ())):
        contents[f"figures/{figure.name}.svg"] = figure.svg()
        contents[f"figures/{figure.name}.png"] = figure.png()
    elsewhere = target.resolve() != study_directory.resolve()
    if elsewhere:
        contents |= {f"tables/{name}.tsv": table.content for name, table in study.tables.items()}
    _write(target, contents)
    _remove_old(target, contents, copies=elsewhere)
    return target / "report.html"


def _page(study: StudyContents, words: Words, shown: Mapping[str, Mapping[str, Any]]) -> bytes:
    assets = files("mvgp.prioritise.report").joinpath("assets")
    css, script = (assets.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = render(
        "page.html",
        study=study,
        words=words,
        titles={**{name: title for name, (title, _) in SECTIONS.items()}, "about": "How it was made"},
        sections={**shown, "about": {}},
        version=__version__,
        css=css,
        script=script,
        script_hash=f"sha256-{digest}",
        light=css_variables(LIGHT),
        dark=css_variables(DARK),
        dashes=dashes,
    )
    return page.encode()


def _remove_old(target: Path, contents: Mapping[str, bytes], *, copies: bool) -> None:
    """Remove files of an older report that are no part of this one; files with other names are not ours.

    :param copies: whether the tables in ``target`` are copies.
    """
    ours = [f"figures/{name}.{kind}" for name in FIGURES for kind in ("svg", "png")]
    ours += [f"tables/{name}.tsv" for name in TABLES] if copies else []
    for file in (file for pattern in ours for file in target.glob(pattern)):
        if file.relative_to(target).as_posix() not in contents:
            file.unlink()


def _write(target: Path, contents: Mapping[str, bytes]) -> None:
    """Write all files under temporary names, then rename them; the page, which comes first, is renamed last."""
    for path in (target / name for name in contents):
        check_output_directory(path.parent)
        if os.path.lexists(path):
            check_output_file(path)
    try:
        for folder in {(target / name).parent for name in contents}:
            folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            for name, content in contents.items():
                file = stack.enter_context(replacing(str(target / name)))
                file.write(content)
                file.flush()
    except OSError as error:
        raise InputError(f"{target}: expected a directory that can be written to, got {error}") from error
