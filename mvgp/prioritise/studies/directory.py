"""A study: its settings, its units, and the directory where they are kept: what a file is, and who may write there."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import socket
import stat
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...checks import check_choice, check_instance, check_part, shown
from ...errors import InputError, StorageError
from ...storage.files import check_output_directory, kind, open_regular, read_json, replacing
from ..tuning.settings import TOP, FitSettings
from ..tuning.tune import CALIBRATED, MODELS

FORMAT = 1
STAGES = ("choice", "fit", "score", "calibration", "candidates")
WORD = b"mvgp study unit 1 sha256 "
HEAD = len(WORD) + 64 + 1  # the digits, a line break
MAX_FOLDS = 1_000_000
GROWING = ("models", "run_folds", "calibration_rows", "candidate_rows", "title")  # may change from run to run


@dataclass(frozen=True, kw_only=True)
class Study(FitSettings):
    """What is compared, on which splits, and how settings are chosen. The defaults are the paper's protocol.

    All settings of :class:`~mvgp.prioritise.tuning.settings.FitSettings` are settings of a study, too: ``split`` is
    then also the outer split of the folds. They are given by name.

    :param models: ``hilbert`` (no trace norm), ``trace`` (trace norm alone), ``best`` (trace share chosen), ``whole``
        (whole lists, no sampled negatives), ``whole-popular`` (the same with a
        :class:`~mvgp.priors.PopularityMean`), ``full``, ``factor``, ``prodige``, or a name of
        ``mvgp.prioritise.baselines.BASELINE_NAMES``.
    :param folds: K of cross-validation.
    :param run_folds: only the first few of them; all when left out.
    :param subsample: share of the links that is used at all; the paper has 0.05 and 1.
    :param k: length of the curves.
    :param calibration_rows: rows of the first fold on which P(top ``top``) is examined; 0 for none.
    :param candidate_rows: rows whose candidates are listed after a fit to all links; 0 for none.
    :param top: items of such a list, and the k of P(top k).
    :param title: for the report.

    Example:
        >>> from mvgp.prioritise.studies import Study
        >>> study = Study(models=("popularity", "trace"), split="known", run_folds=1)
        >>> study.split, Study.from_json(study.to_json()) == study
        ('pairs', True)

    """

    models: tuple[str, ...] = ("popularity", "hilbert", "trace", "best")
    folds: int = 5
    run_folds: int | None = None
    subsample: float = 1.0
    k: int = 100
    calibration_rows: int = 0
    candidate_rows: int = 0
    top: int = TOP
    title: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = (self.models,) if isinstance(self.models, str) else self.models
        for name in check_instance(names, "models", (tuple, list), "a list of names"):
            check_choice(name, "models", MODELS)
        if not names or len(set(names)) < len(names):
            raise InputError(f"models: expected different names, at least one, got {shown(names)}")
        self._set("models", tuple(names))
        self._check_whole("folds", minimum=2, maximum=MAX_FOLDS)
        self._check_whole("k", "top")
        self._check_whole("calibration_rows", "candidate_rows", minimum=0)
        if self.run_folds is not None:
            self._check_whole("run_folds")
            if self.run_folds > self.folds:
                raise InputError(f"run_folds: expected at most {self.folds}, the number of folds, got {self.run_folds}")
        self._check(check_part, "subsample")
        if not isinstance(self.title, str):
            raise InputError(f"title: expected a text, got {shown(self.title)}")
        if (self.calibration_rows or self.candidate_rows) and not set(self.models) & set(CALIBRATED):
            raise InputError(
                f"calibration_rows, candidate_rows: expected a model with variances ({', '.join(CALIBRATED)}), "
                f"got {', '.join(self.models)}"
            )

    @property
    def num_folds(self) -> int:
        """Folds that are run."""
        return self.folds if self.run_folds is None else self.run_folds


def unit_seed(seed: int, stage: str, fold: int = 0, negatives: int = 0, model: str = "") -> int:
    """A seed that follows from the study's own and the name of the unit.

    Without ``model`` it is the same for all models: they are compared on the same negatives and validation parts.
    """
    entropy = [seed, STAGES.index(stage), fold, negatives, zlib.crc32(model.encode())]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


@dataclass(frozen=True)
class Unit:
    """The name of a piece of work that is done once and saved."""

    stage: str  # one of STAGES
    what: str  # the part of a choice, the setting of a fit, or the model
    fold: int  # of the outer split; the number of folds stands for all links
    negatives: int = 0  # which set of them

    @property
    def path(self) -> str:
        """Of its file, within the directory of the study."""
        return f"units/{self.stage}/{self.what}-fold{self.fold}-set{self.negatives}.unit"

    def __str__(self) -> str:
        return f"{self.stage} of {self.what}, fold {self.fold}, set {self.negatives}"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a unit: numbers by name, and whatever JSON can hold."""

    unit: Unit
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A unit that raised: the error in one line, and the traceback."""

    unit: Unit
    error: str
    details: str = ""


def to_bytes(outcome: Outcome, belongs: str) -> bytes:
    """The content of a file; ``belongs`` is a digest of study and data."""
    info = json.dumps({"belongs": belongs, "unit": str(outcome.unit), "info": outcome.info}).encode()
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {f"array_{name}": array for name, array in outcome.arrays.items()}
    np.savez(buffer, info=np.frombuffer(info, dtype=np.uint8), **arrays)
    body = buffer.getvalue()
    return WORD + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def from_bytes(content: bytes, unit: Unit, belongs: str) -> Outcome:
    """What was written for this unit of this study."""
    if not content.startswith(WORD):
        raise StorageError(f"expected a unit of a study, got a file that begins with {content[:8]!r}")
    body = content[HEAD:]
    if hashlib.sha256(body).hexdigest().encode() + b"\n" != content[len(WORD) : HEAD]:
        raise StorageError("expected the SHA-256 of its first line, got another: it is cut short or was changed")
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as stored:
            description = json.loads(stored["info"].tobytes())
            arrays = {name.removeprefix("array_"): stored[name] for name in stored.files if name != "info"}
    except Exception as error:  # bytes can be wrong in more ways than there are names for
        raise StorageError(" ".join(f"{type(error).__name__}: {error}".split())) from error
    if not isinstance(description, dict) or not isinstance(description.get("info"), dict):
        raise StorageError("info: expected names and values, got something else")
    for name, expected in (("belongs", belongs), ("unit", str(unit))):
        if description.get(name) != expected:
            raise StorageError(f"{name}: expected {expected!r}, got {description.get(name)!r}")
    return Outcome(unit, arrays, description["info"])


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock of a study, or refuse. The system lets go of it when the process ends, in whatever way.

    It is on a file of its own, ``path`` with ``.guard``: a locked file cannot be read on Windows, and older versions of
    filelock empty it. The file ``path`` stays, and says who has it.
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
    """A directory that belongs to one study of one set of data; every file in it appears whole or not at all."""

    def __init__(self, path: Path, study: Study, digest: str) -> None:
        self.path, self.study, self.digest = path, study, digest
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
        expected, there = f"{self.path}: expected the directory of this study", description["settings"]
        for name, value in json.loads(self.study.to_json()).items():
            if name not in GROWING and there.get(name) != value:
                came = f"{name} is {shown(there.get(name))} there and {shown(value)} here"
                raise InputError(f"{expected}, got one of another: {came}")
        digest = description["data"]["digest"]
        if digest != self.digest:
            came = f"their digest is {digest:.40} there and {self.digest} here"
            raise InputError(f"{expected}, got one of other data: {came}")

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
            return from_bytes(content, unit, self.belongs)
        except StorageError as error:
            warnings.warn(f"{path}: {error}; it is done again", RuntimeWarning, stacklevel=2)
            self.remove(unit.path)
            return None

    def save(self, outcome: Outcome) -> None:
        """Keep what came of a unit."""
        self.write(outcome.unit.path, to_bytes(outcome, self.belongs))

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
    for name, (expected, fits) in PARTS.items():
        if not fits(description.get(name)):
            came = shown(description.get(name))
            raise InputError(f"{file}: expected {name!r} of the study to be {expected}, got {came}")
    return description


def _has(part: Any, kinds: type, *names: str) -> bool:
    return type(part) is dict and all(type(part.get(name)) is kinds for name in names)


PARTS: dict[str, tuple[str, Callable[[Any], bool]]] = {  # of study.json, and what they are
    "title": ("a text", lambda part: type(part) is str),
    "settings": ("names and values", lambda part: type(part) is dict),
    "data": ("names and values, one a digest", lambda part: _has(part, str, "digest")),
    "finished": ("true or false", lambda part: type(part) is bool),
    "units": (
        "whole numbers 'done' and 'total'",
        lambda part: _has(part, int, "done", "total") and min(part["done"], part["total"]) >= 0,
    ),
    "seconds": ("a number", lambda part: type(part) in (int, float)),
    "notes": ("a list of texts", lambda part: type(part) is list and all(type(text) is str for text in part)),
}


@contextlib.contextmanager
def _one_line(path: Path) -> Iterator[None]:
    """A full disk, a read-only directory: the system's word as an error of mvgp, in one line."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"{path}: {why}; units that are finished are kept, the same call does the rest") from error
