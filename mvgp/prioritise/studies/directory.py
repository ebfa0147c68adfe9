"""StudyDirectory: where the units of a study are kept, and who may write there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...checks import shown
from ...errors import InputError, StorageError
from ...storage.files import check_output_directory, kind, open_regular, read_json, replacing
from . import units as unit_files
from .settings import GROWING, Study
from .units import Outcome, Unit

FORMAT = 1


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock of a study, or refuse.

    The system itself holds the lock and lets go of it when the process ends, in whatever way, so that none is ever
    left behind. It is on a file of its own, ``path`` with ``.guard``: a locked file cannot be read on Windows, and
    older versions of filelock empty it. The file ``path`` stays, and says who has it.
    """
    try:
        from filelock import FileLock, Timeout
    except ImportError:
        raise InputError("studies need the package filelock: pip install 'mvgp[cli]'") from None
    guard = f"{path}.guard"
    for file in (path, guard):
        if os.path.lexists(file) and not stat.S_ISREG(os.lstat(file).st_mode):
            came = "a link" if os.path.islink(file) else kind(os.lstat(file).st_mode)
            raise InputError(f"{file}: expected the lock file of a study, got {came}")
    Path(path).touch()  # first: it shows that the directory is one of a study
    lock = FileLock(guard)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(f"{os.path.dirname(path)}: {_holder(path)} is running this study at the moment") from None
    try:
        Path(path).write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        with contextlib.suppress(OSError):  # a full disk has been reported already
            Path(path).write_text("")
        lock.release()


def _holder(path: str) -> str:
    try:
        with open(path, "rb") as file:
            holder = json.loads(file.read(1000))
        return f"process {int(holder['pid'])} on {holder['host']!s:.100}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # between taking the lock and saying so
        return "another process"


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
            self._check_same()  # before anything is written there, and again when it is ours
            self.path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as held:
            with _one_line(self.path):
                held.enter_context(locked(str(self.path / "lock")))
                self._check_same()
                for draft in self.path.rglob(".mvgp-*.tmp"):  # of a process that was killed
                    draft.unlink()
            yield

    def _check_same(self) -> None:
        description = read_description(self.path)
        if description is None:
            return
        there, here = description["settings"], json.loads(self.study.to_json())
        for name, value in here.items():
            if name not in GROWING and there.get(name) != value:
                raise InputError(
                    f"{self.path}: expected the directory of this study, got one of another: "
                    f"{name} is {shown(there.get(name))} there and {shown(value)} here"
                )
        digest = description["data"]["digest"]
        if digest != self.digest:
            raise InputError(
                f"{self.path}: expected the directory of this study, got one of other data: their digest is "
                f"{digest:.40} there and {self.digest} here"
            )

    def load(self, unit: Unit) -> Outcome | None:
        """What was saved; None if nothing was, or if the file is damaged, which is a warning and then done again."""
        path = self.path / unit.path
        with _one_line(path):
            try:
                with open_regular(path) as file:
                    content = file.read()
            except FileNotFoundError:
                return None
        try:
            return unit_files.from_bytes(content, unit, self.belongs)
        except StorageError as error:
            warnings.warn(f"{path}: {error}; it is done again", RuntimeWarning, stacklevel=2)
            self.remove(unit.path)
            return None

    def has(self, unit: Unit) -> bool:
        """Whether it was saved and is whole."""
        return self.load(unit) is not None

    def save(self, outcome: Outcome) -> None:
        """Keep what came of a unit; whole, or not at all."""
        self.write(outcome.unit.path, unit_files.to_bytes(outcome, self.belongs))

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


def read_description(path: Path) -> dict[str, Any] | None:
    """What ``study.json`` says, None if there is none."""
    file = path / "study.json"
    try:
        description = read_json(file, "the description of a study")
    except FileNotFoundError:
        return None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise InputError(f"{file}: expected the description of a study, format {FORMAT}")
    for name, expected, fits in PARTS:
        part = description.get(name)
        if not fits(part):
            raise InputError(f"{file}: expected {name!r} of the study to be {expected}, got {shown(part)}")
    return dict(description)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_data(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("digest"), str)


def _is_units(value: Any) -> bool:
    return isinstance(value, dict) and _is_count(value.get("done")) and _is_count(value.get("total"))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


PARTS: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("title", "a text", lambda part: isinstance(part, str)),
    ("settings", "names and values", lambda part: isinstance(part, dict)),
    ("data", "names and values, one a digest", _is_data),
    ("finished", "true or false", lambda part: isinstance(part, bool)),
    ("units", "whole numbers 'done' and 'total'", _is_units),
    ("seconds", "a number", lambda part: isinstance(part, int | float) and not isinstance(part, bool)),
    ("notes", "a list of texts", _is_texts),
)


@contextlib.contextmanager
def _one_line(path: Path) -> Iterator[None]:
    """A full disk, a read-only directory: the system's word as an error of mvgp, in one line."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"{path}: {why}; units that are finished are kept, the same call does the rest") from error
