"""Baseline: what every recipe of this package is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..data import PositiveUnlabelled
from ..metrics import Ranker


@runtime_checkable
class Baseline(Protocol):
    """A recipe without a prior. Its ``repr`` states the settings that matter; ``fit`` does not change it."""

    def fit(self, links: PositiveUnlabelled) -> Ranker:
        """The ranker given ``links``."""
        ...
