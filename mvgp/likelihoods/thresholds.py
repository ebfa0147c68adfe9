r"""The search for thresholds that all projections onto ordered sets share.

A threshold b balances what it lifts against what it lowers,

.. math:: g(b) = \sum_{upper} w (b - v)_+ - \sum_{lower} w (v - b)_+ = 0,

with g piecewise linear and never falling. A Newton step is the weighted mean of the entries that b moves; it lands
on the root exactly as soon as two passes in a row move the same entries, and that is where the search ends: no
tolerance. Plain Newton can go round in circles between two breakpoints, so a bracket is kept, and halved when a
step leaves it or when steps make slow progress. Thresholds that are settled drop out of the passes that follow.
All is done in double precision, whatever the scores are.

Sums over the entries at each threshold: the only work on long vectors that the threshold search does.

No sort of scores. Thresholds with about as many entries share a *shelf*, a small matrix with a row for each, filled up
with infinite scores that no threshold can reach. So a pass is a few elementwise operations and sums along rows,
nothing is gathered and no sum runs over from one threshold into the next. A shelf stays in the cache.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..checks import refuse_where
from ..errors import InputError
from .lists import RUN, RankingLists, Side, pieces

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
