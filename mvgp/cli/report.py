"""mvgp report: a study as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError
from .notes import say
from .outputs import check_directory


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Of a study.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Another directory for the report.")] = None,
) -> None:
    """Make one self-contained HTML page of a study, and figures as PNG and SVG beside it.

    For example:

    - `mvgp report study`

    - `mvgp report study --out public`
    """
    from ..reports import write_report

    if not directory.is_dir():
        raise InputError(
            f"{directory}: expected the directory of a study, got {'a file' if directory.exists() else 'nothing'}"
        )
    if out is not None:
        check_directory(out, "--out")
    say(f"wrote {write_report(directory, out)}")
