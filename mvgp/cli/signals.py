"""Signals that end a command: each as an interrupt, which all that is half-written is cleared away by."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

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

    def lost(self, told: Any, otherwise: Callable[[Any], Any]) -> None:
        """For ``sys.unraisablehook``: an interrupt inside a finaliser goes no further, and so has to come again."""
        if not issubclass(told.exc_type, KeyboardInterrupt):
            otherwise(told)
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
    found = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    numbers = [getattr(signal, name) for name in WORDS if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    hook = sys.unraisablehook
    try:
        sys.unraisablehook = lambda told: found.lost(told, hook)
        for number in numbers:
            if before[number] not in (signal.SIG_IGN, None):
                signal.signal(number, found)
        yield found
    finally:
        found.over = True
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
        sys.unraisablehook = hook
