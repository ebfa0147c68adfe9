"""The command line: a thin layer over the library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .errors import MvgpError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _mvgp() -> None:
    """Matrix-variate Gaussian processes: means and uncertainty for every entry of a partly observed matrix."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure; made when it is not there.")] = Path("mvgp-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the synthetic matrix.")] = 0,
) -> None:
    """Fit a plain matrix-variate GP to a synthetic partly observed matrix, and draw it."""
    from .demo import run_demo

    run_demo(out, seed, Console())


def main() -> None:
    """Run a command; a mistake of the user ends in one clear line and exit code 2."""
    try:
        app()
    except MvgpError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'output'}: {error.strerror or error}")


def _fail(message: str) -> None:
    Console(stderr=True).print(f"mvgp: {message}", highlight=False, markup=False, soft_wrap=True)
    sys.exit(2)
