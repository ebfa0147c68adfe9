"""The program: its commands. Each checks its options, calls the library, and shows what comes back.

Nothing of the library is imported before a command needs it: help and mistakes in options answer at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tqdm import tqdm
from typer import Option

from ...errors import InputError
from ...text import visible
from ...version import __version__
from .streams import Stopped, can_show, log, show_row, show_table

if TYPE_CHECKING:
    from ..ranking.rows import RankedRow
    from ..studies.tables import StudyResult
    from ..tables.link_set import LinkSet

OWN_MODELS = "hilbert, trace, best, whole, whole-popular, full, factor, prodige"
BASELINES = "popularity, neighbours, ease, als, bpr, puresvd, katz, propagation"
ALL_ROWS = "all rows: expected --out FILE (or --out - for standard output), or rows chosen with --row"
KEPT = "finished units are kept in {}, the same command does the rest"
LARGEST, TOP, MAX_MIB = 2**63 - 1, 20, 1024  # of an option, of the columns of a list, of a table
FITTING = (  # options that a saved model leaves nothing for
    *("pairs", "row_edges", "col_edges", "row_names", "col_names", "filters", "max_size"),
    *("model", "negatives", "within_rows", "strength", "trace_share", "save"),
)

_file, _directory, _row = (partial(Option, metavar=name) for name in ("FILE", "DIR", "ID_OR_NAME"))
PAIRS = _file(help="Known links: row id, column id. TSV or CSV, or gzip'd.")
RowEdges = Annotated[Path | None, _file(help="Graph of the rows: two ids, and perhaps a weight.")]
ColEdges = Annotated[Path | None, _file(help="Graph of the columns: two ids, and perhaps a weight.")]
RowNames = Annotated[Path | None, _file(help="Names of rows: id, name.")]
ColNames = Annotated[Path | None, _file(help="Names of columns: id, name.")]
KEEP = "Keep only rows and columns with a link in their graph (paper), or all (none)."
Filters = Annotated[str, Option(metavar="paper|none", help=KEEP)]
MaxSize = Annotated[int, Option(metavar="MIB", help="Largest size of a table in MiB, after decompression.")]
WITHIN = "Sample negatives in each row that has links, not over all cells."
WithinRows = Annotated[bool, Option("--within-rows", help=WITHIN)]
Seed = Annotated[int, Option(help="Of everything random: the same seed gives the same numbers.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress and no remarks, only results.")]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mvgp {__version__}")
        raise typer.Exit


@app.callback()
def _mvgp(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Matrix-variate Gaussian processes: rank the columns of a matrix for each row, and say how certain that is.

    Start with `mvgp demo`; `mvgp rank` and `mvgp study` do the same for tables of your own.
    """


