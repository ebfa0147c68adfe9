"""StudyDirectory: where the units of a study are kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...errors import InputError, StorageError
from ...storage.files import check_output_directory, kind, open_regular, read_json, replacing
from . import units as unit_files
from .settings import GROWING, Study, shown
from .units import Outcome, Unit

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

BEYOND = 2**30  # on Windows a locked byte cannot be read: one behind all that is written


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock file ``path``, or refuse.

    The system itself holds the lock and lets go of it when the process ends, in whatever way, so that none is ever
    left behind. The file stays, and says who has it.
    """
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        got = "a link" if os.path.islink(path) else kind(os.lstat(path).st_mode)
        raise InputError(f"{path}: expected the lock file of a study, got {got}")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        if not _take(handle):
            raise InputError(f"{os.path.dirname(path)}: {_holder(path)} is running this study at the moment")
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    """Whether nobody else has it."""
    try:
        if sys.platform == "win32":
            os.lseek(handle, BEYOND, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, 0, os.SEEK_SET)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _holder(path: str) -> str:
    with open(path, "rb") as file:
        text = file.read(1000)
    try:
        told = json.loads(text)
        return f"process {int(told['pid'])} on {told['host']!s:.100}"
    except (ValueError, KeyError, TypeError, RecursionError):  # between taking the lock and saying so
        return "another process"


FORMAT = 1


class StudyDirectory:
    """A directory that belongs to one study of one set of data; every file in it appears whole or not at all.

    :param path: of the directory.
    :param study: the settings.
    :param digest: of the data.
    """

    def __init__(self, path: str | os.PathLike[str], study: Study, digest: str) -> None:
        self.path, self.study, self.digest = Path(path), study, digest
        fixed = {name: value for name, value in asdict(study).items() if name not in GROWING}
        text = json.dumps([FORMAT, digest, fixed], sort_keys=True)
        self.belongs = hashlib.sha256(text.encode()).hexdigest()[:16]

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Take the directory, which is made if it is not there; refuse one of another study, or one in use."""
        with _one_line(self.path):
            check_output_directory(self.path)
            if self.path.is_dir() and any(self.path.iterdir()) and not (self.path / "lock").exists():
                raise InputError(f"{self.path}: expected a new directory or that of a study, got one with other files")
            self.path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as held:
            with _one_line(self.path):
                held.enter_context(locked(str(self.path / "lock")))
                self._check_same()
                for draft in self.path.rglob(".mvgp-*.tmp"):  # of a process that was killed
                    draft.unlink()
            yield

    def _check_same(self) -> None:
        found = read_description(self.path)
        if found is None:
            return
        told, here = found["settings"], json.loads(self.study.to_json())
        for name, value in here.items():
            if name not in GROWING and told.get(name) != value:
                raise InputError(
                    f"{self.path}: expected the directory of this study, got one of another: "
                    f"{name} is {shown(told.get(name))} there and {shown(value)} here"
                )
        digest = found["data"]["digest"]
        if digest != self.digest:
            raise InputError(
                f"{self.path}: expected the directory of this study, got one of other data: their digest is "
                f"{digest:.40} there and {self.digest} here"
            )

    def load(self, unit: Unit) -> Outcome | None:
        """What was saved; None if nothing was, or if the file is damaged, which is told and then done again."""
        content = self._content(unit)
        if content is None:
            return None
        try:
            return unit_files.from_bytes(content, unit, self.belongs)
        except StorageError as error:
            self._damaged(unit, error)
            return None

    def has(self, unit: Unit) -> bool:
        """Whether it was saved and is whole."""
        return self.load(unit) is not None

    def save(self, outcome: Outcome) -> None:
        """Keep what came of a unit; whole, or not at all."""
        self.write(outcome.unit.path, unit_files.to_bytes(outcome, self.belongs))

    def drop(self, unit: Unit) -> None:
        """Forget a unit that is no longer needed."""
        self.remove(unit.path)

    def remove(self, name: str) -> None:
        """A file that is out of date, if it is there."""
        with _one_line(self.path / name):
            (self.path / name).unlink(missing_ok=True)

    def write(self, name: str, content: bytes) -> None:
        """A file in the directory, whole or not at all."""
        target = self.path / name
        with _one_line(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(str(target)) as file:
                file.write(content)

    def describe(self, description: dict[str, Any]) -> None:
        """Write ``study.json``."""
        self.write("study.json", json.dumps(description, indent=1).encode())

    def _content(self, unit: Unit) -> bytes | None:
        with _one_line(self.path / unit.path):
            try:
                with open_regular(self.path / unit.path) as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def _damaged(self, unit: Unit, error: StorageError) -> None:
        warnings.warn(f"{self.path / unit.path}: {error}; it is done again", RuntimeWarning, stacklevel=3)
        self.drop(unit)


def read_description(path: Path) -> dict[str, Any] | None:
    """What ``study.json`` says, None if there is none."""
    file = path / "study.json"
    try:
        found = read_json(file, "the description of a study")
    except FileNotFoundError:
        return None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{file}: expected the description of a study, format {FORMAT}")
    for name, expected, fits in PARTS:
        if not fits(found.get(name)):
            raise InputError(f"{file}: expected {name!r} of the study to be {expected}, got {shown(found.get(name))}")
    described: dict[str, Any] = found
    return described


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


PARTS: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("title", "a text", lambda one: isinstance(one, str)),
    ("settings", "names and values", lambda one: isinstance(one, dict)),
    (
        "data",
        "names and values, one a digest",
        lambda one: isinstance(one, dict) and isinstance(one.get("digest"), str),
    ),
    ("finished", "true or false", lambda one: isinstance(one, bool)),
    (
        "units",
        "whole numbers 'done' and 'total'",
        lambda one: isinstance(one, dict) and _whole(one.get("done")) and _whole(one.get("total")),
    ),
    ("seconds", "a number", lambda one: isinstance(one, int | float) and not isinstance(one, bool)),
    (
        "notes",
        "a list of texts",
        lambda one: isinstance(one, list) and all(isinstance(note, str) for note in one),
    ),
)


@contextlib.contextmanager
def _one_line(path: Path) -> Iterator[None]:
    """A full disk, a read-only directory: the system's word as an error of mvgp, in one line."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(
            f"{path}: {why}; units that are finished are kept, the same call goes on with the rest"
        ) from error
