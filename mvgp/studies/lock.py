"""One process at a time in the directory of a study."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
from collections.abc import Iterator

from ..errors import InputError
from ..storage.regular import kind

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

BEYOND = 2**30  # on Windows a locked byte cannot be read: one behind all that is written


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock file ``path``, or refuse.

    The system itself holds the lock and lets go of it when the process ends, in whatever way, so that none is ever
    left behind. The file stays, and says who has it.
    """
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        got = "a link" if os.path.islink(path) else kind(os.lstat(path).st_mode)
        raise InputError(f"{path}: expected the lock file of a study, got {got}")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        if not _take(handle):
            raise InputError(f"{os.path.dirname(path)}: {_holder(path)} is running this study at the moment")
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    """Whether nobody else has it."""
    try:
        if sys.platform == "win32":
            os.lseek(handle, BEYOND, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, 0, os.SEEK_SET)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _holder(path: str) -> str:
    with open(path, "rb") as file:
        text = file.read(1000)
    try:
        told = json.loads(text)
        return f"process {int(told['pid'])} on {told['host']!s:.100}"
    except (ValueError, KeyError, TypeError, RecursionError):  # between taking the lock and saying so
        return "another process"
