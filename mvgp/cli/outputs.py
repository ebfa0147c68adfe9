"""Where a command may write, asked before any work is done."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..errors import InputError
from ..storage.regular import check_output_directory, check_output_file


def check_output(path: Path | None, option: str, others: Iterable[Path | None] = ()) -> None:
    """A file in a directory that is there, and none of the others, which are read or written, too."""
    if path is None or str(path) == "-":
        return
    try:
        target = check_output_file(path)
    except InputError as error:
        hint = " (--out - writes to standard output)" if str(path) == "/dev/stdout" else ""
        raise InputError(f"{option}: {error}{hint}") from None
    for one in others:
        if one is not None and str(one) != "-" and _same(os.fspath(one), target):
            raise InputError(f"{option}: expected a file of its own, got {path}, which is read or written as well")


def check_directory(path: Path, option: str) -> None:
    """A directory, or a place for one."""
    try:
        check_output_directory(path)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def _same(one: str, target: str) -> bool:
    try:
        return os.path.realpath(one) == target or os.path.samefile(one, target)
    except (OSError, ValueError):  # one of them is not there
        return False
