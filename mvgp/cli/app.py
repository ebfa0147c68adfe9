"""The program: its commands, and what they have in common."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from .demo import demo
from .rank import rank
from .report import report
from .study import study

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
