"""A study that is disturbed in every way we know, and then run again: the same final tables, bit for bit."""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.book.machine import ROOT
from benchmarks.trust.plan import Found, Line, generator
from benchmarks.trust.processes import Child, Ended, in_child
from mvgp.errors import MvgpError
from mvgp.prioritise.studies import StudyError, directory, run_study
from tests.prioritise.studies.planted import planted_links, tables_of, tiny_study

LIMIT = 300.0  # seconds for one study
LINKS, STUDY = planted_links(), tiny_study(negative_sets=2)
Tables = dict[str, bytes]


def study(place: Path, **options: Any) -> None:
    """Run the study, or what is left of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a damaged unit is told in a warning
        run_study(LINKS, STUDY, place, progress=False, **options)


@cache
def expected() -> Tables:
    """The tables of a study that nothing happens to."""
    with tempfile.TemporaryDirectory() as folder:
        study(Path(folder) / "whole")
        return tables_of(Path(folder) / "whole")


def finished(place: Path) -> str:
    """Run what is left; what is wrong with the tables then."""
    study(place)
    drafts = [path.name for path in place.rglob("*.tmp")]
    if tables_of(place) != expected():
        return "the tables differ"
    return f"drafts are left: {drafts}" if drafts else ""


def each(
    line: str, first: int, count: int, seed: int, attempt: Callable[[np.random.Generator, Path, int], tuple[str, str]]
) -> Found:
    """Try something once for each number: the outcome, and what is wrong."""
    found = Found()
    expected()
    for number in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome, wrong = attempt(generator(line, number, seed), Path(folder) / "study", number)
            except Exception as error:
                outcome, wrong = "failed", f"{type(error).__name__}: {str(error)[:300]}"
        found.add("failed" if wrong else outcome, wrong and f"{number}: {wrong}")
    return found


# --------------------------------------------------------------------------------------------------------------- writes


class Interposed:
    """Counts what a study writes with, and lets one call fail."""

    def __init__(self, fail_at: int | None, error: Callable[[], BaseException]) -> None:
        self.count, self.fail_at, self.error, self.what = 0, fail_at, error, ""

    def _next(self, what: str) -> None:
        self.count += 1
        if self.count == self.fail_at:
            self.what = what
            raise self.error()

    def calling(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, counted."""

        def call(*given: Any, **options: Any) -> Any:
            self._next(name)
            return real(*given, **options)

        return call

    def opening(self, place: Path) -> Callable[..., Any]:
        """``open``, of which files below a folder are counted, when they are opened to write, and at each write."""
        real, mine = builtins.open, self

        def opened(file: Any, mode: str = "r", *given: Any, **options: Any) -> Any:
            inside = (
                isinstance(file, str | os.PathLike) and str(file).startswith(str(place)) and set(mode) & set("wax+")
            )
            if not inside:
                return real(file, mode, *given, **options)
            mine._next(f"open of {os.path.basename(file)}")
            handle = real(file, mode, *given, **options)
            write = handle.write
            with contextlib.suppress(AttributeError):
                handle.write = mine.calling("write", write)
            return handle

        return opened

    @contextlib.contextmanager
    def around(self, place: Path) -> Iterator[None]:
        """Everything that writes below ``place`` goes through here."""
        names = ("fsync", "replace", "mkdir", "unlink", "chmod")
        real = {name: getattr(os, name) for name in names}
        before = builtins.open
        builtins.open = self.opening(place)
        for name, function in real.items():
            setattr(os, name, self.calling(name, function))
        try:
            yield
        finally:
            builtins.open = before
            for name, function in real.items():
                setattr(os, name, function)


def disk_full() -> OSError:
    """No room."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def input_error() -> OSError:
    """A broken disk."""
    return OSError(errno.EIO, os.strerror(errno.EIO))


@cache
def writes() -> int:
    """How many calls that write a study makes."""
    with tempfile.TemporaryDirectory() as folder:
        counter = Interposed(None, disk_full)
        with counter.around(Path(folder)):
            study(Path(folder) / "study")
        return counter.count


def failed_write(rng: np.random.Generator, place: Path, number: int) -> tuple[str, str]:
    """Call number k // 3 fails, with one of three errors."""
    at, error = number // 3 + 1, (disk_full, input_error, MemoryError)[number % 3]
    if at > writes():
        return "past the last write", ""
    faults, told = Interposed(at, error), "nothing"
    with faults.around(place.parent):
        try:
            study(place)
        except MemoryError:
            told = "MemoryError"
        except (MvgpError, StudyError) as caught:
            told = "an error in one line" if "\n" not in str(caught) else "many lines"
        except OSError as caught:
            return "", f"{faults.what} ({error.__name__}): a raw {type(caught).__name__}: {caught}"
    if told == "many lines":
        return "", f"{faults.what} ({error.__name__}): an error of many lines"
    wrong = finished(place)
    return told, wrong and f"{faults.what} ({error.__name__}): {wrong}"


# -------------------------------------------------------------------------------------------------------------- signals


