"""How a command ends: an exit code, and at most one line about what went wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence

import typer

from ..errors import MvgpError
from .app import app
from .notes import notes_in_one_line, say
from .stopped import Stopped

MISTAKE, INTERRUPTED = 2, 130
UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # of the click that typer brings along


def run(arguments: Sequence[str]) -> int:
    """The exit code of a command line."""
    try:
        with notes_in_one_line():
            found = app(list(arguments) or ["--help"], prog_name="mvgp", standalone_mode=False)
    except UsageError as error:
        told = str(error.format_message())  # type: ignore[attr-defined]
        return _mistake(f"{told.strip().rstrip('.')}; see {_help(error)}")
    except Stopped as error:
        return _interrupted(f"interrupted; {error}")
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted("interrupted")
    except MvgpError as error:
        return _mistake(str(error))
    except OSError as error:
        return _mistake(f"{error.filename or 'output'}: {error.strerror or error}")
    except MemoryError:
        return _mistake("not enough memory; try fewer rows, --no-uncertainty, or a smaller problem")
    if found == INTERRUPTED:  # newer versions of typer turn an interrupt into this
        return _interrupted("interrupted")
    return found if isinstance(found, int) else 0


def _mistake(message: str) -> int:
    say(" ".join(message.splitlines()))
    return MISTAKE


def _interrupted(message: str) -> int:
    say(" ".join(message.splitlines()))
    return INTERRUPTED


def _help(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    command = os.path.basename(context.command_path) if context is not None else "mvgp"
    return f"{command} --help"
