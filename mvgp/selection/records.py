"""The table of a choice: one line for each fit, and what the folds say together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .score import Score


@dataclass(frozen=True)
class PathRecord:
    """One point of one path.

    :param trace_share: of the path.
    :param strength: lam / lam_max.
    :param fold: whose training part was fitted.
    :param score: on its held-out part.
    :param rank: of the mean; the largest over sets of negatives.
    :param relative_gap: of the certificate; the largest over sets of negatives.
    :param iterations: of the solver, over all sets of negatives.
    :param seconds: of the fit; the first point of a path includes setting up.
    """

    trace_share: float
    strength: float
    fold: int
    score: Score
    rank: int
    relative_gap: float
    iterations: int
    seconds: float = field(compare=False)


@dataclass(frozen=True)
class Point:
    """What all folds say about a trace share and a strength.

    :param trace_share: between 0 and 1.
    :param strength: lam / lam_max.
    :param mean: of the metric over folds.
    :param standard_error: of that mean, over folds, or over tasks if there is one fold; NaN if there is neither.
    :param rank: average rank of the means.
    """

    trace_share: float
    strength: float
    mean: float
    standard_error: float
    rank: float


def summarise(records: Iterable[PathRecord], num_folds: int) -> tuple[Point, ...]:
    """The points that every fold has reached, in the order of the records."""
    groups: dict[tuple[float, float], list[PathRecord]] = {}
    for record in records:
        groups.setdefault((record.trace_share, record.strength), []).append(record)
    return tuple(_point(group) for group in groups.values() if len(group) == num_folds)


def best_of(points: Sequence[Point]) -> Point:
    """The largest mean; of equal ones the strongest penalty."""
    return max(points, key=lambda point: (point.mean, point.strength, point.trace_share))


def strongest_within(points: Sequence[Point], best: Point) -> Point:
    """The strongest penalty of the same trace share whose mean is within one standard error of the best."""
    least = best.mean - best.standard_error
    same = [point for point in points if point.trace_share == best.trace_share and point.mean >= least]
    return max(same, key=lambda point: point.strength)


def _point(group: Sequence[PathRecord]) -> Point:
    values = [record.score.value for record in group]
    error = math.nan
    if len(group) > 1:
        error = statistics.stdev(values) / math.sqrt(len(values))
    elif not math.isnan(group[0].score.standard_error):
        error = group[0].score.standard_error
    rank = statistics.fmean(record.rank for record in group)
    return Point(group[0].trace_share, group[0].strength, statistics.fmean(values), error, rank)
