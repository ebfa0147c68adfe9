"""The program: its commands. Each checks its options, calls the library, and shows what comes back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from ...errors import InputError
from ...storage.files import replacing
from ...version import __version__
from ..baselines.candidates import BASELINE_NAMES
from ..ranking.prioritiser import Prioritiser, check_fit, fit_prioritiser, load_prioritiser
from ..ranking.rows import check_top, find_rows, write_rows
from ..studies.execution import check_address, check_jobs
from ..studies.run import check_study, run_study
from ..studies.settings import Study
from ..studies.tables import StudyResult
from ..tables.link_set import LinkSet
from ..tuning.settings import DEFAULT_MODEL, OF_ONE_LIST, TOP
from ..tuning.tune import MODELS, WITH_POSTERIOR
from . import options
from .options import check_directory, check_option, check_output, show_line, show_row, show_table
from .streams import Stopped, can_show, log

DEFAULT = Study()
SHARES = ",".join(f"{share:g}" for share in DEFAULT.trace_shares)
OWN_MODELS = ", ".join(name for name in MODELS if name not in BASELINE_NAMES)
ALL_ROWS = "all rows: expected --out FILE (or --out - for standard output), or rows chosen with --row"
KEPT = "finished units are kept in {}, the same command does the rest"
FITTING = (  # options that a saved model leaves nothing for
    *("pairs", "row_edges", "col_edges", "row_names", "col_names", "filters", "max_size"),
    *("model", "negatives", "within_rows", "strength", "trace_share", "save"),
)


def rank(
    context: typer.Context,
    pairs: options.Pairs = None,
    row_edges: options.RowEdges = None,
    col_edges: options.ColEdges = None,
    row_names: options.RowNames = None,
    col_names: options.ColNames = None,
    filters: options.Filters = "paper",
    max_size: options.MaxSize = options.SIZE,
    row: Annotated[
        list[str] | None, typer.Option(metavar="ID_OR_NAME", help="A row; may be repeated. All when left out.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            help=f"How many columns of each row; also the k of P(top k). [default: {TOP}, or all if there are fewer]"
        ),
    ] = None,
    model: Annotated[str, typer.Option(help=f"One of: {', '.join(MODELS)}.")] = DEFAULT_MODEL,
    negatives: Annotated[
        int | None,
        typer.Option(
            help=f"Sets of sampled negatives, whose scores are averaged. [default: {OF_ONE_LIST['negative_sets']}]",
        ),
    ] = None,
    within_rows: options.WithinRows = False,
    strength: Annotated[
        float | None, typer.Option(help="Of the penalty, between 0 and 1; chosen by validation when left out.")
    ] = None,
    trace_share: Annotated[
        float | None, typer.Option(help="Of the trace norm in the penalty, from 0 to 1; depends on the model.")
    ] = None,
    known: Annotated[bool, typer.Option("--known", help="List known links, too.")] = False,
    uncertainty: Annotated[
        bool | None,
        typer.Option(
            "--uncertainty/--no-uncertainty",
            help="Standard deviations and P(top k), which take seconds to minutes for each row. By default for rows "
            "that are chosen, and not for all rows.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a TSV there instead of showing tables; - for stdout.")
    ] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the fitted model.")] = None,
    load: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rank with a model that was kept; no tables.")
    ] = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Rank the columns (genes) of rows (diseases) by a table of known links and two graphs.

    For example:

    - `mvgp rank --pairs links.tsv --row-edges diseases.tsv --col-edges genes.tsv --row "Marfan syndrome"`

    - `mvgp rank --pairs links.tsv --col-edges genes.tsv --save fitted.mvgp --out all.tsv`

    - `mvgp rank --load fitted.mvgp --row OMIM:154700 --top 50`
    """
    options.check_at_least(top, 1, "--top")
    options.check_seed(seed)
    tables = (row_edges, col_edges, row_names, col_names)
    check_output(out, "--out", (pairs, *tables, load))
    check_output(save, "--save", (pairs, *tables, load, out))
    if not row and out is None and save is None:
        raise InputError(ALL_ROWS)
    if load is not None:
        _refuse_fitting(context)
        fitted = load_prioritiser(load)
        length = _length(top, fitted.shape[1])
        rows = fitted.find(row) if row else None
    else:
        check_fit(model, negatives, strength, trace_share)
        if save is not None and model not in WITH_POSTERIOR:
            raise InputError(f"--save: model {model!r} cannot be saved; {', '.join(WITH_POSTERIOR)} can")
        if uncertainty and model not in WITH_POSTERIOR:
            raise InputError(f"--uncertainty: model {model!r} has scores and no uncertainty")
        if pairs is None:
            raise InputError("--pairs: expected a table of known links, or a fitted model with --load, got neither")
        links = options.read_tables(pairs, tables, filters, max_size)
        rows = _find(row, links) if row else None
        length = _length(top, links.shape[1])
        if not quiet:
            options.log_links(links)
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
    if row or out is not None:
        _rank(fitted, rows, length, known, uncertainty, out, seed, quiet)


