"""The units of a study: their names, seeds, files, and the tasks that the data and the settings make of them."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import StorageError
from ...hyperparameters.splits import Split, split_pairs, split_rows
from ...metrics.ranking import RankingScores, ranking_scores
from ..tables.link_set import LinkSet
from ..tuning.tune import CALIBRATED, REGISTRY, Setting, family_of, takes_negatives
from .settings import Study

STAGES = ("choice", "fit", "score", "calibration", "candidates")


def unit_seed(seed: int, stage: str, fold: int = 0, negatives: int = 0, model: str = "") -> int:
    """A seed that follows from the study's own and the name of the unit.

    Without ``model`` it is the same for all models: they are compared on the same negatives and validation parts.
    """
    entropy = [seed, STAGES.index(stage), fold, negatives, zlib.crc32(model.encode())]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


@dataclass(frozen=True)
class Unit:
    """The name of a piece of work that is done once and saved.

    :param stage: one of ``STAGES``.
    :param what: the part of a choice, the setting of a fit, or the model.
    :param fold: of the outer split; the number of folds stands for all links.
    :param negatives: which set of them.
    """

    stage: str
    what: str
    fold: int
    negatives: int = 0

    @property
    def path(self) -> str:
        """Of its file, within the directory of the study."""
        return f"units/{self.stage}/{self.what}-fold{self.fold}-set{self.negatives}.unit"

    def __str__(self) -> str:
        return f"{self.stage} of {self.what}, fold {self.fold}, set {self.negatives}"


@dataclass(frozen=True, eq=False)
class Task:
    """A unit and all that it needs, to be sent to whoever does it.

    A choice or a fit is given no held-out link: it cannot look at what it does not have.

    :param study: the settings.
    :param train: the links that may be fitted.
    :param setting: that was chosen; None for a choice.
    :param rows: (R,) that are to be scored.
    :param everything: all links, for the reference of a calibration; None elsewhere.
    """

    unit: Unit
    study: Study
    train: LinkSet
    setting: Setting | None = None
    rows: Tensor | None = None
    everything: LinkSet | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a unit.

    :param arrays: numbers by name.
    :param info: whatever JSON can hold.
    """

    unit: Unit
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A unit that raised.

    :param error: in one line.
    :param details: the traceback.
    """

    unit: Unit
    error: str
    details: str = ""


WORD = b"mvgp study unit 1 sha256 "
HEAD = len(WORD) + 64 + 1  # the digits, a line break


def to_bytes(outcome: Outcome, belongs: str) -> bytes:
    """The content of a file.

    :param belongs: a digest of study and data.
    """
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


class RowScores:
    """Scores of chosen rows, as a ranker.

    :param rows: (R,) ascending.
    :param values: (R, N).
    :param shape: (M, N).
    """

    def __init__(self, rows: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        self.rows, self.values, self.shape = rows, values, shape

    def scores(self, rows: Any = None) -> Tensor:
        """(Q, N): of rows among those there are."""
        return self.values if rows is None else self.values[torch.searchsorted(self.rows, rows)]


def held_out_rows(split: Split) -> Tensor:
    """(R,) ascending: rows with a held-out link."""
    return split.held_out.rows.unique()


def score_outcome(unit: Unit, fits: Iterable[Outcome], split: Split, k: int) -> Outcome:
    """The metrics of the average scores over sets of negatives, and the certificates of their fits.

    Scores are read from files one set at a time, so that one of them is in memory; an
    :class:`~mvgp.hyperparameters.AveragedRanker` would hold them all.

    :param fits: always in the same order.
    """
    rows, shape = held_out_rows(split), split.held_out.shape
    total = np.zeros((len(rows), shape[1]))
    summaries: list[dict[str, Any]] = []
    for fit in fits:
        total += fit.arrays["scores"]
        summaries.append(fit.info)
    average = RowScores(rows, torch.from_numpy(total / len(summaries)), shape)
    metrics = ranking_scores(average, split.held_out, exclude=split.train, k=k, rows=rows)
    arrays = {entry.name: getattr(metrics, entry.name).numpy() for entry in fields(metrics)}
    return Outcome(unit, arrays, {"fits": summaries})


def ranking_of(outcome: Outcome) -> RankingScores:
    """The metrics as they were."""
    names = [entry.name for entry in fields(RankingScores)]
    return RankingScores(**{name: torch.from_numpy(outcome.arrays[name]) for name in names})


class Workload:
    """Tasks of every stage, each with no more data than it may see.

    :param link_set: all data; the subsample is drawn here.
    :param study: the settings.
    """

    def __init__(self, link_set: LinkSet, study: Study) -> None:
        self.study, self.all_links = study, link_set
        self.data = link_set if study.subsample == 1 else link_set.subsample(study.subsample, study.seed)
        split = split_pairs if study.split == "pairs" else split_rows
        self.splits: list[Split] = split(self.data.links(study.whole_weight), folds=study.folds, seed=study.seed)

    @property
    def folds(self) -> range:
        """Those that are run."""
        return range(self.study.num_folds)

    @cached_property
    def training(self) -> list[LinkSet]:
        """The data with the links of the training part of each fold alone."""
        return [replace(self.data, rows=split.train.rows, cols=split.train.cols) for split in self.splits]

    @property
    def num_later(self) -> int:
        """Units after the scores, at most."""
        calibrations = len(self.calibrated) if self.study.calibration_rows else 0
        return calibrations + (self.study.negative_sets if self.study.candidate_rows else 0)

    @property
    def max_units(self) -> int:
        """Units, at most: before choices show which fits models have in common."""
        fits = sum(len(self.sets(model)) for model in self.study.models)
        return len(self.choices()) + len(self.folds) * (fits + len(self.study.models)) + self.num_later

    def choice_units(self, model: str, fold: int) -> list[Unit]:
        """The units of the choice of a model: one for each trace share, or one for a grid."""
        shares = REGISTRY[model].trace_shares
        parts = [f"{family_of(model)}_{share:g}" for share in shares(self.study)] if shares else [model]
        return [Unit("choice", part, fold) for part in parts]

    def choices(self) -> list[Task]:
        """All choices, those that models share once."""
        units = [unit for fold in self.folds for model in self.study.models for unit in self.choice_units(model, fold)]
        return [Task(unit, self.study, self.training[unit.fold]) for unit in dict.fromkeys(units)]

    def sets(self, family: str) -> range:
        """Sets of negatives that a fit is repeated for."""
        return range(self.study.negative_sets if takes_negatives(family) else 1)

    def fits(self, setting: Setting, fold: int) -> list[Task]:
        """One fit for each set of negatives."""
        rows = held_out_rows(self.splits[fold])
        return [
            Task(Unit("fit", setting.key, fold, number), self.study, self.training[fold], setting, rows)
            for number in self.sets(setting.family)
        ]

    def calibration(self, setting: Setting) -> Task:
        """P(top k) on some rows of the first fold."""
        count = self.study.calibration_rows
        rows = _sample(held_out_rows(self.splits[0]), count, unit_seed(self.study.seed, "calibration"))
        unit = Unit("calibration", f"{setting.key}_{count}", 0)
        return Task(unit, self.study, self.training[0], setting, rows, self.data)

    @cached_property
    def candidate_rows(self) -> Tensor:
        """(R,) ascending: rows with a link, drawn at random."""
        return _sample(self.data.rows.unique(), self.study.candidate_rows, unit_seed(self.study.seed, "candidates"))

    def candidates(self, setting: Setting) -> list[Task]:
        """The rows of a fit to all links, for each set of negatives."""
        what, all_links = f"{setting.key}_{self.study.candidate_rows}", self.study.folds
        return [
            Task(Unit("candidates", what, all_links, number), self.study, self.data, setting, self.candidate_rows)
            for number in self.sets(setting.family)
        ]

    @property
    def calibrated(self) -> list[str]:
        """Models that can say how certain they are."""
        return [model for model in self.study.models if model in CALIBRATED]


def _sample(rows: Tensor, count: int, seed: int) -> Tensor:
    """(min(R, count),) of rows (R,), ascending."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[:count].sort().values]
