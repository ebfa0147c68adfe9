"""write_report: the page of a study, its figures and its tables, whole or not at all; and how values become text."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...checks import check_path
from ...errors import InputError
from ...storage.files import check_output_directory, check_output_file, read_json, replacing
from ...version import __version__
from ..tables.typed import Column, TypedTable, read_typed
from .figures import DARK, LIGHT, clean, dashes
from .sections import SECTIONS, summary


def _columns(kind: str, *names: str, **limits: Any) -> list[Column]:
    return [Column(name, kind, **limits) for name in names]


_text, _number = partial(_columns, "text"), partial(_columns, "number")
_known = partial(_number, optional=True)  # a number, or nothing
_size, _share = partial(_known, low=0), partial(_number, low=0, high=1)
_count = partial(_columns, "integer", low=0)

TABLES: dict[str, list[Column]] = {
    "metrics": [*_text("model", "metric"), *_known("mean"), *_size("std"), *_count("folds")],
    "comparisons": [
        *_text("metric", "model_a", "model_b"),
        *_number("mean_a", "mean_b", "difference"),
        *_known("low", "high"),
        *_share("t_pvalue", "wilcoxon_pvalue", optional=True),
        *_count("wins", "losses", "ties", "tasks"),
    ],
    "curves": [
        *_text("model"),
        *_count("k", low=1),
        *_share("precision", "recall", "map"),
        *_size("precision_std", "recall_std", "map_std"),
    ],
    "path": [
        *_text("model", "metric"),
        *_count("fold"),
        *_share("trace_share", optional=True),
        *_size("strength", "standard_error"),
        *_known("score", "rank", "relative_gap", "iterations"),
        *_count("chosen", high=1),
    ],
    "choices": [*_text("model"), *_count("fold"), *_text("setting"), *_known("score")],
    "grids": [
        *_text("model", "setting", "metric"),
        *_count("fold"),
        *_known("score", "standard_error"),
        *_count("chosen", high=1),
    ],
    "calibration": [
        *_text("model"),
        *_share("low", "high"),
        *_share("mean_probability", "share", optional=True),
        *_count("count"),
    ],
    "candidates": [
        *_text("row_id", "row_name", "col_id", "col_name", "model"),
        *_count("rank", low=1),
        *_number("score"),
        *_size("std"),
        *_share("p_top", optional=True),
        *_count("k", low=1, optional=True),
        *_count("held_out", high=1),
    ],
}


def read_table(path: Path, columns: Sequence[Column]) -> TypedTable:
    """Read and check a table that has these columns, and perhaps others, which stay text."""
    known = {column.name: column for column in columns}
    return read_typed(path, lambda name: known.get(name, Column(name, "text")), required=known)


FORMAT = 1
KINDS = {"title": str, "settings": dict, "data": dict, "versions": dict, "finished": bool, "units": dict}


@dataclass(frozen=True)
class StudyContents:
    """A study as its directory describes it; ``notes`` are what a reader should know, ``saved`` when it was written."""

    title: str
    settings: dict[str, Any]
    data: dict[str, Any]
    versions: dict[str, Any]
    finished: bool
    units_done: int
    units_total: int
    seconds: float  # of work so far
    notes: tuple[str, ...]
    saved: datetime
    tables: dict[str, TypedTable]  # those that are there, by name

    @property
    def num_folds(self) -> int:
        """Number of folds behind the metrics; 0 if there are none yet."""
        return max((row["folds"] for row in self.tables.get("metrics", ())), default=0)


def read_study(directory: Path) -> StudyContents:
    """Read ``study.json`` and the tables of a study directory; tables that are not there are left out."""
    path = directory / "study.json"
    try:
        description = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{directory}: expected the directory of a study, got no study.json in it") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        got = description.get("format") if isinstance(description, dict) else type(description).__name__
        raise InputError(f"{path}: expected a study of format {FORMAT}, got {got!r}")
    notes = description.setdefault("notes", [])
    _check_entries(path, description, "the study", {**KINDS, "seconds": (int, float), "notes": list})
    _check_entries(path, description["units"], "units", {"done": int, "total": int})
    files = {name: directory / "tables" / f"{name}.tsv" for name in TABLES}
    return StudyContents(
        **{name: description[name] for name in KINDS if name != "units"},
        units_done=description["units"]["done"],
        units_total=description["units"]["total"],
        seconds=float(description["seconds"]),
        notes=tuple(map(str, notes)),
        saved=datetime.fromtimestamp(int(os.stat(path).st_mtime), UTC),
        tables={name: read_table(file, TABLES[name]) for name, file in files.items() if os.path.lexists(file)},
    )


def _check_entries(path: Path, entries: dict[str, Any], where: str, kinds: dict[str, Any]) -> None:
    for name, kind in kinds.items():
        value = entries.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise InputError(f"{path}: expected {name!r} of {where} to be {names}, got {value!r:.200}")


# The page ------------------------------------------------------------------------------------------

NONE, MINUS = "\u2013", "\u2212"  # a dash where there is no value
NOT_THERE = "is not in the study directory"
SCRIPTS = ("page", "candidates", "network")  # parts of the script
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
    words = words_of(row_word, col_word)
    study_directory = check_path(directory, "directory")
    target = check_target(study_directory if out is None else check_path(out, "out"))
    study = read_study(study_directory)
    shown = {name: show(study.tables[name]) for name, (_, show) in SECTIONS.items() if study.tables.get(name)}
    contents = {"report.html": _page(study, words, shown), **figure_files(shown)}
    elsewhere = target.resolve() != study_directory.resolve()
    if elsewhere:
        contents |= {f"tables/{name}.tsv": table.content for name, table in study.tables.items()}
    write_files(target, contents)
    ours = [f"figures/{name}.{kind}" for name in FIGURES for kind in ("svg", "png")]
    remove_old(target, contents, [*ours, *(f"tables/{name}.tsv" for name in TABLES if elsewhere)])
    return target / "report.html"


def check_target(target: Path) -> Path:
    """A directory for a report, or a place for one."""
    if target.is_file() or (target.suffix == ".html" and not target.is_dir()):
        raise InputError(f"{target}: expected a directory for report.html and its figures, got the path of a file")
    check_output_directory(target)
    return target


def _page(study: StudyContents, words: dict[str, str], shown: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The page of a study."""
    titles = {name: title for name, (title, _) in SECTIONS.items()}
    if "candidates" not in shown:  # what is left out does not come first
        titles["candidates"] = titles.pop("candidates")
    missing = {
        name: (f"tables/{name}.tsv", "has a header and no lines" if name in study.tables else NOT_THERE)
        for name in titles
        if name not in shown
    }
    return render(
        masthead="masthead.html",
        title=study.title or "Study report",
        titles={**titles, "about": "How it was made"},
        sections={**shown, "about": {}},
        missing=missing,
        files="Its tables and figures lie beside it in tables and figures.",
        study=study,
        words=words,
        summary=summary(study.tables, words),
    )


