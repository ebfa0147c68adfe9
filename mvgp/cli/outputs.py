"""Where a command may write, asked before any work is done."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import InputError


def check_output(path: Path | None, option: str, inputs: Iterable[Path | None] = ()) -> None:
    """A file in a directory that is there, and none of those that are read."""
    if path is None or str(path) == "-":
        return
    if path.is_dir():
        raise InputError(f"{option}: expected the path of a file, got the directory {path}")
    if not path.resolve().parent.is_dir():
        raise InputError(f"{option}: expected an existing directory for the file, got {path.resolve().parent}")
    if any(one is not None and one.resolve() == path.resolve() for one in inputs):
        raise InputError(f"{option}: expected a file of its own, got {path}, which is read")


def check_directory(path: Path, option: str) -> None:
    """A directory, or a place for one."""
    for one in (path, *path.resolve().parents):
        if one.exists():
            if not one.is_dir():
                raise InputError(f"{option}: expected a directory, got the file {one}")
            return
