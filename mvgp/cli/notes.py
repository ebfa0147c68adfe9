"""What is said on the side: lines on stderr that begin with the program's name."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator
from typing import TextIO

from tqdm import tqdm

from ..text import visible


def say(message: str) -> None:
    """One line on stderr, above any progress bar, without anything that a terminal would obey."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):  # nobody reads it
        tqdm.write(f"mvgp: {visible(' '.join(message.splitlines()))}", file=sys.stderr)


@contextlib.contextmanager
def notes_in_one_line() -> Iterator[None]:
    """Warnings of a command as notes. Of those that differ in their numbers alone the first is shown, and a count."""
    seen: dict[str, int] = {}

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        kind = re.sub(r"[-+.\de]*\d[-+.\de]*", "0", str(message))
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] == 1:
            say(f"note: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", RuntimeWarning)  # those of mvgp are of this kind
        warnings.showwarning = show
        try:
            yield
        finally:
            again = sum(seen.values()) - len(seen)
            if again:
                say(f"note: {again} more like {'that' if len(seen) == 1 else 'those'}")