def _length(top: int | None, columns: int) -> int:
    return min(TOP, columns) if top is None else check_top(top, columns)


def _find(row: list[str], links: LinkSet) -> list[int]:
    """Rows by id or name; one that is not found may be one that the filters have dropped."""
    try:
        return find_rows(row, links.row_ids, links.row_names)
    except InputError as error:
        dropped = links.report.dropped_rows if links.report is not None else 0
        if not dropped:
            raise
        rows = f"{dropped:,} row{'s' if dropped > 1 else ''}"
        raise InputError(
            f"{error} ({rows} without a link in the row graph left out; --filters none keeps all)"
        ) from None


def _refuse_fitting(context: typer.Context) -> None:
    """What is given for a fit makes no sense with a fitted model."""
    for name in FITTING:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(f"--load: the model is fitted, so --{name.replace('_', '-')} cannot be given with it")


def _rank(
    fitted: Prioritiser,
    rows: list[int] | None,
    top: int,
    known: bool,
    uncertainty: bool | None,
    out: Path | None,
    seed: int,
    quiet: bool,
) -> None:
    """Show or write the lists; by default with uncertainties of rows that were chosen."""
    if uncertainty is None:
        uncertainty = rows is not None and fitted.mixture.has_uncertainty
        if rows is None and fitted.mixture.has_uncertainty and not quiet:
            log("all rows: without standard deviations and P(top k); --uncertainty adds them")
    lists = fitted.ranked(rows, top, include_known=known, uncertainty=uncertainty, seed=seed, progress=not quiet)
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


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Of a study.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Another directory for the report.")] = None,
) -> None:
    """Make one self-contained HTML page of a study, and figures as PNG and SVG beside it.

    For example:

    - `mvgp report study`

    - `mvgp report study --out public`
    """
    from ..report.page import write_report

    if not directory.is_dir():
        raise InputError(
            f"{directory}: expected the directory of a study, got {'a file' if directory.exists() else 'nothing'}"
        )
    if out is not None:
        check_directory(out)
    log(f"wrote {write_report(directory, out)}")


