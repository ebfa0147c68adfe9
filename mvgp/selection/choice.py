"""Choice: the table of a validation, and what follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import InputError
from ..models import TraceGP
from ..posteriors import TracePosterior
from ..posteriors.loss import Data
from .averaged_ranker import AveragedRanker
from .negative_sets import check_negatives
from .records import PathRecord, Point, best_of, strongest_within, summarise
from .settings import Settings
from .splits import check_data
from .walk import fitted_sets, joined, with_share

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """Strength and trace share, chosen by validation. From :func:`choose`.

    :param records: the table: every point of every finished path, by trace share, then fold, then strength.
    :param trace_shares: that were asked for.
    :param settings: what all paths have in common.
    :param one_standard_error: whether :attr:`chosen` follows the one-standard-error rule.
    :param model: the recipe as it was.
    """

    records: tuple[PathRecord, ...]
    trace_shares: tuple[float, ...]
    settings: Settings
    one_standard_error: bool
    model: TraceGP

    @cached_property
    def finished(self) -> frozenset[tuple[float, int]]:
        """The paths that were walked to their end: (trace share, fold)."""
        return frozenset((record.trace_share, record.fold) for record in self.records)

    @property
    def complete(self) -> bool:
        """Whether every path is there."""
        return len(self.finished) == len(self.trace_shares) * self.settings.num_folds

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Mean and standard error of each trace share and strength that every fold has reached."""
        return summarise(self.records, self.settings.num_folds)

    @property
    def best(self) -> Point:
        """The largest mean."""
        if not self.complete:
            total = len(self.trace_shares) * self.settings.num_folds
            raise InputError(
                f"expected all {total} paths, got {len(self.finished)}: finish with choose(..., resume=this)"
            )
        return best_of(self.points)

    @property
    def best_one_standard_error(self) -> Point:
        """The strongest penalty whose mean is within one standard error of the best, its trace share the same.

        Penalties of one trace share are ordered by strength; those of different shares have no order.
        """
        best = self.best
        if math.isnan(best.standard_error):
            raise InputError(
                f"{self.settings.metric}: expected at least two folds, or a metric with a value for each of at least "
                "two tasks, got neither: there is no standard error"
            )
        return strongest_within(self.points, best)

    @property
    def chosen(self) -> Point:
        """One of the two, as was asked for."""
        return self.best_one_standard_error if self.one_standard_error else self.best

    @property
    def recipe(self) -> TraceGP:
        """The model with the chosen strength and trace share."""
        found = with_share(self.model, self.chosen.trace_share)
        found.strength = self.chosen.strength
        return found

    def refit(self, data: Data) -> TracePosterior | AveragedRanker:
        """The posterior given ``data`` at the chosen point, by way of the stronger ones.

        With several sets of negatives, drawn anew for ``data``, it is a ranker with their average scores.
        """
        chosen = self.chosen
        check_data(data)
        negatives = check_negatives(self.settings.negatives, data)
        recipe = with_share(self.model, chosen.trace_share)
        strengths = [strength for strength in self.settings.strengths if strength >= chosen.strength]
        posteriors = []
        for one in fitted_sets(data, negatives, self.settings.seed, 0):
            *_, last = recipe.path(one, strengths)
            posteriors.append(last.posterior)
        return joined(posteriors, negatives)

    def to_frame(self) -> pd.DataFrame:
        """The table as a pandas frame, one line for each record; the metric under its own name."""
        import pandas as pd

        columns = ("trace_share", "strength", "fold", "rank", "relative_gap", "iterations", "seconds")
        frame = pd.DataFrame([{name: getattr(one, name) for name in columns} for one in self.records])
        frame.insert(3, self.settings.metric, [one.score.value for one in self.records])
        frame.insert(4, "standard_error", [one.score.standard_error for one in self.records])
        return frame

    def __repr__(self) -> str:
        if not self.complete:
            total = len(self.trace_shares) * self.settings.num_folds
            return f"Choice({len(self.finished)} of {total} paths)"
        best = self.best
        return (
            f"Choice(best: trace_share {best.trace_share:g}, strength {best.strength:.3g}, {self.settings.metric} "
            f"{best.mean:.4g} +- {best.standard_error:.2g}; {len(self.records)} fits)"
        )
