"""JSON from a file that anybody may have changed: bounded in size, depth and digits."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import stat
from collections.abc import Iterator
from typing import IO, Any

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


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of ``path`` at the end; after an error there is no trace of it.

    Only a regular file is replaced, and keeps its permissions; where ``path`` is a link to one, that file is, and the
    link stays. Anything else that is there (a directory, a device, a FIFO, a socket, a broken link) is an
    :class:`~mvgp.errors.InputError`.
    """
    target = check_output_file(path)
    folder = os.path.dirname(target)
    draft = os.path.join(folder, f".mvgp-{secrets.token_hex(8)}.tmp")
    try:
        with _draft(draft, path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if check_output_file(target) != target:  # it may have changed hands while we wrote
            raise InputError(f"{path}: expected a regular file, got a link that was made in the meantime")
        try:
            if os.path.exists(target):
                os.chmod(draft, stat.S_IMODE(os.stat(target).st_mode))
            os.replace(draft, target)
        except PermissionError as error:
            raise InputError(f"{path}: expected a file that can be replaced, got {error}") from error
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise
    with contextlib.suppress(OSError):  # the name itself; not every system can do this
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _draft(draft: str, path: str) -> IO[bytes]:
    try:
        return open(draft, "x+b")
    except PermissionError as error:
        raise InputError(f"{path}: expected a directory that can be written to, got {error}") from error


MOST_BYTES = 2**26
DEEPEST = 50
DIGITS = 19  # of a whole number: those of 64 bits


def read_json(path: str | os.PathLike[str], what: str = "JSON") -> Any:
    """What a file says; ``FileNotFoundError`` if there is none, :class:`~mvgp.errors.InputError` if it is no such JSON.

    Whole numbers have at most 19 digits, numbers are finite, and nothing is nested more than 50 deep.

    :param what: is expected, for messages.
    """
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path}: expected {what}, got {error.strerror or error}") from error
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: expected {what} of at most {MOST_BYTES:,} bytes, got more")
    try:
        found = json.loads(content.decode(), parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected text in UTF-8, got {error}") from error
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise InputError(f"{where}: expected {what}, got {error.msg}") from error
    except ValueError as error:
        raise InputError(f"{path}: expected {what}, got {error}") from error
    except RecursionError:
        found = None
        deep = True
    else:
        deep = _deep(found)
    if deep:
        raise InputError(f"{path}: expected {what}, nested at most {DEEPEST} deep, got more")
    return found


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:20]} for a finite number")
    return found


def _deep(found: Any) -> bool:
    waiting = [(found, 0)]
    while waiting:
        value, depth = waiting.pop()
        if not isinstance(value, dict | list):
            continue
        if depth >= DEEPEST:
            return True
        waiting += [(one, depth + 1) for one in (value.values() if isinstance(value, dict) else value)]
    return False
