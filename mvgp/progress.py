"""Progress of long work, in one style: what is done, how much of it, how long it took, how long it will take.

=============  =================================================================================================
``progress``   what standard error shows
=============  =================================================================================================
``"auto"``     a bar, if standard error is a terminal and the work takes more than a second; otherwise nothing
``True``       a bar on a terminal; elsewhere, as in a log file, a plain line every few seconds and one at the end
``False``      nothing
=============  =================================================================================================

Work inside other work shows no bar of its own with ``"auto"``: its steps are shown on the bar of the whole. So
``progress=False`` also silences everything that a call does inside. Worker processes and threads show nothing with
``"auto"``.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from tqdm import tqdm

from .checks import require

P = ParamSpec("P")
R = TypeVar("R")
Progress = bool | Literal["auto"]

DELAY = 1.0  # seconds of work before a bar is shown
EVERY = 5.0  # seconds between two plain lines
REDRAW = 0.2  # seconds between two drawings of a bar
COUNTED = "{desc}: {n_fmt} of {total_fmt} {unit} |{bar:20}| {elapsed}, {remaining} left{postfix}"
UNCOUNTED = "{desc}: {n_fmt} {unit}, {elapsed}{postfix}"


def check_progress(value: Any, name: str = "progress") -> Progress:
    """True, False or "auto"."""
    fits = isinstance(value, bool | np.bool_) or (isinstance(value, str) and value == "auto")
    require(fits, value, name, "True, False or 'auto'")
    return "auto" if isinstance(value, str) else bool(value)


class _Open(threading.local):
    """The work that is under way in this thread, the innermost last."""

    def __init__(self) -> None:
        self.bars: list[ProgressBar] = []


_OPEN = _Open()


class ProgressBar:
    """Shows the progress of one piece of work; made by :func:`progress_bar`.

    :param what: the work, in a word or two.
    :param total: how many units it has; None if nobody knows.
    :param unit: the name of several units.
    :param progress: see :mod:`mvgp.progress`.
    """

    def __init__(self, what: str, total: int | None, unit: str, progress: Progress) -> None:
        self.what, self.unit, self.count = what, unit, 0
        self._note, self._first, self._share, self._skipped = "", 0.0, 0.0, 0
        self._began = self._shown = time.monotonic()
        on_terminal = sys.stderr is not None and sys.stderr.isatty()
        if progress == "auto":
            main = multiprocessing.current_process().name == "MainProcess"
            main &= threading.current_thread() is threading.main_thread()
            wanted = on_terminal and main and not _OPEN.bars
        else:
            wanted = bool(progress) and sys.stderr is not None
        self._total = total
        self._bar: tqdm[Any] | None = None
        if wanted and on_terminal:
            style = UNCOUNTED if total is None else COUNTED
            options: dict[str, Any] = {"delay": DELAY, "mininterval": REDRAW, "dynamic_ncols": True, "leave": False}
            self._bar = tqdm(total=total, desc=what, unit=unit, bar_format=style, file=sys.stderr, **options)
        self._plain = wanted and not on_terminal

    @property
    def is_shown(self) -> bool:
        """Whether anybody sees it."""
        return self._bar is not None or self._plain

    @property
    def total(self) -> int | None:
        """How many units there are."""
        return self._total

    @total.setter
    def total(self, value: int) -> None:
        self._total = value
        if self._bar is not None:
            self._bar.total = value

    def rename(self, what: str) -> None:
        """Another name, for the next stage of the work."""
        self.what = what
        if self._bar is not None:
            self._bar.set_description_str(what)

    def skip(self, count: int) -> None:
        """``count`` units were finished by an earlier call, and say nothing about the time that is left."""
        self.count, self._skipped = self.count + count, self._skipped + count
        if self._bar is not None:
            self._bar.initial += count
            self._bar.n += count
            self._bar.last_print_n += count

    def update(self, count: int = 1, note: str | None = None) -> None:
        """Add ``count`` finished units, and perhaps a ``note``, which is shown behind the times."""
        self.count += count
        self._note = self._note if note is None else note
        if self._bar is not None:
            self._bar.set_postfix_str(self._note, refresh=False)
            self._bar.update(count)
        elif self._plain and time.monotonic() - self._shown >= EVERY and self.count != self._total:
            self._print(self._line())

    def step(self, name: str = "", distance: float | None = None, goal: float | None = None) -> None:
        """One step of a solver: a unit where nobody knows how many there are, and news in any case.

        :param name: of the distance, such as ``gap``, or of what is done.
        :param distance: how far the solver is from its aim.
        :param goal: the distance at which it ends. What is left of the time follows from how the distance shrinks.
        """
        note = None
        if distance is None or goal is None:
            note = name or None
        else:
            note = f"{name} {distance:.1e}, ends at {goal:.1e}"
            if self._total is None and 0 < goal < distance < float("inf"):
                self._first = max(self._first, distance)
                self._share = 1 - float(np.log(distance / goal) / np.log(self._first / goal))
                left = self._seconds_left()
                note += "" if left is None else f", about {tqdm.format_interval(left)} left"
        if self._total is None:
            self.update(1, note)
        elif note is not None or time.monotonic() - self._shown >= EVERY:
            self.update(0, note)
            if self._bar is not None and time.monotonic() - self._bar.last_print_t >= REDRAW:
                self._bar.refresh()

    def _seconds_left(self) -> float | None:
        """By the share that is done; None where that says nothing."""
        left = 0 if self._total is None else self._total - self._skipped
        share = (self.count - self._skipped) / left if left > 0 else self._share
        return (time.monotonic() - self._began) * (1 - share) / share if 0 < share <= 1 else None

    def _line(self) -> str:
        """For a log file: ``path: 12 of 30 points in 00:34, about 00:51 left``."""
        counted = f"{self.count:,}" if self._total is None else f"{self.count:,} of {self._total:,}"
        line = f"{self.what}: {counted} {self.unit} in {tqdm.format_interval(time.monotonic() - self._began)}"
        left = self._seconds_left() if self._total is not None and self.count < self._total else None
        line += "" if left is None else f", about {tqdm.format_interval(left)} left"
        return f"{line}; {self._note}" if self._note else line

    def _print(self, line: str) -> None:
        self._shown = time.monotonic()
        with contextlib.suppress(OSError, ValueError):  # nobody reads it
            print(line, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """While a generator hands out what it has: what others do meanwhile is no part of this work."""
        _OPEN.bars.remove(self)
        try:
            yield
        finally:
            _OPEN.bars.append(self)

    def close(self) -> None:
        """The work is over."""
        if self in _OPEN.bars:
            _OPEN.bars.remove(self)
        if self._bar is not None:
            self._bar.close()
        elif self._plain:
            self._print(self._line())


@contextlib.contextmanager
def progress_bar(
    what: str, total: int | None = None, *, unit: str = "steps", progress: Progress = "auto"
) -> Iterator[ProgressBar]:
    """The bar of a piece of work; arguments as for :class:`ProgressBar`.

    Example:
        >>> from mvgp.progress import progress_bar
        >>> with progress_bar("squares", 3, unit="numbers", progress=False) as bar:
        ...     for number in range(3):
        ...         bar.update()
        >>> bar.count
        3

    """
    bar = ProgressBar(what, total, unit, check_progress(progress))
    _OPEN.bars.append(bar)
    try:
        yield bar
    finally:
        bar.close()


def report_step(name: str = "", distance: float | None = None, goal: float | None = None) -> None:
    """A solver made a step: the innermost bar that is shown says so; see :meth:`ProgressBar.step`."""
    for bar in reversed(_OPEN.bars):
        if bar.is_shown:
            bar.step(name, distance, goal)
            return


def shows_progress(what: str, unit: str = "steps") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Give a function whose steps nobody can count beforehand a bar, by its argument ``progress``.

    The solvers inside report their steps by :func:`report_step`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def shown(*args: P.args, **kwargs: P.kwargs) -> R:
            progress: Any = kwargs.get("progress", "auto")
            with progress_bar(what, unit=unit, progress=progress):
                return function(*args, **kwargs)

        return shown

    return decorate
