"""Standard output and standard error as they are: closed, a pipe that nobody reads, without most letters."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

from ..errors import InputError


@contextlib.contextmanager
def streams() -> Iterator[None]:
    """Letters that a stream lacks are written as escapes, and a closed standard error takes what it is given.

    A closed standard output has no place for results: an :class:`~mvgp.errors.InputError`.
    """
    kept = sys.stdout, sys.stderr
    _fill_closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        raise InputError("standard output: expected a place for results, got a closed one (> /dev/null drops them)")
    changed = [(one, one.errors) for one in (sys.stdout, sys.stderr) if isinstance(one, io.TextIOWrapper)]
    for stream, _ in changed:
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
        sys.stdout.flush()  # while a full disk can still be told
    finally:
        sys.stdout, sys.stderr = kept  # typer may have wrapped them
        for stream, errors in changed:
            if not stream.closed:
                with contextlib.suppress(OSError, ValueError):
                    stream.reconfigure(errors=errors)


def drop_unwritten() -> None:
    """Forget what could not be written, so that nobody tries again when the program ends."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


def can_show(text: str) -> bool:
    """Whether standard output has these letters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _fill_closed() -> None:
    """A file that is opened later must not get the number of a standard stream: what is printed would go into it."""
    while True:
        handle = os.open(os.devnull, os.O_RDWR)
        if handle > 2:
            os.close(handle)
            return
