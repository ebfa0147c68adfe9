"""Scores averaged over rankers, and scores of some rows that are already there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..metrics import Ranker
from ..selection import AveragedRanker

BLOCK_CELLS = 2**23  # scores computed at a time


def average(rankers: Sequence[Ranker]) -> Ranker:
    """The ranker itself if there is only one."""
    return rankers[0] if len(rankers) == 1 else AveragedRanker(rankers)


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


@torch.no_grad()
def scores_of(ranker: Ranker, rows: Tensor) -> Tensor:
    """(R, N) in single precision, computed in blocks."""
    size = max(1, BLOCK_CELLS // ranker.shape[1])
    return torch.cat([ranker.scores(block).detach().float().cpu() for block in rows.split(size)])
