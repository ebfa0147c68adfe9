"""Sums over the entries at each threshold: the only work on long vectors that the threshold search does.

No sort of scores. Thresholds with about as many entries share a *shelf*, a small matrix with a row for each, filled up
with infinite scores that no threshold can reach. So a pass is a few elementwise operations and sums along rows,
nothing is gathered and no sum runs over from one threshold into the next. A shelf stays in the cache.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import torch
from torch import Tensor

from .lists import Side
from .runs import RUN

WASTE = 1.5  # how many times longer than the shortest row of a shelf its longest may be


@dataclass(frozen=True)
class Shelf:
    """Where the entries of some thresholds are.

    :param ids: (R,) the threshold of each row.
    :param entry: (R W,) the entry at each place, row by row.
    """

    ids: Tensor
    entry: Tensor


def build_shelves(side: Side, pad: int) -> list[Shelf]:
    """Shelves that hold every entry of a side once; places left over hold the entry number ``pad``."""
    lengths, by_length = torch.sort(side.start.diff())  # (K,): few, unlike the entries
    sizes = lengths.tolist()
    most = RUN if side.entry.device.type == "cpu" else max(int(side.entry.numel()), 1)
    found, first = [], bisect.bisect_right(sizes, 0)  # thresholds without an entry are on no shelf
    while first < len(sizes):
        last = bisect.bisect_right(sizes, int(WASTE * sizes[first]) + 1)
        last = first + max(1, min(last - first, most // sizes[last - 1]))
        ids, own = by_length[first:last], lengths[first:last, None]
        place = torch.arange(sizes[last - 1], device=own.device).expand(last - first, -1)  # (R, W)
        left_over = (place >= own).reshape(-1)
        place = (place + side.start[ids, None]).clamp_(max=side.entry.numel() - 1).reshape(-1)
        found.append(Shelf(ids, side.entry.index_select(0, place).masked_fill_(left_over, pad)))
        first = last
    return found


@dataclass(frozen=True)
class Rows:
    """Some rows of a shelf, with the scores of one call.

    :param ids: (R,) the threshold of each row.
    :param value: (R, W) scores; infinite where there is no entry.
    :param weight: (R, W), or None for 1.
    :param upper: whether the entries have to stay above.
    """

    ids: Tensor
    value: Tensor
    weight: Tensor | None
    upper: bool

    def put_sums(self, at: Tensor, force: Tensor, mass: Tensor) -> None:
        """Sum of w (distance to the threshold) and of w over the entries that ``at`` (K,) moves, into (K,) and (K,)."""
        threshold = at.index_select(0, self.ids).unsqueeze(1)
        moved = (threshold - self.value if self.upper else self.value - threshold).relu_()  # (R, W)
        if self.weight is None:
            force.index_copy_(0, self.ids, moved.sum(1))
            mass.index_copy_(0, self.ids, moved.sign_().sum(1))
        else:
            force.index_copy_(0, self.ids, (moved * self.weight).sum(1))
            mass.index_copy_(0, self.ids, moved.sign_().mul_(self.weight).sum(1))

    def put_extreme(self, found: Tensor) -> None:
        """The lowest of the upper entries or the highest of the lower ones, into (K,)."""
        found.index_copy_(0, self.ids, self.value.amin(1) if self.upper else self.value.amax(1))

    def scaled(self, scale: Tensor) -> Rows:
        """Scores times ``scale`` (K,) of their threshold."""
        return Rows(self.ids, self.value * scale.index_select(0, self.ids).unsqueeze(1), self.weight, self.upper)

    def only(self, wanted: Tensor) -> Rows | None:
        """The rows of thresholds that ``wanted`` (K,) says; None when there are none."""
        keep = wanted.index_select(0, self.ids).nonzero().squeeze(1)
        if keep.numel() == 0 or keep.numel() == self.ids.numel():
            return self if keep.numel() else None
        weight = None if self.weight is None else self.weight.index_select(0, keep)
        return Rows(self.ids.index_select(0, keep), self.value.index_select(0, keep), weight, self.upper)
