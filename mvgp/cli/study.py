"""mvgp study: models compared by cross-validation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..datasets import LinkSet, read_links
from ..errors import InputError
from ..studies import Study, StudyResult, run_study
from ..studies.directory import StudyDirectory
from ..studies.execution import check_address, connected
from ..studies.machine import check_jobs
from ..studies.study import OWN
from ..studies.workload import Workload
from . import options
from .display import show_table
from .notes import say
from .outputs import check_directory
from .stopped import Stopped
from .streams import can_show

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
