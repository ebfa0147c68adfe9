"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import IO

from ..errors import InputError
from .regular import check_output_file


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
