"""Work in forked processes: PyTorch is imported once, and whatever happens there, the parent goes on."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CAN_FORK = hasattr(os, "fork")
EVENTS = 0.02  # seconds between two looks at a child


def _end_with_parent() -> None:
    """So that a parent that is killed leaves nothing behind; Linux can do it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    :param value: what its work returned; None if it did not.
    :param trouble: why there is no value; empty if there is one.
    :param output: the end of what it wrote.
    :param seconds: of the clock, and of the processor, its own children included.
    :param memory: the most it had, in bytes.
    """

    value: Any
    trouble: str
    output: str
    seconds: float
    processor_seconds: float
    memory: int


class Child:
    """A forked process that does some work and returns what JSON can hold.

    It leads a group of processes, which ends with it. Its output goes to a file.

    :param work: takes nothing.
    :param limit: seconds of the clock; then the group is killed.
    :param memory: bytes of address space it may have; None for no limit.
    """

    def __init__(self, work: Callable[[], Any], limit: float, memory: int | None = None) -> None:
        self.limit, self.began = limit, time.monotonic()
        self._result = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it has ended)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(work, memory)

    def _run(self, work: Callable[[], Any], memory: int | None) -> None:
        code = 1
        try:
            os.setpgid(0, 0)
            _end_with_parent()
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            for stream in (1, 2):
                os.dup2(self._output.fileno(), stream)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if memory is not None:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            value = json.dumps(work())
            self._result.write(value.encode())
            self._result.flush()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)

    def poll(self) -> Ended | None:
        """How it ended; None while it runs."""
        pid, status, used = os.wait4(self.pid, os.WNOHANG)
        late = time.monotonic() - self.began > self.limit
        if pid == 0 and not late:
            return None
        if pid == 0:
            self.kill()
            _, status, used = os.wait4(self.pid, 0)
        self.kill(alone=False)  # what it may have left behind
        seconds = time.monotonic() - self.began
        self._output.seek(0)
        output = self._output.read()[-20_000:].decode(errors="replace")
        self._result.seek(0)
        text, value, trouble = self._result.read(), None, ""
        if late and pid == 0:
            trouble = f"no end after {self.limit:.0f} s"
        elif os.WIFSIGNALED(status):
            trouble = f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
        elif os.WEXITSTATUS(status) or not text:
            last = output.strip().splitlines()
            trouble = f"exit code {os.WEXITSTATUS(status)}: {last[-1][:300] if last else ''}"
        else:
            value = json.loads(text)
        self._result.close()
        self._output.close()
        processor = used.ru_utime + used.ru_stime
        return Ended(value, trouble, output, seconds, processor, used.ru_maxrss * 1024)

    def kill(self, alone: bool = True) -> None:
        """End its group, and itself if it has none yet; not if it is gone, as its number may be that of another."""
        for end in (os.killpg, os.kill) if alone else (os.killpg,):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)


def in_child(work: Callable[[], Any], limit: float, memory: int | None = None) -> Ended:
    """Do some work in a child, and wait for it."""
    child = Child(work, limit, memory)
    try:
        while (ended := child.poll()) is None:
            time.sleep(EVENTS)
        return ended
    except BaseException:
        child.kill()
        raise
