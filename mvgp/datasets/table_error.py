"""TableError: what is wrong with a table, in which file and on which line."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import InputError


class TableError(InputError):
    """A file is not the table that was expected.

    :param path: the file.
    :param message: what was expected and what came.
    :param line: its number, from 1; none if it is about the whole file.
    """

    def __init__(self, path: str | os.PathLike[str], message: str, line: int | None = None) -> None:
        self.path, self.line = Path(path), line
        super().__init__(f"{path}: {message}" if line is None else f"{path}, line {line}: {message}")


def shown(text: str, limit: int = 40) -> str:
    """Quoted, and cut when it is long."""
    return repr(text) if len(text) <= limit else repr(text[:limit]) + "..."


def some(ids: list[str] | set[str], count: int = 3) -> str:
    """A few of the ids, the first in sorted order."""
    listed = sorted(ids)
    return ", ".join(map(shown, listed[:count])) + (", ..." if len(listed) > count else "")
