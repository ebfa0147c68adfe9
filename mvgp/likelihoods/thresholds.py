r"""The search for thresholds that all projections onto ordered sets share.

A threshold b balances what it lifts against what it lowers,

.. math:: g(b) = \sum_{upper} w (b - v)_+ - \sum_{lower} w (v - b)_+ = 0,

with g piecewise linear and never falling. A Newton step is the weighted mean of the entries that b moves; it lands
on the root exactly as soon as two passes in a row move the same entries, and that is where the search ends: no
tolerance. Plain Newton can go round in circles between two breakpoints, so a bracket is kept, and halved when a
step leaves it or when steps make slow progress. Thresholds that are settled drop out of the passes that follow.
All is done in double precision, whatever the scores are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..checks import refuse_where
from ..errors import InputError
from .lists import RankingLists
from .runs import pieces
from .shelves import Rows, build_shelves

PATIENCE = 4  # passes in which a bracket must have halved, or it is halved by force


@dataclass(frozen=True)
class Thresholds:
    """What a search found.

    :param value: (K,) ascending within a list.
    :param moves: (K,) whether any entry is on the wrong side of it.
    :param pool: (K,) thresholds with the same number were pooled, and have the same value.
    """

    value: Tensor
    moves: Tensor
    pool: Tensor


class ThresholdSearch:
    """Finds all thresholds of some lists at once, again and again, each time starting where the last one ended.

    :param lists: the lists.
    :param shift: (T,) margins to take off the scores before comparing, or a number for the upper side, or None.
    :param weight: (T,) float64, or None for 1.
    """

    def __init__(self, lists: RankingLists, shift: Tensor | float | None, weight: Tensor | None) -> None:
        self.lists, self._last = lists, None  # type: tuple[RankingLists, Tensor | None]
        length = len(lists)
        weight = None if weight is None else torch.cat([self._tame(weight), weight.new_zeros(2)])
        common = torch.cat([shift, shift.new_zeros(2)]) if isinstance(shift, Tensor) else None
        self._shelves = []  # (shelf, whether upper, what is taken off its scores, weights)
        for side, upper in ((lists.upper, True), (lists.lower, False)):
            for shelf in build_shelves(side, pad=length if upper else length + 1):
                taken = (shift if upper else None) if common is None else common.index_select(0, shelf.entry)
                self._shelves.append(
                    (shelf, upper, taken, None if weight is None else weight.index_select(0, shelf.entry))
                )
        self._sizes = lists.upper.start.diff() + lists.lower.start.diff()  # (K,) entries at each threshold

    def _tame(self, weight: Tensor) -> Tensor:
        """(T,) weights divided by the largest of their list, which changes no threshold and prevents overflow."""
        top = weight.new_zeros(self.lists.num_lists).scatter_reduce_(0, self.lists.list_of, weight, "amax")
        return (weight / top[self.lists.list_of]).clamp_(min=torch.finfo(weight.dtype).tiny)

    def forget(self) -> None:
        """Start the next search cold."""
        self._last = None

    def __call__(self, scores: Tensor) -> Thresholds:
        """All thresholds for ``scores`` (T,)."""
        rows = self._rows(scores)
        low = scores.new_full((self.lists.num_thresholds,), torch.inf, dtype=torch.float64)
        high = -low  # (K,), (K,): the root lies between where low < high
        for some in rows:
            some.put_extreme(low if some.upper else high)
        if bool((low == -torch.inf).any() | (high == torch.inf).any()):
            raise InputError(
                "scores: expected numbers that stay finite when the margin is taken off, got too large ones"
            )
        last, scale = self._last, self._scale(low, high)
        if scale is not None:
            rows = [some.scaled(scale) for some in rows]
            low, high, last = low * scale, high * scale, None if last is None else last * scale
        found = _pool_and_search(self.lists, rows, self._sizes, low, high, last)
        if scale is not None:
            found = replace(found, value=found.value / scale)
        self._last = found.value
        return found

    def _rows(self, scores: Tensor) -> list[Rows]:
        """The scores (T,) on their shelves, in double precision and less their margins."""
        padded = torch.empty(scores.numel() + 2, dtype=torch.float64, device=scores.device)
        total = 0.0
        for piece in pieces(scores):
            padded[piece] = scores[piece]
            total += float(padded[piece].sum())
        if not abs(total) < float("inf"):  # so one of them may be infinite or not a number; or the sum overflows
            refuse_where(~torch.isfinite(scores), scores, "scores", "a finite number")
        padded[-2], padded[-1] = torch.inf, -torch.inf  # out of reach of any threshold
        found = []
        for shelf, upper, taken, weight in self._shelves:
            value = padded.index_select(0, shelf.entry)
            if taken is not None:
                value.sub_(taken)
            shape = (shelf.ids.numel(), -1)
            found.append(Rows(shelf.ids, value.view(shape), None if weight is None else weight.view(shape), upper))
        return found

    def _scale(self, low: Tensor, high: Tensor) -> Tensor | None:
        """(K,) powers of two that keep sums over huge scores finite; None when there are none, the usual case."""
        size = torch.maximum(low.abs().nan_to_num(0, posinf=0), high.abs().nan_to_num(0, posinf=0))
        limit = torch.finfo(size.dtype).max / (8.0 * (len(self.lists) + 1))
        if size.numel() == 0 or float(size.max()) < limit:
            return None
        top = size.new_zeros(self.lists.num_lists).scatter_reduce_(0, self.lists.threshold_list, size, "amax")
        return torch.where(top < limit, 1.0, 2.0**-70)[self.lists.threshold_list].to(size.dtype)


def _pool_and_search(
    lists: RankingLists, rows: list[Rows], sizes: Tensor, low: Tensor, high: Tensor, last: Tensor | None
) -> Thresholds:
    """Thresholds in order within each list: neighbours that come out the wrong way round are pooled and solved as one.

    Pooling adjacent violators, for thresholds instead of values: each is the minimiser of a convex function, and two
    neighbours whose minimisers are out of order have the same value in the solution.
    """
    found, moves = _search(rows, sizes, low, high, last, None)
    group = torch.arange(found.numel(), device=found.device)  # (K,) the pool of each threshold
    same_list = lists.threshold_list[1:] == lists.threshold_list[:-1]  # (K - 1,)
    if not bool(same_list.any()):  # two levels: nothing to keep in order
        return Thresholds(found, moves, group)
    while True:
        value = found[group]
        joined = same_list & (value[:-1] >= value[1:])  # equal ones share their entries' fate as well
        opens = torch.ones_like(group, dtype=torch.bool)
        opens[1:] = ~joined
        pooled = opens.cumsum(0) - 1
        if int(pooled[-1]) == int(group[-1]):
            return Thresholds(value, moves[group], group)
        count = int(pooled[-1]) + 1
        pool_low = low.new_full((count,), torch.inf).scatter_reduce_(0, pooled, low, "amin")
        pool_high = high.new_full((count,), -torch.inf).scatter_reduce_(0, pooled, high, "amax")
        group = pooled
        found, moves = _search(rows, sizes, pool_low, pool_high, None, group)


def _search(
    rows: list[Rows], sizes: Tensor, low: Tensor, high: Tensor, last: Tensor | None, group: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The root of every g within (``low``, ``high``) (G,), and whether there is one: where low >= high nothing moves.

    :param rows: all entries at all thresholds.
    :param sizes: (K,) how many entries each threshold has.
    :param last: (G,) where to start; used where it lies in the bracket.
    :param group: (K,) which of the G unknowns each threshold is; None when they are the same.
    """
    moves = low < high  # (G,)
    active = moves.clone()  # (G,) not settled yet
    at = torch.where(active, low + (high - low) / 2, high)  # high is a minimiser where nothing moves
    if last is not None:
        at = torch.where(active & (low < last) & (last < high), last, at)
    lift, lift_mass, drop, drop_mass = (at.new_zeros(sizes.numel()) for _ in range(4))  # (K,) each
    lift_before = drop_before = at.new_full(at.shape, -1.0)  # (G,) masses one pass ago
    by_newton = torch.zeros_like(active)  # (G,) whether ``at`` is the root of the piece one pass ago
    width, passes, entries = high - low, 0, int(sizes.sum())

    while bool(active.any()):
        spread = active if group is None else active[group]
        left = int((sizes * spread).sum())
        if 2 * left < entries:  # half of the work is done: go on with the rest
            rows, entries = [kept for some in rows if (kept := some.only(spread)) is not None], left
        at_each = at if group is None else at[group]
        for some in rows:
            some.put_sums(at_each, *((lift, lift_mass) if some.upper else (drop, drop_mass)))
        up, up_mass, down, down_mass = (
            sums if group is None else torch.zeros_like(at).index_add_(0, group, sums)
            for sums in (lift, lift_mass, drop, drop_mass)
        )
        pull = up - down  # g(at)
        low = torch.where(active & (pull < 0), at, low)
        high = torch.where(active & (pull > 0), at, high)
        step = at - pull / (up_mass + down_mass)
        middle = low + (high - low) / 2
        inside = (low < step) & (step < high)
        settled = (by_newton & (up_mass == lift_before) & (down_mass == drop_before)) | (pull == 0) | (step == at)
        at = torch.where(active & settled & inside, step, at)  # the same piece again: only rounding is left
        passes += 1
        if passes % PATIENCE == 0:
            inside &= high - low <= width / 2
            width = high - low
        settled |= ~inside & ((middle <= low) | (middle >= high))  # no number between the two ends
        active &= ~settled
        at = torch.where(active, torch.where(inside, step, middle), at)
        by_newton, lift_before, drop_before = inside, up_mass.clone(), down_mass.clone()
    return at, moves
