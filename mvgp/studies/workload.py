"""Workload: the data of a study, its splits, and the tasks that follow from them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from ..datasets import LinkSet
from ..selection import Split, split_pairs, split_rows
from . import entrants
from .ranked import held_out_rows
from .seeds import unit_seed
from .setting import Setting
from .study import WITH_VARIANCE, Study
from .unit import Task, Unit


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
        """Most units after the scores."""
        calibrations = len(self.certain) if self.study.calibration_rows else 0
        return calibrations + (self.study.negative_sets if self.study.candidate_rows else 0)

    @property
    def most(self) -> int:
        """Most units there can be, before choices show which fits models have in common."""
        fits = sum(len(self.sets(model)) for model in self.study.models)
        return len(self.choices()) + len(self.folds) * (fits + len(self.study.models)) + self.num_later

    def choice_units(self, model: str, fold: int) -> list[Unit]:
        """What the choice of a model is made of."""
        return [Unit("choice", part, fold) for part in entrants.choice_parts(model, self.study)]

    def choices(self) -> list[Task]:
        """All choices, those that models share once."""
        units = [unit for fold in self.folds for model in self.study.models for unit in self.choice_units(model, fold)]
        return [Task(unit, self.study, self.training[unit.fold]) for unit in dict.fromkeys(units)]

    def sets(self, family: str) -> range:
        """Sets of negatives that a fit is repeated for."""
        return range(self.study.negative_sets if entrants.needs_negatives(family) else 1)

    def fits(self, setting: Setting, fold: int) -> list[Task]:
        """One fit for each set of negatives."""
        rows = held_out_rows(self.splits[fold])
        return [
            Task(Unit("fit", setting.key, fold, number), self.study, self.training[fold], setting, rows)
            for number in self.sets(setting.family)
        ]

    def score_unit(self, model: str, setting: Setting, fold: int) -> Unit:
        """The metrics of a model in a fold."""
        return Unit("score", f"{model}_{setting.key}", fold)

    def calibration(self, setting: Setting) -> Task:
        """P(top k) on some rows of the first fold."""
        count = self.study.calibration_rows
        rows = _some(held_out_rows(self.splits[0]), count, unit_seed(self.study.seed, "calibration"))
        unit = Unit("calibration", f"{setting.key}_{count}", 0)
        return Task(unit, self.study, self.training[0], setting, rows, self.data)

    @cached_property
    def candidate_rows(self) -> Tensor:
        """(R,) ascending: rows with a link, drawn at random."""
        return _some(self.data.rows.unique(), self.study.candidate_rows, unit_seed(self.study.seed, "candidates"))

    def candidates(self, setting: Setting) -> list[Task]:
        """The rows of a fit to all links, for each set of negatives."""
        what, everything = f"{setting.key}_{self.study.candidate_rows}", self.study.folds
        return [
            Task(Unit("candidates", what, everything, number), self.study, self.data, setting, self.candidate_rows)
            for number in self.sets(setting.family)
        ]

    @property
    def certain(self) -> list[str]:
        """Models that can say how certain they are."""
        return [model for model in self.study.models if model in WITH_VARIANCE]


def _some(rows: Tensor, count: int, seed: int) -> Tensor:
    """(min(R, count),) of rows (R,), ascending."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[:count].sort().values]
