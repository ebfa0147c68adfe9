"""Regular files and directories: whatever reads or writes a path asks here first what is there."""

from __future__ import annotations

import errno
import os
import stat
from typing import IO

from ..errors import InputError

KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class NotRegularError(OSError):
    """There is neither a regular file nor a directory; ``strerror`` says what there is."""


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """A regular file, open to be read; anything else is an ``OSError`` before it is opened.

    A FIFO that nobody writes to would wait for ever, a device such as ``/dev/zero`` would never end.
    """
    place = os.fspath(path)
    _check_regular(os.stat(place).st_mode, place)
    # the path may have changed hands in between: do not wait for a writer, and look again
    handle = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_regular(os.fstat(handle).st_mode, place)
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_output_file(path: str | os.PathLike[str]) -> str:
    """The file that a path leads to, through links: a regular one, or none yet in a directory that is there.

    Whatever else is there is refused: directories, devices, FIFOs, sockets, links that lead nowhere or in a circle.
    """
    place = os.fspath(path)
    if os.path.basename(place) in ("", os.curdir, os.pardir):
        raise InputError(f"{place!r}: expected the path of a file, got one without the name of a file")
    mode = _mode(place, "the path of a file")
    if mode is not None and not stat.S_ISREG(mode):
        raise InputError(f"{place}: expected the path of a file, got {kind(mode)}")
    target = os.path.realpath(place)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise InputError(f"{place}: expected an existing directory for the file, got {folder}")
    return target


def check_output_directory(path: str | os.PathLike[str]) -> None:
    """A directory, or a place where one can be made: the first thing that is there on the way up is a directory."""
    place = os.path.abspath(os.fspath(path)) if os.fspath(path) else ""
    if not place:
        raise InputError("expected the path of a directory, got an empty one")
    while True:
        mode = _mode(place, "a directory")
        if mode is not None:
            break
        if os.path.dirname(place) == place:
            raise InputError(f"{os.fspath(path)}: expected a directory, got a place that is not there: {place}")
        place = os.path.dirname(place)
    if not stat.S_ISDIR(mode):
        raise InputError(f"{os.fspath(path)}: expected a directory, got {kind(mode)}: {place}")


def kind(mode: int) -> str:
    """What a file mode stands for, in words."""
    return next((words for test, words in KINDS if test(mode)), "something else")


def _mode(place: str, expected: str) -> int | None:
    """Of what a path leads to; None if there is nothing."""
    try:
        return os.stat(place).st_mode
    except (FileNotFoundError, NotADirectoryError):  # the second: a part of the path is a file, which shows further up
        if os.path.islink(place):
            raise InputError(f"{place}: expected {expected}, got a link that leads nowhere") from None
        return None
    except OSError as error:
        got = "links that lead in a circle" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise InputError(f"{place}: expected {expected}, got {got}") from None
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"{place!r}: expected {expected}, got {error}") from None


def _check_regular(mode: int, place: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "expected a file, got a directory", place)
    if not stat.S_ISREG(mode):
        raise NotRegularError(errno.EINVAL, f"expected a file, got {kind(mode)}", place)
