"""A seal: the SHA-256 of a whole file, in the comment that ends a zip. Any changed byte shows."""

from __future__ import annotations

import hashlib
import os
from typing import IO

from ..errors import StorageError

WORD = b"mvgp sha256 "
LENGTH = 64  # hexadecimal digits
OPEN = WORD + b"0" * LENGTH  # the comment of a file that is yet to be sealed
CHUNK = 2**22


def seal(file: IO[bytes]) -> None:
    """Fill in the digits of a file that ends with OPEN."""
    digits = _digest(file)
    file.seek(-LENGTH, os.SEEK_END)
    file.write(digits)


def check_seal(file: IO[bytes]) -> int:
    """The file's size, if its seal is whole."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    begin = file.read(4)
    if size == 0:
        raise StorageError("expected a saved posterior, got an empty file")
    if begin != b"PK\x03\x04":
        raise StorageError(f"expected a saved posterior (a zip), got a file that begins with {begin!r}")
    file.seek(max(0, size - len(OPEN)))
    end = file.read()
    if not end.startswith(WORD) or len(end) != len(OPEN):
        raise StorageError("expected the seal of mvgp at the end, got none: it is cut short, or not a saved posterior")
    found = _digest(file)
    sealed = end[len(WORD) :]
    if sealed != found:
        raise StorageError(f"expected sha256 {sealed!r} as sealed, got {found!r}: it is damaged or was changed")
    return size


def _digest(file: IO[bytes]) -> bytes:
    """Of everything but the last digits."""
    left = file.seek(0, os.SEEK_END) - LENGTH
    file.seek(0)
    digest = hashlib.sha256()
    while left > 0:
        part = file.read(min(CHUNK, left))
        if not part:
            break
        digest.update(part)
        left -= len(part)
    return digest.hexdigest().encode()
