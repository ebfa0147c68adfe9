"""Files: regular ones only, written whole or not at all, and JSON from a file that anybody may have changed."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import stat
import tempfile
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
    """A regular file, open to be read; anything else, which may never end, is an ``OSError`` before it is opened."""
    name = os.fspath(path)
    _check_regular(os.stat(name).st_mode, name)
    # the path may have changed hands in between: do not wait for a writer, and look again
    handle = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_regular(os.fstat(handle).st_mode, name)
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_output_file(path: str | os.PathLike[str]) -> str:
    """The file that a path leads to, through links: a regular one, or none yet in a directory that is there."""
    name = os.fspath(path)
    if os.path.basename(name) in ("", os.curdir, os.pardir):
        raise InputError(f"{name!r}: expected the path of a file, got one without the name of a file")
    mode = _mode(name, "the path of a file")
    if mode is not None and not stat.S_ISREG(mode):
        raise InputError(f"{name}: expected the path of a file, got {kind(mode)}")
    target = os.path.realpath(name)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise InputError(f"{name}: expected an existing directory for the file, got {folder}")
    return target


def check_output_directory(path: str | os.PathLike[str]) -> None:
    """A directory, or a path where one can be made: the first thing that is there on the way up is a directory."""
    if not os.fspath(path):
        raise InputError("expected the path of a directory, got an empty one")
    parent = os.path.abspath(os.fspath(path))
    while (mode := _mode(parent, "a directory")) is None:
        if os.path.dirname(parent) == parent:
            raise InputError(f"{os.fspath(path)}: expected a directory, got a path that is not there: {parent}")
        parent = os.path.dirname(parent)
    if not stat.S_ISDIR(mode):
        raise InputError(f"{os.fspath(path)}: expected a directory, got {kind(mode)}: {parent}")


def check_can_write(path: str | os.PathLike[str]) -> None:
    """Whether a file or a directory can be made at a path, tried out in the first directory on the way up.

    What is tried is a file without a name, so nothing is left behind. A file that is there must be one that its owner
    lets be written.
    """
    name = os.path.realpath(path)
    if os.path.isfile(name) and not os.access(name, os.W_OK):
        raise InputError(f"{os.fspath(path)}: expected a file that can be written, got one that is read-only")
    folder = name if os.path.isdir(name) else os.path.dirname(name)
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        got = f"{folder}: {error.strerror or error}"
        raise InputError(f"{os.fspath(path)}: expected a directory that can be written to, got {got}") from None


def kind(mode: int) -> str:
    """What a file mode stands for, in words."""
    return next((words for test, words in KINDS if test(mode)), "something else")


def _mode(name: str, expected: str) -> int | None:
    """Of what a path leads to; None if there is nothing."""
    try:
        return os.stat(name).st_mode
    except (FileNotFoundError, NotADirectoryError):  # the second: a part of the path is a file, which shows further up
        if os.path.islink(name):
            raise InputError(f"{name}: expected {expected}, got a link that leads nowhere") from None
        return None
    except OSError as error:
        got = "links that lead in a circle" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise InputError(f"{name}: expected {expected}, got {got}") from None
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"{name!r}: expected {expected}, got {error}") from None


def _check_regular(mode: int, name: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "expected a file, got a directory", name)
    if not stat.S_ISREG(mode):
        raise NotRegularError(errno.EINVAL, f"expected a file, got {kind(mode)}", name)


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of ``path`` at the end; after an error there is no trace of it.

    Only a regular file is replaced, through links, and keeps its permissions; anything else that is there (a directory,
    a device, a FIFO, a broken link) is an :class:`~mvgp.errors.InputError`.
    """
    target = check_output_file(path)
    folder = os.path.dirname(target)
    draft = os.path.join(folder, f".mvgp-{secrets.token_hex(8)}.tmp")
    try:  # from before the draft exists: an interrupt at any point leaves nothing behind
        try:
            file = open(draft, "x+b")  # noqa: SIM115 (closed below)
        except PermissionError as error:
            raise InputError(f"{path}: expected a directory that can be written to, got {error}") from error
        with file:
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


def read_json(path: str | os.PathLike[str], what: str = "JSON", *, max_bytes: int = 2**26) -> Any:
    """The JSON of a file; ``FileNotFoundError`` if there is none, ``InputError`` if it is not ``what`` is expected."""
    try:
        with open_regular(path) as file:
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path}: expected {what}, got {error.strerror or error}") from error
    if len(content) > max_bytes:
        raise InputError(f"{path}: expected {what} of at most {max_bytes:,} bytes, got more")
    try:
        return parse_json(content, max_depth=50, max_digits=19)  # 64 bits have 19
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected text in UTF-8, got {error}") from error
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise InputError(f"{where}: expected {what}, got {error.msg}") from error
    except ValueError as error:
        raise InputError(f"{path}: expected {what}, got {error}") from error


def parse_json(text: bytes | str, *, max_depth: int, max_digits: int = 4000) -> Any:
    """JSON of finite numbers and distinct keys, with limits on nesting and digits; all else is a ``ValueError``."""

    def whole(digits: str) -> int:
        if len(digits.lstrip("-")) > max_digits:
            raise ValueError(f"a whole number of {len(digits)} digits")
        return int(digits)

    content = text.decode() if isinstance(text, bytes) else text
    numbers: dict[str, Any] = {"parse_int": whole, "parse_float": _finite, "parse_constant": _finite}
    try:
        tree = json.loads(content, object_pairs_hook=_distinct, **numbers)
    except RecursionError:
        raise ValueError(f"more than {max_depth} parts inside one another") from None
    level = [tree]  # by levels, so that deep ones end no stack
    for _ in range(max_depth + 1):
        level = [part for part in level if isinstance(part, dict | list)]
        if not level:
            return tree
        level = [part for parent in level for part in (parent.values() if isinstance(parent, dict) else parent)]
    raise ValueError(f"more than {max_depth} parts inside one another")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} for a finite number")
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parts = dict(pairs)
    if len(parts) < len(pairs):
        raise ValueError("a key that occurs twice")
    return parts
