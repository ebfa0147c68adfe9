"""The program: its commands. Each checks its options, calls the library, and shows what comes back.

Nothing of the library is imported before a command needs it: help and mistakes in options answer at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from ...errors import InputError
from ...text import visible
from ...version import __version__
from .options import (
    PAIRS,
    ColEdges,
    ColFeatures,
    ColNames,
    ColShift,
    ColTime,
    ColWord,
    Coverage,
    DemoDir,
    Filters,
    JsonFile,
    ListFiles,
    MaxSize,
    Noise,
    OutFile,
    OutFormat,
    ParquetFile,
    Probabilities,
    Quiet,
    Ratio,
    ReportDir,
    RowEdges,
    RowFeatures,
    RowNames,
    RowShift,
    RowTime,
    RowWord,
    Seed,
    Tables,
    TrialFile,
    WithinRows,
    check_at_least,
    check_coverage,
    check_directory,
    check_option,
    check_out,
    check_output,
    check_times,
    count_or_numbers,
    directory_option,
    file_option,
    find_row_numbers,
    fixed_settings,
    given_words,
    log_links,
    numbers,
    row_option,
)
from .streams import Stopped, log, log_assessment, show_metrics, show_or_write, show_row

OWN_MODELS = "auto, hilbert, trace, best, whole, whole-popular, full, factor, prodige"
BASELINES = (
    "popularity, neighbours, ease, edlae, row-gp, rp3beta, gfcf, als, ials, ials-graph, bpr, puresvd, katz, propagation"
)
ALL_ROWS = "all rows: expected --out FILE (or --out - for standard output), --report DIR, or rows chosen with --row"
KEPT = "finished units are kept in {}, the same command does the rest"
ASSESSED = ".assessment.tsv"  # suffix of the table beside a list
TOP, MAX_MIB = 20, 1024  # columns of a list, size of a table
FITTING = (  # options that a saved model leaves nothing for
    *("pairs", "row_edges", "col_edges", "row_features", "col_features", "row_names", "col_names", "filters"),
    *("max_size", "model", "negatives", "within_rows", "ratio", "strength", "trace_share", "save", "probabilities"),
    *("row_time", "row_shift", "col_time", "col_shift", "noise", "trials"),
)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mvgp {__version__}")
        raise typer.Exit


def _help(context: typer.Context, asked: bool) -> None:
    if asked:
        typer.echo(context.get_help())
        raise typer.Exit


@app.callback(add_help_option=False)  # typer's own makes it import pydantic before it looks at a command
def _mvgp(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
    help: Annotated[bool, Option("--help", callback=_help, is_eager=True, help="Show this message.")] = False,
) -> None:
    """Matrix-variate Gaussian processes: rank the columns of a matrix for each row, and say how certain that is.

    Start with `mvgp demo`; `mvgp rank` and `mvgp study` do the same for tables of your own.
    """


@app.command(short_help="Rank columns of rows by known links, graphs and features.")
def rank(
    context: typer.Context,
    pairs: Annotated[Path | None, PAIRS] = None,
    row_edges: RowEdges = None,
    col_edges: ColEdges = None,
    row_features: RowFeatures = None,
    col_features: ColFeatures = None,
    row_names: RowNames = None,
    col_names: ColNames = None,
    filters: Filters = "linked",
    max_size: MaxSize = MAX_MIB,
    row: Annotated[list[str] | None, row_option(help="A row; may be repeated. All when left out.")] = None,
    top: Annotated[
        int | None,
        Option(
            help=f"How many columns of each row; also the k of P(top k). [default: {TOP}, or all if there are fewer]"
        ),
    ] = None,
    model: Annotated[str, Option(help=f"One of: {OWN_MODELS}, {BASELINES}.")] = "auto",
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
    row_time: RowTime = None,
    row_shift: RowShift = None,
    col_time: ColTime = None,
    col_shift: ColShift = None,
    noise: Noise = None,
    ratio: Ratio = None,
    known: Annotated[bool, Option("--known", help="List known links, too.")] = False,
    uncertainty: Annotated[
        bool | None,
        Option(
            "--uncertainty/--no-uncertainty",
            help="Standard deviations of scores, and P(top k) where no probabilities are measured, which take seconds "
            "to minutes for each row. By default for rows that are chosen, and not for all rows.",
        ),
    ] = None,
    probabilities: Probabilities = None,
    coverage: Coverage = None,
    trials: TrialFile = None,
    out: OutFile = None,
    format: OutFormat = None,
    report: ReportDir = None,
    json: JsonFile = None,
    parquet: ParquetFile = None,
    row_word: RowWord = None,
    col_word: ColWord = None,
    save: Annotated[Path | None, file_option(help="Keep the fitted model.")] = None,
    load: Annotated[Path | None, file_option(help="Rank with a model that was kept; no tables.")] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Rank the columns (genes) of rows (diseases) by a table of known links, graphs and features.

    \b
    For example:
      mvgp rank --pairs links.tsv --row-edges diseases.tsv --row "Marfan syndrome"
      mvgp rank --pairs links.tsv --col-edges genes.tsv --save fitted.mvgp --out all.tsv
      mvgp rank --load fitted.mvgp --row OMIM:154700 --top 50 --report page
    """  # noqa: D301
    check_at_least(top, 1, "--top")
    check_at_least(seed, 0, "--seed")
    calibrate = check_coverage(coverage, probabilities, uncertainty)
    tables = Tables(
        pairs,
        row_edges=row_edges,
        col_edges=col_edges,
        row_features=row_features,
        col_features=col_features,
        row_names=row_names,
        col_names=col_names,
    )
    check_out(out, format, (*tables.paths(), load))
    check_output(save, "--save", (*tables.paths(), load, out))
    check_output(trials, "--trials", (*tables.paths(), load, out, save))
    assessed = out.with_suffix(ASSESSED) if out is not None and str(out) != "-" and load is None else None
    if model == "auto":
        check_output(assessed, "--out", (*tables.paths(), out, save))
    files = ListFiles(report, json, parquet, row_word, col_word)
    files.check((*tables.paths(), load, out, save, assessed))
    if not row and out is None and save is None and not files.wanted:
        raise InputError(ALL_ROWS)
    from ..ranking.prioritiser import fit_prioritiser, load_prioritiser
    from ..ranking.rows import check_top, write_assessment
    from ..tuning.tune import WITH_POSTERIOR, check_fit, takes_negatives

    link_set = None
    if load is not None:
        for name in FITTING:
            source = context.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE":
                raise InputError(f"--load: the model is fitted, so --{name.replace('_', '-')} cannot be given with it")
        fitted = load_prioritiser(load)
        top = top and check_top(top, fitted.shape[1])
        rows = fitted.find(row) if row else None
        if coverage and fitted.trust is None:
            raise InputError(f"--coverage: expected a model that was saved with probabilities, got {load} without")
    else:
        check_fit(model, negatives, strength, trace_share)
        if within_rows and not takes_negatives(model):
            raise InputError(f"--within-rows: model {model!r} is fitted without sampled negatives")
        fixed = {
            "row_time": row_time,
            "row_shift": row_shift,
            "col_time": col_time,
            "col_shift": col_shift,
            "noise": noise,
            "ratio": ratio,
        }
        settings = fixed_settings(model, fixed)
        if save is not None and model not in WITH_POSTERIOR:
            raise InputError(f"--save: model {model!r} cannot be saved; {', '.join(WITH_POSTERIOR)} can")
        if uncertainty and model not in WITH_POSTERIOR:
            raise InputError(f"--uncertainty: model {model!r} has scores and no uncertainty")
        links = link_set = tables.read(filters, max_size)
        check_times(fixed, links)
        rows = find_row_numbers(row, links) if row else None
        top = top and check_top(top, links.shape[1])
        if not quiet:
            log_links(links)
        fitted = fit_prioritiser(
            links,
            model=model,
            negatives=negatives,
            within_rows=within_rows,
            strength=strength,
            trace_share=trace_share,
            calibrate=calibrate,
            trials=trials,
            seed=seed,
            progress=False if quiet else "auto",
            log=None if quiet else log,
            **settings,
        )
    if not quiet:
        log(f"{fitted.model}, {fitted.setting}, {len(fitted.rankers)} fits")
    if fitted.model == "auto" and load is None:
        if not quiet:
            log_assessment(fitted)
        if assessed is not None:
            write_assessment(fitted.assessment, assessed)
    for line in fitted.trust.in_words() if fitted.trust is not None and not quiet else ():
        log(line)
    if save is not None:
        fitted.save(save)
    if not row and out is None and not files.wanted:
        return
    sampled = "" if fitted.trust is not None and fitted.trust.top is not None else " and P(top {})"
    if uncertainty is None:  # by default of rows that were chosen
        uncertainty = rows is not None and fitted.mixture.has_uncertainty
        if rows is None and fitted.mixture.has_uncertainty and not quiet:
            log(f"all rows: without standard deviations{sampled.format('k')}; --uncertainty adds them")
    length = top or min(TOP, fitted.shape[1])
    options: dict[str, Any] = {"include_known": known, "coverage": coverage or ()}
    if uncertainty and rows is not None and out is None and not quiet:  # what takes long comes after what is quick
        show_or_write(fitted.ranked(rows, length, uncertainty=False, **options), None, None, quiet)
        sys.stdout.flush()
        seconds = fitted.mixture.expected_seconds(rows[0])
        cost = "seconds to minutes for each row" if seconds is None else f"about {max(1, seconds * len(rows)):.0f} s"
        log(f"next the same with standard deviations{sampled.format(length)}, which takes {cost}")
    options["words"] = files.called if uncertainty or files.wanted else None
    lists = fitted.ranked(
        rows, length, uncertainty=uncertainty, seed=seed, progress=False if quiet else "auto", **options
    )
    if files.wanted:
        lists = files.write(fitted, lists, link_set, quiet)
    if row or out is not None:
        show_or_write(lists, out, format, quiet)