@cache
def usual_seconds() -> float:
    """Of a study in a child."""
    with tempfile.TemporaryDirectory() as folder:
        ended = in_child(lambda: study(Path(folder) / "study"), LIMIT)
        return ended.seconds


def stopped(kind: signal.Signals) -> Callable[[np.random.Generator, Path, int], tuple[str, str]]:
    """A signal at a random moment of a study in a process of its own, up to three times."""

    def attempt(rng: np.random.Generator, place: Path, number: int) -> tuple[str, str]:
        came = 0
        for _ in range(rng.integers(1, 4)):
            child = Child(lambda: study(place), LIMIT)
            until, ended = time.monotonic() + rng.uniform(0, usual_seconds()), None
            while ended is None and time.monotonic() < until:
                time.sleep(0.002)
                ended = child.poll()
            if ended is None:
                os.kill(child.pid, kind)
                came += 1
                while (ended := child.poll()) is None:
                    time.sleep(0.002)
            wrong = troubled(ended, kind)
            if wrong:
                return "", wrong
        return (f"{kind.name} came" if came else "it had ended before"), finished(place)

    return attempt


def troubled(ended: Ended, kind: signal.Signals) -> str:
    """What is wrong with how a study ended that a signal was sent to."""
    if not ended.trouble or kind.name in ended.trouble or (kind == signal.SIGINT and "Interrupt" in ended.trouble):
        return ""
    return f"after {kind.name}: {ended.trouble}"


# ----------------------------------------------------------------------------------------------------------------- disks


@contextlib.contextmanager
def small_disk(place: Path, kilobytes: int) -> Iterator[bool]:
    """A file system of so many kilobytes; False where the system does not let us mount one."""
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)]
    try:
        made = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        made = False
    try:
        yield made
    finally:
        if made:
            subprocess.run(["umount", str(place)], check=True)


