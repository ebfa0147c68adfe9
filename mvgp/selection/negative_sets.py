"""NegativeSets: how negatives are drawn, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import check_flag, check_positive, check_seed, check_whole_number, whole
from ..data import ObservedMatrix, PositiveUnlabelled
from ..errors import InputError
from .negatives import with_negatives


@dataclass(frozen=True)
class NegativeSets:
    """Several independent sets of negatives; the scores of the models fitted to them are averaged.

    :param sets: how many.
    :param ratio: as in :func:`with_negatives`.
    :param within_rows: as in :func:`with_negatives`.
    """

    sets: int = 1
    ratio: float = 1.0
    within_rows: bool = False

    def __post_init__(self) -> None:
        check_whole_number(self.sets, "negatives: number of sets")
        check_positive(self.ratio, "negatives: ratio")
        check_flag(self.within_rows, "negatives: within_rows")

    def draw(self, links: Any, seed: int, stream: int) -> list[ObservedMatrix]:
        """The sets for ``links``; others for each ``seed`` and each ``stream``."""
        seed, stream = check_seed(seed), check_seed(stream, "stream")
        seeds = np.random.SeedSequence([seed, stream]).generate_state(self.sets)
        options: dict[str, Any] = {"ratio": self.ratio, "within_rows": self.within_rows}
        return [with_negatives(links, seed=int(one), **options) for one in seeds]


def check_negatives(negatives: Any, data: Any) -> NegativeSets | None:
    """From a number of sets or from ``NegativeSets``; only links need negatives."""
    if negatives is None:
        return None
    found = NegativeSets(negatives) if whole(negatives) is not None else negatives
    if not isinstance(found, NegativeSets):
        raise InputError(f"negatives: expected a number of sets or NegativeSets, got {type(negatives).__name__}")
    if not isinstance(data, PositiveUnlabelled):
        raise InputError(f"negatives: expected links (PositiveUnlabelled) as data, got {type(data).__name__}")
    return found
