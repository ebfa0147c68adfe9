"""Streams and signals of a command: tables on stdout, notes on stderr, closed or narrow streams, interrupts."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...text import visible

if TYPE_CHECKING:
    from ..ranking.prioritiser import Prioritiser
    from ..ranking.rows import RankedRow
    from ..studies.tables import StudyResult


class Stopped(Exception):
    """A command was interrupted; the message says what was kept."""


@contextlib.contextmanager
def streams() -> Iterator[None]:
    """Letters that a stream lacks are written as escapes, and a closed standard error takes what it is given.

    A closed standard output has no place for results: an :class:`~mvgp.errors.InputError`.
    """
    kept = sys.stdout, sys.stderr
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:  # a file that is opened later must not get such a number
        pass
    os.close(handle)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        raise InputError("standard output: expected a place for results, got a closed one (> /dev/null drops them)")
    changed = [(stream, stream.errors) for stream in (sys.stdout, sys.stderr) if isinstance(stream, io.TextIOWrapper)]
    for stream, _ in changed:
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
        sys.stdout.flush()  # while a full disk can still be reported
    finally:
        sys.stdout, sys.stderr = kept  # typer may have wrapped them
        for stream, errors in changed:
            if not stream.closed:
                with contextlib.suppress(OSError, ValueError):
                    stream.reconfigure(errors=errors)


def drop_unwritten() -> None:
    """Forget what could not be written, so that nobody tries again when the program ends."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


def can_show(text: str) -> bool:
    """Whether standard output has these letters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}
AGAIN = 0.05  # seconds after which an interrupt that was lost is sent once more


class Interrupts:
    """Which signal came, if any."""

    def __init__(self) -> None:
        self.number = int(signal.SIGINT)
        self.over = False  # whether the command has ended; what comes now has nothing to end

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        if not self.over:
            self.number = number
            raise KeyboardInterrupt

    def lost(self, error: Any, otherwise: Callable[[Any], Any]) -> None:
        """For ``sys.unraisablehook``: an interrupt inside a finaliser goes no further, and so has to come again."""
        if not issubclass(error.exc_type, KeyboardInterrupt):
            otherwise(error)
        elif not self.over:
            threading.Timer(AGAIN, os.kill, (os.getpid(), self.number)).start()

    @property
    def word(self) -> str:
        """What happened."""
        return WORDS[signal.Signals(self.number).name]

    @property
    def code(self) -> int:
        """The exit code: 130 after SIGINT, 143 after SIGTERM, 129 after SIGHUP."""
        return 128 + self.number


@contextlib.contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Signals that end a program become ``KeyboardInterrupt``; those that are ignored, as under nohup, stay so."""
    handler = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield handler
        return
    numbers = [getattr(signal, name) for name in WORDS if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    hook = sys.unraisablehook
    try:
        sys.unraisablehook = lambda error: handler.lost(error, hook)
        for number in numbers:
            if before[number] not in (signal.SIG_IGN, None):
                signal.signal(number, handler)
        yield handler
    finally:
        handler.over = True
        for number, previous in before.items():
            if previous is not None:
                signal.signal(number, previous)
        sys.unraisablehook = hook


def show_row(row: RankedRow) -> None:
    """A ranked list, under the row's id and name."""
    from rich.console import Console

    if Console().is_terminal:
        show_table(row.title(), *row.cells(), left=("id", "name"))
        for line in row.remarks():
            print(line)
    else:
        print(f"{row}\n")


def show_table(title: str, headings: Sequence[str], lines: Sequence[Sequence[str]], left: Sequence[str]) -> None:
    """A table with a title, drawn by rich on a terminal; columns are flush right, but for those of ``left``."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..ranking.rows import aligned

    console, title = Console(), visible(title)
    cells = [[visible(text) for text in line] for line in (headings, *lines)]
    if not console.is_terminal:
        flush_left = [index for index, name in enumerate(headings) if name in left]
        print("\n".join([title, *aligned(cells, flush_left)]), end="\n\n")
        return
    table = Table(title=Text(title), title_justify="left")
    for name, heading in zip(headings, cells[0], strict=True):
        table.add_column(Text(heading), justify="left" if name in left else "right")
    for line in cells[1:]:
        table.add_row(*(Text(text) for text in line))
    console.print(table)


def show_or_write(lists: Iterable[RankedRow], out: Path | None, kind: str | None, quiet: bool) -> None:
    """Ranked lists as they come: on the screen, or in a file of a ``kind``, or on standard output (``-``)."""
    from ..ranking.outputs import format_of, write_file, write_rows

    if out is None:
        for ranked in lists:
            from tqdm import tqdm

            with tqdm.external_write_mode():  # the bar is cleared, and shown again below
                show_row(ranked)
    elif str(out) == "-":
        write_rows(lists, sys.stdout.buffer, format_of(out, kind))
    else:
        count = write_file(lists, out, kind)
        if not quiet:
            log(f"{out}: {count:,} rows")


def log(message: str) -> None:
    """One line on stderr, above any progress bar, without anything that a terminal would obey."""
    if sys.stderr is None:
        return
    write = sys.modules["tqdm"].tqdm.write if "tqdm" in sys.modules else print  # without tqdm there is no bar
    with contextlib.suppress(OSError, ValueError):  # nobody reads it
        write(f"mvgp: {visible(' '.join(message.splitlines()))}", file=sys.stderr)


def log_assessment(fitted: Prioritiser) -> None:
    """How ``auto`` ranks held-out links beside simple baselines, and what it has chosen: a table and sentences."""
    from ..auto.fit import AutoRanker
    from ..ranking.rows import aligned, doubt, judged_rows

    judged = fitted.assessment
    if judged is None:
        log("too few links to choose by: all terms have equal weights, and nothing says how good the list is")
    elif judged_rows(judged) < 2:
        judged = None
        log("too few rows with held-out links to say how good the list is")
    else:
        log(f"{judged_rows(judged):,} rows with held-out links, which had no part in the choice:")
        headings, lines = judged.table()
        for line in aligned([headings, *lines], left=(0,)):
            log(line)
        log(judged.in_words())
    for ranker in fitted.rankers:
        for sentence in ranker.in_words() if isinstance(ranker, AutoRanker) else ():
            log(sentence)
    if judged is not None:
        warning = doubt(judged)
        if warning is not None:
            log(f"warning: {warning}")


@contextlib.contextmanager
def notes_in_one_line() -> Iterator[None]:
    """Warnings of a command as notes. Of those that differ in their numbers alone the first is shown, and a count."""
    seen: dict[str, int] = {}

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        kind = re.sub(r"[-+.\de]*\d[-+.\de]*", "0", str(message))
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] == 1:
            log(f"note: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", RuntimeWarning)  # those of mvgp are of this kind
        warnings.showwarning = show
        try:
            yield
        finally:
            again = sum(seen.values()) - len(seen)
            if again:
                log(f"note: {again} more like {'that' if len(seen) == 1 else 'those'}")


def show_metrics(result: StudyResult) -> None:
    """Mean and standard deviation over folds, a line for each model."""
    headings, *lines = result.cells("±" if can_show("±") else "+-")
    title = f"{result.study.num_folds} of {result.study.folds} folds, split by {result.study.split}"
    show_table(title, headings, lines, left=("model",))
