"""The program: its commands, and what they have in common."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from ...errors import InputError
from ...storage.files import replacing
from ...version import __version__
from ..ranking.fit import check_fit, fit_prioritiser
from ..ranking.models import MODELS, WITH_POSTERIOR
from ..ranking.prioritiser import Prioritiser, load_prioritiser
from ..ranking.rows import check_top, find_rows, write_rows
from ..studies.directory import StudyDirectory
from ..studies.execution import check_address, check_jobs, connected
from ..studies.settings import OWN, Study
from ..studies.study import StudyResult, run_study
from ..studies.units import Workload
from ..tables.link_set import LinkSet
from ..tables.links import read_links
from . import options
from .options import check_directory, check_output, show_line, show_row, show_table
from .streams import Stopped, can_show, say

TOP = 20  # columns of a list, unless another number is asked for
ALL_ROWS = "all rows: expected --out FILE (or --out - for standard output), or rows chosen with --row"
FITTING = (
    *("pairs", "row_edges", "col_edges", "row_names", "col_names"),
    *("model", "negatives", "within_rows", "strength", "trace_share"),
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
            help="How many columns of each row; also the k of P(top k). [default: 20, or all if there are fewer]"
        ),
    ] = None,
    model: Annotated[str, typer.Option(help=f"One of: {', '.join(MODELS)}.")] = "trace",
    negatives: Annotated[
        int | None, typer.Option(help="Sets of sampled negatives, whose scores are averaged. [default: 5]")
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
    tables = (pairs, row_edges, col_edges, row_names, col_names)
    check_output(out, "--out", (*tables, load))
    check_output(save, "--save", (*tables, load, out))
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
        links = read_links(pairs, *tables[1:], filters=filters, max_bytes=options.size(max_size))
        rows = _find(row, links) if row else None
        length = _length(top, links.shape[1])
        if not quiet:
            options.tell_links(links)
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
        say(f"{fitted.model}, {fitted.setting}, {len(fitted.rankers)} fits")
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
    for name in (*FITTING, "filters", "max_size", "save"):
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
    wanted = uncertainty
    if wanted is None:
        wanted = rows is not None and fitted.mixture.has_uncertainty
        if rows is None and fitted.mixture.has_uncertainty and not quiet:
            say("all rows: without standard deviations and P(top k); --uncertainty adds them")
    found = fitted.ranked(rows, top, include_known=known, uncertainty=wanted, seed=seed, progress=not quiet)
    if out is None:
        for one in found:
            with tqdm.external_write_mode():  # the bar is cleared, and shown again below
                show_row(one)
    elif str(out) == "-":
        write_rows(found, sys.stdout.buffer)
    else:
        with replacing(str(out)) as file:
            count = write_rows(found, file)
        if not quiet:
            say(f"{out}: {count:,} rows")


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
        check_directory(out, "--out")
    say(f"wrote {write_report(directory, out)}")


DEFAULT = Study()
SHARES = ",".join(f"{share:g}" for share in DEFAULT.trace_shares)


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
        str, typer.Option(help=f"With commas between them: {', '.join(OWN)}, or names of baselines.")
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

    Every finished unit of work is kept in DIR at once: after an interrupt the same command goes on where it was. Then
    `mvgp report DIR` makes a page of it.

    For example:

    - `mvgp study --pairs links.tsv --row-edges diseases.tsv --col-edges genes.tsv --out study --jobs 4`

    - `mvgp study --pairs links.tsv --col-edges genes.tsv --out new --split new --models popularity,trace,whole`

    - `mvgp study --pairs links.tsv --out small --subsample 0.05 --dask tcp://10.0.0.1:8786`
    """
    settings: dict[str, Any] = {
        "models": [one.strip() for one in models.split(",")],
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
    wanted = Study.from_dict(settings)
    options.named("--", check_jobs, jobs)
    options.named("--", check_address, dask)
    if dask is not None and jobs != 1:
        raise InputError(f"--jobs, --dask: expected one of them, got {jobs} jobs and the cluster {dask!r}")
    check_directory(out, "--out")
    tables = (pairs, row_edges, col_edges, row_names, col_names)
    links = read_links(*tables, filters=filters, max_bytes=options.size(max_size))
    _check(links, wanted, out, dask)
    if not quiet:
        options.tell_links(links)
    try:
        found = run_study(links, wanted, out, jobs=jobs, dask=dask, progress=not quiet)
    except KeyboardInterrupt:
        raise Stopped(f"finished units are kept in {out}, the same command goes on with the rest") from None
    show_metrics(found)
    if not quiet:
        for note in found.notes:
            say(f"note: {note}")
        say(f"tables are in {out / 'tables'}; mvgp report {out} makes a page of them")


def _check(links: LinkSet, wanted: Study, out: Path, dask: str | None) -> None:
    """What would stop the study at once, before anything is said."""
    Workload(links, wanted)
    with connected(dask), StudyDirectory(out, wanted, links.digest()).opened():
        pass


def show_metrics(found: StudyResult) -> None:
    """Mean and standard deviation over folds, a line for each model."""
    metrics = list(dict.fromkeys(entry["metric"] for entry in found.metrics))
    sign = "±" if can_show("±") else "+-"
    lines: dict[str, list[str]] = {}
    for entry in found.metrics:
        spread = "" if entry["folds"] == 1 else f" {sign} {entry['std']:.3f}"
        lines.setdefault(entry["model"], []).append(f"{entry['mean']:.3f}{spread}")
    title = f"{found.study.num_folds} of {found.study.folds} folds, split by {found.study.split}"
    show_table(title, ["model", *metrics], [[model, *line] for model, line in lines.items()], left=("model",))


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
    from ..studies.execution import check_jobs

    check_directory(out, "--out")
    options.check_seed(seed)
    if jobs is not None:
        options.named("--", check_jobs, jobs)
    try:
        found = run_demo(out, row=row, jobs=jobs, seed=seed, progress=not quiet, tell=_silent if quiet else say)
    except KeyboardInterrupt:
        raise Stopped(f"finished units are kept in {out}, the same command goes on with the rest") from None
    show_metrics(found.study)
    show_row(found.ranked)
    hits = [found.ranked.col_names[place] for place in found.found.nonzero().flatten().tolist()]
    show_line(f"Known genes that were fitted: {_listed(found.known)}")
    show_line(f"Held-out genes: {_listed(found.held_out)}; in the list: {_listed(hits)}")
    show_line(f"Report: {found.report}")


def _silent(line: str) -> None:
    """Say nothing."""


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names) if names else "none"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")


def _version(wanted: bool) -> None:
    if wanted:
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