@app.command()
def rank(
    context: typer.Context,
    pairs: Annotated[Path | None, PAIRS] = None,
    row_edges: RowEdges = None,
    col_edges: ColEdges = None,
    row_names: RowNames = None,
    col_names: ColNames = None,
    filters: Filters = "paper",
    max_size: MaxSize = MAX_MIB,
    row: Annotated[list[str] | None, _row(help="A row; may be repeated. All when left out.")] = None,
    top: Annotated[
        int | None,
        Option(
            help=f"How many columns of each row; also the k of P(top k). [default: {TOP}, or all if there are fewer]"
        ),
    ] = None,
    model: Annotated[str, Option(help=f"One of: {OWN_MODELS}, {BASELINES}.")] = "trace",
    negatives: Annotated[
        int | None, Option(help="Sets of sampled negatives, whose scores are averaged. [default: 5]")
    ] = None,
    within_rows: WithinRows = False,
    strength: Annotated[
        float | None, Option(help="Of the penalty, between 0 and 1; chosen by validation when left out.")
    ] = None,
    trace_share: Annotated[
        float | None, Option(help="Of the trace norm in the penalty, from 0 to 1; depends on the model.")
    ] = None,
    known: Annotated[bool, Option("--known", help="List known links, too.")] = False,
    uncertainty: Annotated[
        bool | None,
        Option(
            "--uncertainty/--no-uncertainty",
            help="Standard deviations and P(top k), which take seconds to minutes for each row. By default for rows "
            "that are chosen, and not for all rows.",
        ),
    ] = None,
    out: Annotated[Path | None, _file(help="Write a TSV there instead of showing tables; - for stdout.")] = None,
    save: Annotated[Path | None, _file(help="Keep the fitted model.")] = None,
    load: Annotated[Path | None, _file(help="Rank with a model that was kept; no tables.")] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Rank the columns (genes) of rows (diseases) by a table of known links and two graphs.

    For example:

    - `mvgp rank --pairs links.tsv --row-edges diseases.tsv --col-edges genes.tsv --row "Marfan syndrome"`

    - `mvgp rank --pairs links.tsv --col-edges genes.tsv --save fitted.mvgp --out all.tsv`

    - `mvgp rank --load fitted.mvgp --row OMIM:154700 --top 50`
    """
    _check_at_least(top, 1, "--top")
    _check_at_least(seed, 0, "--seed")
    tables = (row_edges, col_edges, row_names, col_names)
    _check_output(out, "--out", (pairs, *tables, load))
    _check_output(save, "--save", (pairs, *tables, load, out))
    if not row and out is None and save is None:
        raise InputError(ALL_ROWS)
    from ..ranking.prioritiser import check_fit, fit_prioritiser, load_prioritiser
    from ..ranking.rows import check_top
    from ..tuning.tune import WITH_POSTERIOR

    if load is not None:
        for name in FITTING:
            source = context.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE":
                raise InputError(f"--load: the model is fitted, so --{name.replace('_', '-')} cannot be given with it")
        fitted = load_prioritiser(load)
        top = top and check_top(top, fitted.shape[1])
        rows = fitted.find(row) if row else None
    else:
        check_fit(model, negatives, strength, trace_share)
        if save is not None and model not in WITH_POSTERIOR:
            raise InputError(f"--save: model {model!r} cannot be saved; {', '.join(WITH_POSTERIOR)} can")
        if uncertainty and model not in WITH_POSTERIOR:
            raise InputError(f"--uncertainty: model {model!r} has scores and no uncertainty")
        if pairs is None:
            raise InputError("--pairs: expected a table of known links, or a fitted model with --load, got neither")
        links = _read(pairs, tables, filters, max_size)
        rows = _find(row, links) if row else None
        top = top and check_top(top, links.shape[1])
        if not quiet:
            _log_links(links)
        fitted = fit_prioritiser(
            links,
            model=model,
            negatives=negatives,
            within_rows=within_rows,
            strength=strength,
            trace_share=trace_share,
            seed=seed,
            progress=not quiet,
        )
    if not quiet:
        log(f"{fitted.model}, {fitted.setting}, {len(fitted.rankers)} fits")
    if save is not None:
        fitted.save(save)
    if not row and out is None:
        return
    if uncertainty is None:  # by default of rows that were chosen
        uncertainty = rows is not None and fitted.mixture.has_uncertainty
        if rows is None and fitted.mixture.has_uncertainty and not quiet:
            log("all rows: without standard deviations and P(top k); --uncertainty adds them")
    length = top or min(TOP, fitted.shape[1])
    lists = fitted.ranked(rows, length, include_known=known, uncertainty=uncertainty, seed=seed, progress=not quiet)
    _show_or_write(lists, out, quiet)


def _find(row: list[str], links: LinkSet) -> list[int]:
    """Rows by id or name; one that is not found may be one that the filters have dropped."""
    from ..ranking.rows import find_rows

    try:
        return find_rows(row, links.row_ids, links.row_names)
    except InputError as error:
        dropped = links.report.dropped_rows if links.report is not None else 0
        if not dropped:
            raise
        rows = f"{dropped:,} row{'s' if dropped > 1 else ''} without a link in the row graph left out"
        raise InputError(f"{error} ({rows}; --filters none keeps all)") from None


def _show_or_write(lists: Iterator[RankedRow], out: Path | None, quiet: bool) -> None:
    from ...storage.files import replacing
    from ..ranking.rows import write_rows

    if out is None:
        for ranked in lists:
            with tqdm.external_write_mode():  # the bar is cleared, and shown again below
                show_row(ranked)
    elif str(out) == "-":
        write_rows(lists, sys.stdout.buffer)
    else:
        with replacing(str(out)) as file:
            count = write_rows(lists, file)
        if not quiet:
            log(f"{out}: {count:,} rows")


@app.command()
def study(
    pairs: Annotated[Path, PAIRS],
    out: Annotated[Path, _directory(help="Where units, tables and study.json are kept.")],
    row_edges: RowEdges = None,
    col_edges: ColEdges = None,
    row_names: RowNames = None,
    col_names: ColNames = None,
    filters: Filters = "paper",
    max_size: MaxSize = MAX_MIB,
    split: Annotated[str, Option(metavar="known|new", help="Hold out pairs (known) or whole rows (new).")] = "known",
    folds: Annotated[int, Option(help="K of cross-validation.")] = 5,
    run_folds: Annotated[int | None, Option(help="Run only the first few folds.")] = None,
    negatives: Annotated[int, Option(help="Sets of sampled negatives.")] = 10,
    models: Annotated[
        str, Option(help=f"With commas between them: {OWN_MODELS}, or names of baselines.")
    ] = "popularity,hilbert,trace,best",
    strengths: Annotated[
        str, Option(help="How many, from 1 down to --lowest; or the strengths, as 0.5,0.2,0.1.")
    ] = "30",
    lowest: Annotated[float, Option(help="The weakest strength.")] = 1e-3,
    trace_shares: Annotated[str, Option(help="Among which best chooses.")] = "1,0.8,0.6,0.4,0",
    metric: Annotated[str, Option(help="What choices maximise, inside the training part.")] = "MAP@100",
    subsample: Annotated[float, Option(help="Share of the links that is used; the paper has 0.05.")] = 1.0,
    within_rows: WithinRows = False,
    calibration_rows: Annotated[int, Option(help="Rows on which P(top k) is examined.")] = 0,
    candidate_rows: Annotated[int, Option(help="Rows whose candidates are listed at the end.")] = 0,
    top: Annotated[int, Option(help="Length of such lists, and the k of P(top k).")] = TOP,
    title: Annotated[str, Option(help="For the report.")] = "",
    seed: Seed = 0,
    jobs: Annotated[int, Option(help="Processes on this machine, at most 4 for each core.")] = 1,
    dask: Annotated[str | None, Option(metavar="ADDRESS", help="A Dask scheduler, whose workers are used.")] = None,
    quiet: Quiet = False,
) -> None:
    """Compare models by cross-validation, their settings chosen inside each training part.

    Every finished unit of work is kept in DIR at once: after an interrupt the same command resumes the study. Then
    `mvgp report DIR` makes a page of it.

    For example:

    - `mvgp study --pairs links.tsv --row-edges diseases.tsv --col-edges genes.tsv --out study --jobs 4`

    - `mvgp study --pairs links.tsv --col-edges genes.tsv --out new --split new --models popularity,trace,whole`

    - `mvgp study --pairs links.tsv --out small --subsample 0.05 --dask tcp://10.0.0.1:8786`
    """
    settings: dict[str, Any] = {
        "models": [name.strip() for name in models.split(",")],
        "split": split,
        "folds": folds,
        "run_folds": run_folds,
        "negative_sets": negatives,
        "within_rows": within_rows,
        "strengths": _count_or_numbers(strengths, "--strengths"),
        "lowest": lowest,
        "trace_shares": _numbers(trace_shares, "--trace-shares"),
        "metric": metric,
        "subsample": subsample,
        "calibration_rows": calibration_rows,
        "candidate_rows": candidate_rows,
        "top": top,
        "title": title,
        "seed": seed,
    }
    _check_at_least(seed, 0, "--seed")
    from ..studies.execution import check_address, check_jobs
    from ..studies.run import check_study, run_study
    from ..studies.settings import Study

    chosen = Study.from_dict(settings)
    _check_option("--", check_jobs, jobs)
    _check_option("--", check_address, dask)
    if dask is not None and jobs != 1:
        raise InputError(f"--jobs, --dask: expected one of them, got {jobs} jobs and the cluster {dask!r}")
    _check_directory(out)
    links = _read(pairs, (row_edges, col_edges, row_names, col_names), filters, max_size)
    check_study(links, chosen, out, dask)
    if not quiet:
        _log_links(links)
    try:
        result = run_study(links, chosen, out, jobs=jobs, dask=dask, progress=not quiet)
    except KeyboardInterrupt:
        raise Stopped(KEPT.format(out)) from None
    _show_metrics(result)
    if not quiet:
        for note in result.notes:
            log(f"note: {note}")
        log(f"tables are in {out / 'tables'}; mvgp report {out} makes a page of them")


def _show_metrics(result: StudyResult) -> None:
    """Mean and standard deviation over folds, a line for each model."""
    headings, *lines = result.cells("±" if can_show("±") else "+-")
    title = f"{result.study.num_folds} of {result.study.folds} folds, split by {result.study.split}"
    show_table(title, headings, lines, left=("model",))


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Of a study.")],
    out: Annotated[Path | None, _directory(help="Another directory for the report.")] = None,
) -> None:
    """Make one self-contained HTML page of a study, and figures as PNG and SVG beside it.

    For example:

    - `mvgp report study`

    - `mvgp report study --out public`
    """
    if not directory.is_dir():
        got = "a file" if directory.exists() else "nothing"
        raise InputError(f"{directory}: expected the directory of a study, got {got}")
    if out is not None:
        _check_directory(out)
    from ..report.page import write_report

    log(f"wrote {write_report(directory, out)}")


@app.command()
def demo(
    out: Annotated[Path, _directory(help="For the study and its report.")] = Path("mvgp-demo"),
    row: Annotated[str | None, _row(help="The disease whose genes are ranked.")] = None,
    jobs: Annotated[
        int | None, Option(help="Processes, at most 4 for each core. [default: 2, or 1 on one core]")
    ] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Rank genes of OMIM diseases (Human Phenotype Ontology), compare models on held-out pairs, write a report.

    Takes a few minutes on two cores. Nothing is downloaded.

    For example: `mvgp demo --row "Marfan syndrome"`
    """
    _check_at_least(seed, 0, "--seed")
    _check_directory(out)
    from ..demo import run_demo
    from ..studies.execution import check_jobs

    if jobs is not None:
        _check_option("--", check_jobs, jobs)
    progress = {"progress": False, "log": lambda line: None} if quiet else {"log": log}
    try:
        result = run_demo(out, row=row, jobs=jobs, seed=seed, **progress)
    except KeyboardInterrupt:
        raise Stopped(KEPT.format(out)) from None
    _show_metrics(result.study)
    show_row(result.ranked)
    hits = [result.ranked.col_names[index] for index in result.hits.nonzero().flatten().tolist()]
    known, held_out, listed = (", ".join(names) or "none" for names in (result.known, result.held_out, hits))
    print(visible(f"Known genes that were fitted: {known}"))
    print(visible(f"Held-out genes: {held_out}; in the list: {listed}"))
    print(visible(f"Report: {result.report}"))


# What the options say, checked and read -----------------------------------------------------------


def _read(pairs: Path, others: tuple[Path | None, ...], filters: str, max_size: int) -> LinkSet:
    """The links; ``others`` are the edges of rows and columns, and their names."""
    _check_at_least(max_size, 1, "--max-size")
    from ..tables.from_tables import read_links

    return read_links(pairs, *others, filters=filters, max_bytes=max_size * 2**20)


def _log_links(links: LinkSet) -> None:
    """What was read, in a few lines."""
    for line in str(links.report).splitlines():
        log(line)
    log(f"{links.shape[0]:,} rows x {links.shape[1]:,} columns, {len(links):,} links")


def _numbers(text: str, name: str) -> tuple[float, ...]:
    """From ``1,0.8,0.6``."""
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise InputError(f"{name}: expected numbers with commas between them, got {text!r}") from None


def _count_or_numbers(text: str, name: str) -> int | tuple[float, ...]:
    """How many, as ``30``; or the numbers themselves, as ``0.5,0.2,0.1``."""
    try:
        return int(text)
    except ValueError:
        return _numbers(text, name)


def _check_at_least(value: int | None, minimum: int, name: str) -> None:
    """A whole number from ``minimum`` on, if it is given."""
    if value is not None and not minimum <= value <= LARGEST:
        expected = f"a whole number of at least {minimum}, at most {LARGEST}"
        raise InputError(f"{name}: expected {expected}, got {value!s:.120}")


def _check_option(before: str, check: Callable[[Any], object], value: object) -> None:
    """A check of the library for an option; its message gets the option, or the dashes of its name, in front."""
    try:
        check(value)
    except InputError as error:
        raise InputError(f"{before}{error}") from None


def _check_directory(path: Path) -> None:
    """The directory of ``--out``, or a place for one."""
    from ...storage.files import check_output_directory

    _check_option("--out: ", check_output_directory, path)


def _check_output(path: Path | None, option: str, others: Iterable[Path | None]) -> None:
    """A file in a directory that is there, and none of the others, which are read or written, too."""
    if path is None or str(path) == "-":
        return
    from ...storage.files import check_output_file

    try:
        target = check_output_file(path)
    except InputError as error:
        hint = " (--out - writes to standard output)" if str(path) == "/dev/stdout" else ""
        raise InputError(f"{option}: {error}{hint}") from None
    for other in others:
        if other is not None and str(other) != "-" and _same(os.fspath(other), target):
            raise InputError(f"{option}: expected a file of its own, got {path}, which is read or written as well")


def _same(path: str, target: str) -> bool:
    try:
        return os.path.realpath(path) == target or os.path.samefile(path, target)
    except (OSError, ValueError):  # one of them is not there
        return False
