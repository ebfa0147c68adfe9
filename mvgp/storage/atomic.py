"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import IO

from ..errors import InputError


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of ``path`` at the end; after an error there is no trace of it."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if os.path.isdir(target):
        raise InputError(f"{path}: expected the path of a file, got a directory")
    if not os.path.isdir(folder):
        raise InputError(f"{path}: expected an existing directory for the file, got {folder}")
    draft = os.path.join(folder, f".mvgp-{secrets.token_hex(8)}.tmp")
    try:
        file = open(draft, "x+b")  # noqa: SIM115
    except PermissionError as error:
        raise InputError(f"{path}: expected a directory that can be written to, got {error}") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
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
