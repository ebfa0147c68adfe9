"""Metrics of a fold, to be saved and read again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from ..metrics import RankingScores, ranking_scores
from ..selection import Split
from .averaged import RowScores
from .unit import Outcome, Unit


def held_out_rows(split: Split) -> torch.Tensor:
    """(R,) ascending: rows with a held-out link."""
    return split.held_out.rows.unique()


def score_outcome(unit: Unit, fits: Iterable[Outcome], split: Split, k: int) -> Outcome:
    """The metrics of the average scores over sets of negatives, and the evidence of their fits.

    :param fits: one at a time, always in the same order.
    """
    rows, shape = held_out_rows(split), split.held_out.shape
    total = np.zeros((len(rows), shape[1]))
    evidence: list[dict[str, Any]] = []
    for fit in fits:
        total += fit.arrays["scores"]
        evidence.append(fit.info)
    averaged = RowScores(rows, torch.from_numpy(total / len(evidence)), shape)
    found = ranking_scores(averaged, split.held_out, exclude=split.train, k=k, rows=rows)
    arrays = {one.name: getattr(found, one.name).numpy() for one in fields(found)}
    return Outcome(unit, arrays, {"fits": evidence})


def ranking_of(outcome: Outcome) -> RankingScores:
    """The metrics as they were."""
    return RankingScores(**{one.name: torch.from_numpy(outcome.arrays[one.name]) for one in fields(RankingScores)})
