"""One process at a time in the directory of a study."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator

from ..errors import InputError


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock file ``path``, or refuse.

    The system itself holds the lock and lets go of it when the process ends, in whatever way, so that none is ever
    left behind. The file stays, and says who has it.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{os.path.dirname(path)}: {_holder(path)} is running this study at the moment") from None
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _holder(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        told = json.loads(text)
        return f"process {told['pid']} on {told['host']}"
    except (ValueError, KeyError):  # between taking the lock and saying so
        return "another process"