def limited(place: Path, limit: int) -> None:
    """The study in a process whose files may have so many bytes."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    study(place)


def full_disk(rng: np.random.Generator, place: Path, number: int) -> tuple[str, str]:
    """A disk of a random size; where none can be mounted, a limit on the size of files."""
    with small_disk(place.parent / "disk", int(rng.integers(4, 120))) as made:
        if not made:
            ended = in_child(lambda: limited(place, int(rng.integers(100, 6_000))), LIMIT)
            wrong = ended.trouble if ended.trouble and "InputError" not in ended.trouble else ""
            return ("it was large enough" if not ended.trouble else "full, by a limit"), wrong or finished(place)
        told = "it was large enough"
        try:
            study(place.parent / "disk" / "study")
        except MvgpError as error:
            told = "full"
            if "No space left" not in str(error) or "\n" in str(error):
                return "", f"said as {str(error)[:200]!r}"
        subprocess.run(["mount", "-o", "remount,size=16m", str(place.parent / "disk")], check=True)
        return told, finished(place.parent / "disk" / "study")


def read_only(rng: np.random.Generator, place: Path, number: int) -> tuple[str, str]:
    """A study that was stopped after some units goes on when its disk can only be read."""
    with small_disk(place.parent / "disk", 16_000) as made:
        if not made:
            return "not tried: no disk can be mounted here", ""
        disk, own = place.parent / "disk", place.parent / "disk" / "study"
        with stopping_after(int(rng.integers(0, 6))), contextlib.suppress(KeyboardInterrupt):
            study(own)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        told = "nothing was left to write"
        try:
            study(own)
        except MvgpError as error:
            told = "read-only"
            if "Read-only file system" not in str(error) or "\n" in str(error):
                return "", f"said as {str(error)[:200]!r}"
        finally:
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        return told, finished(own)


@contextlib.contextmanager
def stopping_after(units: int) -> Iterator[None]:
    """An interrupt after so many units are saved."""
    real, saved = directory.StudyDirectory.save, []

    def save(self: Any, outcome: Any) -> None:
        if len(saved) == units:
            raise KeyboardInterrupt
        saved.append(outcome.unit)
        real(self, outcome)

    directory.StudyDirectory.save = save
    try:
        yield
    finally:
        directory.StudyDirectory.save = real


# ---------------------------------------------------------------------------------------------------------- other faults


def clock_back(rng: np.random.Generator, place: Path, number: int) -> tuple[str, str]:
    """The clock goes back by up to a year while the study runs, and files are of the future."""
    real, jump = time.time, float(rng.uniform(60, 3e7))
    calls, after = [0], int(rng.integers(0, 20))

    def clock() -> float:
        calls[0] += 1
        return real() - jump * (calls[0] > after)

    time.time = clock
    try:
        study(place)
        for path in place.rglob("*"):
            if rng.random() < 0.5:
                os.utime(path, (real() + jump, real() + jump))
        units = sorted(place.rglob("*.unit"))
        units[rng.integers(len(units))].unlink()
        return "set back", finished(place)
    finally:
        time.time = real


def damaged(rng: np.random.Generator, place: Path, number: int) -> tuple[str, str]:
    """Some files of a finished study are cut, changed, emptied, exchanged or gone."""
    study(place)
    files = sorted(place.rglob("*.unit"))
    kinds = []
    for path in rng.choice(np.array(files, dtype=object), rng.integers(1, 4), replace=False):
        content, kind = path.read_bytes(), str(rng.choice(["cut", "changed", "empty", "other", "gone", "longer"]))
        at = int(rng.integers(len(content)))
        changed = content[:at] + bytes([content[at] ^ int(rng.integers(1, 256))]) + content[at + 1 :]
        other = files[int(rng.integers(len(files)))].read_bytes() if kind == "other" else b""
        new = {
            "cut": content[:at],
            "changed": changed,
            "empty": b"",
            "other": other,
            "longer": content + bytes(at),
        }.get(kind)
        path.unlink() if new is None else path.write_bytes(new)
        kinds.append(kind)
    return "done again", (wrong := finished(place)) and f"{', '.join(kinds)}: {wrong}"


def two_at_once(rng: np.random.Generator, place: Path, number: int) -> tuple[str, str]:
    """Two processes begin the same study in one directory: one is refused, or comes when the other is done."""
    first = Child(lambda: study(place), LIMIT)
    time.sleep(float(rng.uniform(0, usual_seconds())))
    second = Child(lambda: study(place), LIMIT)
    ended: dict[int, Ended] = {}
    while len(ended) < 2:
        for at, child in enumerate((first, second)):
            if at not in ended and (found := child.poll()) is not None:
                ended[at] = found
        time.sleep(0.01)
    troubles = [one.trouble for one in ended.values() if one.trouble]
    refused = [one for one in troubles if "is running this study at the moment" in one]
    if len(refused) < len(troubles) or len(troubles) == 2:
        return "", f"{troubles}"
    return ("one was refused" if refused else "one after the other"), finished(place)


def cluster_killed(which: str) -> Callable[[np.random.Generator, Path, int], tuple[str, str]]:
    """A Dask cluster of which a worker, or the scheduler, is killed after some units."""

    def attempt(rng: np.random.Generator, place: Path, number: int) -> tuple[str, str]:
        kill_after = int(rng.integers(1, 6))
        ended = in_child(lambda: on_cluster(place, which, kill_after), LIMIT)
        clean = "InputError" in ended.trouble or "StudyError" in ended.trouble
        if ended.trouble and (which == "worker" or not clean):
            return "", ended.trouble
        return ("finished" if not ended.trouble else "an error in one line"), finished(place)

    return attempt


def on_cluster(place: Path, which: str, kill_after: int) -> None:
    """The study on a cluster of two workers."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    port = str(20_000 + os.getpid() % 40_000)
    address = f"tcp://127.0.0.1:{port}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    scheduler = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "distributed.cli.dask_scheduler",
            "--port",
            port,
            "--no-dashboard",
            "--host",
            "127.0.0.1",
        ],
        **quiet,
    )
    worker = [
        sys.executable,
        "-m",
        "distributed.cli.dask_worker",
        address,
        "--nthreads",
        "1",
        "--no-nanny",
        "--no-dashboard",
    ]
    workers = [subprocess.Popen(worker, **quiet) for _ in range(2)]
    wait_for(address)
    real, saved = directory.StudyDirectory.save, []

    def save(self: Any, outcome: Any) -> None:
        real(self, outcome)
        saved.append(outcome.unit)
        if len(saved) == kill_after:
            (workers[0] if which == "worker" else scheduler).kill()

    directory.StudyDirectory.save = save
    try:
        study(place, dask=address)
    finally:
        for process in (*workers, scheduler):
            process.kill()


def wait_for(address: str) -> None:
    """Until two workers are there."""
    from distributed import Client

    with Client(address, timeout=60) as client:
        client.wait_for_workers(2, timeout=60)


def line(name: str, title: str, planned: int, size: int, attempt: Any) -> Line:
    """A line of this section."""
    return Line(
        f"faults/{name}", title, planned, size, lambda *numbers: each(f"faults/{name}", *numbers, attempt), limit=3600
    )


LINES = [
    line(
        "writes", "calls that write, each failing with a full disk, a broken disk and no memory", 450, 30, failed_write
    ),
    line("SIGKILL", "SIGKILL at random moments", 100, 10, stopped(signal.SIGKILL)),
    line("SIGTERM", "SIGTERM at random moments", 50, 10, stopped(signal.SIGTERM)),
    line("SIGINT", "SIGINT at random moments", 50, 10, stopped(signal.SIGINT)),
    line("full disk", "full disks", 20, 10, full_disk),
    line("read-only disk", "disks that become read-only", 20, 10, read_only),
    line("clock", "clocks that are set back", 20, 10, clock_back),
    line("damage", "finished studies with damaged units", 50, 10, damaged),
    line("two studies", "two studies in one directory", 20, 10, two_at_once),
    line("worker", "Dask workers killed", 10, 5, cluster_killed("worker")),
    line("scheduler", "Dask schedulers killed", 10, 5, cluster_killed("scheduler")),
]