@app.command(short_help="Compare models by cross-validation.")
def study(
    pairs: Annotated[Path, PAIRS],
    out: Annotated[Path, directory_option(help="Where units, tables and study.json are kept.")],
    row_edges: RowEdges = None,
    col_edges: ColEdges = None,
    row_features: RowFeatures = None,
    col_features: ColFeatures = None,
    row_names: RowNames = None,
    col_names: ColNames = None,
    filters: Filters = "linked",
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

    \b
    For example:
      mvgp study --pairs links.tsv --row-edges diseases.tsv --out study --jobs 4
      mvgp study --pairs links.tsv --out new --split new --models popularity,trace,whole
      mvgp study --pairs links.tsv --out small --subsample 0.05 --dask tcp://10.0.0.1:8786
    """  # noqa: D301
    settings: dict[str, Any] = {
        "models": [name.strip() for name in models.split(",")],
        "split": split,
        "folds": folds,
        "run_folds": run_folds,
        "negative_sets": negatives,
        "within_rows": within_rows,
        "strengths": count_or_numbers(strengths, "--strengths"),
        "lowest": lowest,
        "trace_shares": numbers(trace_shares, "--trace-shares"),
        "metric": metric,
        "subsample": subsample,
        "calibration_rows": calibration_rows,
        "candidate_rows": candidate_rows,
        "top": top,
        "title": title,
        "seed": seed,
    }
    check_at_least(seed, 0, "--seed")
    from ..studies.directory import Study
    from ..studies.execution import check_address, check_jobs
    from ..studies.run import check_study, run_study

    chosen = Study.from_dict(settings)
    check_option("--", check_jobs, jobs)
    check_option("--", check_address, dask)
    if dask is not None and jobs != 1:
        raise InputError(f"--jobs, --dask: expected one of them, got {jobs} jobs and the cluster {dask!r}")
    check_directory(out)
    links = Tables(
        pairs,
        row_edges=row_edges,
        col_edges=col_edges,
        row_features=row_features,
        col_features=col_features,
        row_names=row_names,
        col_names=col_names,
    ).read(filters, max_size)
    check_study(links, chosen, out, dask)
    if not quiet:
        log_links(links)
    try:
        result = run_study(links, chosen, out, jobs=jobs, dask=dask, progress=False if quiet else "auto")
    except KeyboardInterrupt:
        raise Stopped(KEPT.format(out)) from None
    show_metrics(result)
    if not quiet:
        for note in result.notes:
            log(f"note: {note}")
        log(f"tables are in {out / 'tables'}; mvgp report {out} makes a page of them")


@app.command(short_help="Make a page of a study.")
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Of a study.")],
    out: Annotated[Path | None, directory_option(help="Another directory for the report.")] = None,
    row_word: RowWord = None,
    col_word: ColWord = None,
) -> None:
    """Make one self-contained HTML page of a study, and figures as PNG and SVG beside it.

    \b
    For example:
      mvgp report study
      mvgp report study --out public
    """  # noqa: D301
    if not directory.is_dir():
        got = "a file" if directory.exists() else "nothing"
        raise InputError(f"{directory}: expected the directory of a study, got {got}")
    words = given_words(row_word, col_word)
    if out is not None:
        check_directory(out)
    from ..report.page import write_report

    log(f"wrote {write_report(directory, out, **words)}")


@app.command(short_help="Rank genes of OMIM diseases; nothing is downloaded.")
def demo(
    out: DemoDir = None,
    quick: Annotated[bool, Option("--quick", help="Seconds: the same steps with a small part of the data.")] = False,
    row: Annotated[str | None, row_option(help="The disease whose genes are ranked.")] = None,
    jobs: Annotated[
        int | None, Option(help="Processes, at most 4 for each core. [default: 2, or 1 on one core]")
    ] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Rank genes of OMIM diseases (Human Phenotype Ontology), compare models on held-out pairs, write a report.

    Takes about two minutes on two cores, with `--quick` some seconds. Nothing is downloaded.

    For example: `mvgp demo --row "Marfan syndrome"`
    """
    out = Path("mvgp-demo-quick" if quick else "mvgp-demo") if out is None else out
    check_at_least(seed, 0, "--seed")
    check_directory(out)
    from ..demo import run_demo
    from ..studies.execution import check_jobs

    if jobs is not None:
        check_option("--", check_jobs, jobs)
    progress = {"progress": False, "log": lambda line: None} if quiet else {"log": log}
    try:
        result = run_demo(out, row=row, quick=quick, jobs=jobs, seed=seed, **progress)
    except KeyboardInterrupt:
        raise Stopped(KEPT.format(out)) from None
    show_metrics(result.study)
    show_row(result.ranked)
    landed = ", ".join(f"{name} (rank {place:,})" for name, place in result.held_out) or "none"
    print(visible(f"Known genes that were fitted: {', '.join(result.known) or 'none'}"))
    print(visible(f"Hidden genes, with their ranks among all genes that are not known: {landed}"))
    for sentence in result.sentences:
        print(visible(f"- {sentence}"))
    print(visible(f"The list as a page: {result.page}"))
    print(visible(f"Report: {result.report}"))