def words_of(row_word: str, col_word: str) -> dict[str, str]:
    """What rows and columns are called, one and many."""
    for label, word in (("row_word", row_word), ("col_word", col_word)):
        if not isinstance(word, str) or not word.strip():
            raise InputError(f"{label}: expected a word, got {word!r}")
    return {"row": row_word, "rows": plural(row_word), "col": col_word, "cols": plural(col_word)}


def render(**values: Any) -> bytes:
    """Fill in the template ``page.html``; whatever is not marked as safe there is escaped.

    :param values: ``masthead``, the template of the top; ``titles`` of sections by the names of their templates,
        ``sections``, what is shown of each, or ``missing``, why it is not; and what the templates need.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise InputError("pages: expected jinja2, got none; pip install 'mvgp[cli]'") from error

    environment = Environment(
        loader=PackageLoader("mvgp.prioritise.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # autoescape alone would keep forbidden characters
        finalize=lambda value: value if hasattr(value, "__html__") else Markup(html.escape(clean(value))),
    )
    filters = (decimal, significant, signed, pvalue, plain, grouped, duration, percent, embedded_json)
    environment.filters |= {function.__name__: function for function in filters}
    assets = files("mvgp.prioritise.report").joinpath("assets")
    css = assets.joinpath("page.css").read_text(encoding="utf-8")
    parts = (assets.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    light, dark = (
        " ".join(f"--series-{index}: {value};" for index, value in enumerate(colours)) for colours in (LIGHT, DARK)
    )
    page = environment.get_template("page.html").render(
        version=__version__,
        css=css,
        script=script,
        script_hash=f"sha256-{digest}",
        light=light,
        dark=dark,
        dashes=dashes,
        **values,
    )
    return page.encode()


def figure_files(shown: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """The figures of all sections as files."""
    contents = {}
    for figure in (figure for section in shown.values() for figure in section.get("figures", ())):
        contents[f"figures/{figure.name}.svg"] = figure.svg()
        contents[f"figures/{figure.name}.png"] = figure.png()
    return contents


def remove_old(target: Path, contents: Mapping[str, bytes], ours: Iterable[str]) -> None:
    """Remove files of an older report, which match ``ours``, that are no part of this one."""
    for file in (file for pattern in ours for file in target.glob(pattern)):
        if file.relative_to(target).as_posix() not in contents:
            file.unlink()


def write_files(target: Path, contents: Mapping[str, bytes]) -> None:
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


# How values become text of the page --------------------------------------------------------------


def embedded_json(value: Any) -> str:
    """Compact JSON that can stand inside a script element."""
    from jinja2.utils import htmlsafe_json_dumps
    from markupsafe import Markup

    written = htmlsafe_json_dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(clean(written))


def decimal(value: float | None, digits: int = 4) -> str:
    """A number with so many decimals and a true minus; a dash if there is none."""
    return NONE if value is None else f"{value:.{digits}f}".replace("-", MINUS)


def signed(value: float) -> str:
    """A difference with four decimals and its sign."""
    return ("+" if value > 0 else "") + decimal(value)


def significant(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, zeros at its end included; a dash if there is none."""
    return NONE if value is None else f"{value:#.{digits}g}".removesuffix(".").replace("-", MINUS)


def percent(value: float | None) -> str:
    """A probability as a percentage with two digits; a dash if there is none."""
    if value is None:
        return NONE
    if 0 < value < 0.001:
        return "< 0.1\u202f%"
    return f"{100 * value:.{0 if value >= 0.0995 else 1}f}\u202f%"


def pvalue(value: float | None) -> str:
    """A p-value: two digits, and no more zeros than anyone reads."""
    if value is None:
        return NONE
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def grouped(value: Any) -> str:
    """A count with its thousands apart; anything else as it is."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def plain(value: Any) -> str:
    """A value of a description, as text."""
    if isinstance(value, list) and not any(isinstance(part, list | dict) for part in value):
        return ", ".join(plain(part) for part in value)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def duration(seconds: float) -> str:
    """A time in a unit that fits it."""
    if seconds < 120:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def plural(word: str) -> str:
    """More than one of them.

    Example:
        >>> plural("disease"), plural("day"), plural("city")
        ('diseases', 'days', 'cities')

    """
    if word.endswith("y") and word[-2:-1] not in ("", "a", "e", "i", "o", "u"):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")
