"""TaskItems: a list of items (columns) for each task (row)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..data.positive_pairs import positive_pairs
from ..errors import InputError


class TaskItems:
    """Distinct items of each task, in compressed form.

    :param given: an ``ObservedMatrix``, whose entries above 0 count, or anything else with ``rows`` and ``cols``, or
        a pair ``(rows, cols)`` of vectors (P,); ``None`` for no items.
    :param shape: (M, N).
    :param name: for messages.
    """

    def __init__(self, given: Any, shape: tuple[int, int], name: str) -> None:
        rows, self.cols = positive_pairs(given, shape, name)
        self.cells = rows * shape[1] + self.cols  # (P,) row-major numbers
        self.counts = torch.bincount(rows, minlength=shape[0])  # (M,)
        self._begin = self.counts.cumsum(0) - self.counts  # (M,)

    def of(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """(Q,) place of the task within ``tasks`` (R,), and (Q,) item, of all items of these tasks."""
        counts = self.counts[tasks]
        place = torch.repeat_interleave(torch.arange(len(tasks)), counts)  # (Q,)
        shift = self._begin[tasks] - (counts.cumsum(0) - counts)  # (R,)
        return place, self.cols[torch.arange(len(place)) + shift[place]]


def check_disjoint(positives: TaskItems, exclude: TaskItems, num_cols: int) -> None:
    """A held-out positive that is no candidate could not be found, so it may not be excluded."""
    if len(exclude.cells) == 0:
        return
    place = torch.searchsorted(exclude.cells, positives.cells).clamp(max=len(exclude.cells) - 1)
    both = positives.cells[exclude.cells[place] == positives.cells]
    if len(both):
        pair = (int(both[0]) // num_cols, int(both[0]) % num_cols)
        raise InputError(
            f"exclude: expected pairs that are not held-out positives, got {pair} in both "
            f"({len(both)} such pairs of {len(positives.cells)} positives)"
        )