def study(
    pairs: Annotated[Path, typer.Option(metavar="FILE", help="Known links: row id, column id. TSV or CSV, or gzip'd.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where units, tables and study.json are kept.")],
    row_edges: options.RowEdges = None,
    col_edges: options.ColEdges = None,
    row_names: options.RowNames = None,
    col_names: options.ColNames = None,
    filters: options.Filters = "paper",
    max_size: options.MaxSize = options.SIZE,
    split: Annotated[
        str, typer.Option(metavar="known|new", help="Hold out pairs (known) or whole rows (new).")
    ] = "known",
    folds: Annotated[int, typer.Option(help="K of cross-validation.")] = DEFAULT.folds,
    run_folds: Annotated[int | None, typer.Option(help="Run only the first few folds.")] = None,
    negatives: Annotated[int, typer.Option(help="Sets of sampled negatives.")] = DEFAULT.negative_sets,
    models: Annotated[
        str, typer.Option(help=f"With commas between them: {OWN_MODELS}, or names of baselines.")
    ] = ",".join(DEFAULT.models),
    strengths: Annotated[
        str, typer.Option(help="How many, from 1 down to --lowest; or the strengths, as 0.5,0.2,0.1.")
    ] = str(DEFAULT.strengths),
    lowest: Annotated[float, typer.Option(help="The weakest strength.")] = DEFAULT.lowest,
    trace_shares: Annotated[str, typer.Option(help="Among which best chooses.")] = SHARES,
    metric: Annotated[str, typer.Option(help="What choices maximise, inside the training part.")] = DEFAULT.metric,
    subsample: Annotated[float, typer.Option(help="Share of the links that is used; the paper has 0.05.")] = 1.0,
    within_rows: options.WithinRows = False,
    calibration_rows: Annotated[int, typer.Option(help="Rows on which P(top k) is examined.")] = 0,
    candidate_rows: Annotated[int, typer.Option(help="Rows whose candidates are listed at the end.")] = 0,
    top: Annotated[int, typer.Option(help="Length of such lists, and the k of P(top k).")] = DEFAULT.top,
    title: Annotated[str, typer.Option(help="For the report.")] = "",
    seed: options.Seed = 0,
    jobs: Annotated[int, typer.Option(help="Processes on this machine, at most 4 for each core.")] = 1,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler, whose workers are used.")
    ] = None,
    quiet: options.Quiet = False,
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
        "strengths": options.count_or_numbers(strengths, "--strengths"),
        "lowest": lowest,
        "trace_shares": options.numbers(trace_shares, "--trace-shares"),
        "metric": metric,
        "subsample": subsample,
        "calibration_rows": calibration_rows,
        "candidate_rows": candidate_rows,
        "top": top,
        "title": title,
        "seed": seed,
    }
    options.check_seed(seed)
    chosen = Study.from_dict(settings)
    check_option("--", check_jobs, jobs)
    check_option("--", check_address, dask)
    if dask is not None and jobs != 1:
        raise InputError(f"--jobs, --dask: expected one of them, got {jobs} jobs and the cluster {dask!r}")
    check_directory(out)
    links = options.read_tables(pairs, (row_edges, col_edges, row_names, col_names), filters, max_size)
    check_study(links, chosen, out, dask)
    if not quiet:
        options.log_links(links)
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


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="For the study and its report.")] = Path("mvgp-demo"),
    row: Annotated[str | None, typer.Option(metavar="ID_OR_NAME", help="The disease whose genes are ranked.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes, at most 4 for each core. [default: 2, or 1 on one core]")
    ] = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Rank genes of OMIM diseases (Human Phenotype Ontology), compare models on held-out pairs, write a report.

    Takes a few minutes on two cores. Nothing is downloaded.

    For example: `mvgp demo --row "Marfan syndrome"`
    """
    from ..demo import run_demo

    check_directory(out)
    options.check_seed(seed)
    if jobs is not None:
        check_option("--", check_jobs, jobs)
    try:
        result = run_demo(out, row=row, jobs=jobs, seed=seed, progress=not quiet, log=_ignore if quiet else log)
    except KeyboardInterrupt:
        raise Stopped(KEPT.format(out)) from None
    _show_metrics(result.study)
    show_row(result.ranked)
    hits = [result.ranked.col_names[index] for index in result.hits.nonzero().flatten().tolist()]
    show_line(f"Known genes that were fitted: {_listed(result.known)}")
    show_line(f"Held-out genes: {_listed(result.held_out)}; in the list: {_listed(hits)}")
    show_line(f"Report: {result.report}")


def _ignore(line: str) -> None:
    """Drop a line."""


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names) if names else "none"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mvgp {__version__}")
        raise typer.Exit


@app.callback()
def _mvgp(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Matrix-variate Gaussian processes: rank the columns of a matrix for each row, and say how certain that is.

    Start with `mvgp demo`; `mvgp rank` and `mvgp study` do the same for tables of your own.
    """


app.command()(rank)
app.command()(study)
app.command()(report)
app.command()(demo)
