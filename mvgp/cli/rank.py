"""mvgp rank: ranked lists from tables of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

from ..datasets import LinkSet, read_links
from ..errors import InputError
from ..prioritise import MODELS, Prioritiser, find_rows, fit_prioritiser, load_prioritiser
from ..prioritise.fit import check_fit
from ..prioritise.ranked_rows import check_top, write_rows
from ..prioritise.recipes import WITH_POSTERIOR
from ..storage.atomic import replacing
from . import options
from .display import show_row
from .notes import say
from .outputs import check_output

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
