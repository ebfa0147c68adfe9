"""How a command ends: an exit code, and at most one line about what went wrong."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import typer

from ...errors import MvgpError
from .commands import app
from .streams import Interrupts, Stopped, drop_unwritten, interrupts, log, notes_in_one_line, streams

MISTAKE, OUR_MISTAKE, INTERRUPTED, NOT_READ = 2, 70, 130, 141
TRACE = "MVGP_TRACEBACK"  # if this is set, errors of our own come with their traceback
UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # of the click that typer brings along


def run(arguments: Sequence[str]) -> int:
    """The exit code of a command line."""
    with interrupts() as signals:
        try:
            code, message = _run(arguments, signals)
            signals.over = True
        except KeyboardInterrupt:  # between two lines of ours
            signals.over = True
            code, message = signals.code, signals.word
        if message:
            log(message)
        drop_unwritten()
        return code


def _run(arguments: Sequence[str], signals: Interrupts) -> tuple[int, str]:
    """The exit code, and the line about what went wrong."""
    try:
        with streams(), notes_in_one_line():
            code = app(list(arguments) or ["--help"], prog_name="mvgp", standalone_mode=False)
    except UsageError as error:
        message = str(error.format_message())  # type: ignore[attr-defined]
        context = getattr(error, "ctx", None)
        command = os.path.basename(context.command_path) if context is not None else "mvgp"
        return MISTAKE, f"{message.strip().rstrip('.')}; see {command} --help"
    except Stopped as error:
        return signals.code, f"{signals.word}; {error}"
    except (KeyboardInterrupt, typer.Abort):
        return signals.code, signals.word
    except MvgpError as error:
        return MISTAKE, str(error)
    except (BrokenPipeError, SystemExit):  # typer, which is not to exit, does when nobody reads what it prints
        return NOT_READ, ""
    except OSError as error:
        return MISTAKE, f"{error.filename or 'output'}: {error.strerror or error}"
    except MemoryError:
        return MISTAKE, "not enough memory; try fewer rows, --no-uncertainty, or a smaller problem"
    except Exception as error:
        if os.environ.get(TRACE):
            traceback.print_exc(file=sys.stderr)
        what = f"{type(error).__name__}: {error}"
        return OUR_MISTAKE, f"a mistake of mvgp itself, please report it: {what} ({TRACE}=1 shows where)"
    if code == INTERRUPTED:  # newer versions of typer turn an interrupt into this
        return signals.code, signals.word
    return code if isinstance(code, int) else 0, ""
