r"""The search for thresholds that all projections onto ordered sets share.

A threshold b balances what it lifts against what it lowers,

.. math:: g(b) = \sum_{upper} w (b - v)_+ - \sum_{lower} w (v - b)_+ = 0,

with g piecewise linear and nondecreasing. :func:`bracketed_newton` finds the roots of many such functions at once. It
is exact up to rounding: there is no tolerance. :class:`ThresholdSearch` applies it to lists of any length,
:class:`WholeListRankingLoss` to dense rows. All roots are in double precision, whatever the scores are.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import InputError
from ..tensor_checks import refuse_where
from .lists import SEGMENT, RankingLists, Side, check_targets, segments
from .losses import CHUNK_CELLS, LossValue, Retargeting, WholeListLoss, long_dot

PATIENCE = 4  # passes in which a bracket must have halved, or it is halved by force
MAX_LENGTH_RATIO = 1.5  # of the longest to the shortest row of a padded group

Evaluate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def bracketed_newton(
    evaluate: Evaluate, low: Tensor, high: Tensor, start: Tensor | None = None, precision: torch.dtype = torch.float64
) -> Tensor:
    """(K,) roots of K piecewise linear, nondecreasing functions, by Newton's method inside brackets.

    A Newton step that stays on the linear piece it starts from lands on the root. Plain Newton can go round in circles
    between two breakpoints, so a bracket is kept, and halved when a step leaves it or when steps make slow progress.

    :param evaluate: from points (K,) and which of them are unsettled (K,), the values (K,) and the slopes in two parts,
        (K,) each: that of terms which set in as the point grows, and that of terms which end. Two points at which both
        parts agree are on the same linear piece.
    :param low: (K,) where the functions are not positive.
    :param high: (K,) where they are not negative; where it is not above ``low`` it is returned as it is.
    :param start: (K,) where to begin; the middle of the bracket when left out.
    :param precision: of the points that are evaluated. The last correction is in double precision all the same.
    """
    active = low < high
    at = low + (high - low) / 2 if start is None else torch.minimum(torch.maximum(start, low), high)
    at = torch.where(active, at.to(precision).double(), high)
    rise_before = fall_before = torch.full_like(at, -1.0)
    by_newton = torch.zeros_like(active)  # whether ``at`` is the root of the piece one pass ago
    width, passes = high - low, 0
    while bool(active.any()):
        value, rise, fall = evaluate(at, active)
        low = torch.where(active & (value < 0), at, low)
        high = torch.where(active & (value > 0), at, high)
        step = at - value / (rise + fall)
        inside = (low <= step) & (step <= high)
        middle = (low + (high - low) / 2).to(precision).double()
        settled = by_newton & (rise == rise_before) & (fall == fall_before)
        settled |= ~((value < 0) | (value > 0)) | (step == at)
        settled |= (middle <= low) | (middle >= high)  # no number is left in between
        at = torch.where(active & settled & inside, step, at)
        active = active & ~settled
        passes += 1
        if passes % PATIENCE == 0:
            inside &= high - low <= width / 2
            width = high - low
        at = torch.where(active, torch.where(inside, step, middle).to(precision).double(), at)
        by_newton, rise_before, fall_before = inside, rise, fall
    return at


@dataclass(frozen=True)
class PaddedGroup:
    """Thresholds with about as many entries on one side, as the rows of a small matrix.

    Rows are filled up with infinite scores that no threshold can reach. So a pass is a few elementwise operations and
    sums along rows: nothing is sorted or gathered, and a group stays in the cache.
    """

    ids: Tensor  # (R,) the threshold of each row
    entry: Tensor  # (R W,) the entry at each position, row by row
    upper: bool  # whether the entries have to stay above
    shift: Tensor | float | None  # (R W,) or a number, to be taken off the scores; None for 0
    weight: Tensor | None  # (R W,), or None for 1

    def scores(self, padded: Tensor) -> GroupScores:
        """The scores of one call, from ``padded`` (T + 2,)."""
        value = padded.index_select(0, self.entry)
        if self.shift is not None:
            value.sub_(self.shift)
        shape = (self.ids.numel(), -1)
        weight = None if self.weight is None else self.weight.view(shape)
        return GroupScores(self.ids, value.view(shape), weight, self.upper)


def padded_groups(side: Side, pad: int, size: int) -> list[tuple[Tensor, Tensor]]:
    """Thresholds (R,) and entries (R W,) of groups that hold every entry of a side once; ``pad`` fills up rows.

    A group of several thresholds has up to ``size`` entries; on other devices than a CPU there is no limit.
    """
    lengths, by_length = torch.sort(side.start.diff())  # (K,): few, unlike the entries
    sizes = lengths.tolist()
    limit = size if side.entry.device.type == "cpu" else max(int(side.entry.numel()), 1)
    groups, first = [], bisect.bisect_right(sizes, 0)  # thresholds without an entry are in no group
    while first < len(sizes):
        last = bisect.bisect_right(sizes, int(MAX_LENGTH_RATIO * sizes[first]) + 1)
        last = first + max(1, min(last - first, limit // sizes[last - 1]))
        ids, length = by_length[first:last], lengths[first:last, None]
        index = torch.arange(sizes[last - 1], device=length.device).expand(last - first, -1)  # (R, W)
        is_padding = (index >= length).reshape(-1)
        index = (index + side.start[ids, None]).clamp_(max=side.entry.numel() - 1).reshape(-1)
        groups.append((ids, side.entry.index_select(0, index).masked_fill_(is_padding, pad)))
        first = last
    return groups


@dataclass(frozen=True)
class GroupScores:
    """Some rows of a padded group, with the scores of one call."""

    ids: Tensor  # (R,) the threshold of each row
    value: Tensor  # (R, W) scores; infinite where there is no entry
    weight: Tensor | None  # (R, W), or None for 1
    upper: bool  # whether the entries have to stay above

    def accumulate(self, at: Tensor, force: Tensor, mass: Tensor) -> None:
        """Sum of w (distance to the threshold) and of w over the entries that ``at`` (K,) moves, into (K,) and (K,)."""
        threshold = at.index_select(0, self.ids).unsqueeze(1)
        moved = (threshold - self.value if self.upper else self.value - threshold).relu_()  # (R, W)
        if self.weight is None:
            force.index_copy_(0, self.ids, moved.sum(1))
            mass.index_copy_(0, self.ids, moved.sign_().sum(1))
        else:
            force.index_copy_(0, self.ids, (moved * self.weight).sum(1))
            mass.index_copy_(0, self.ids, moved.sign_().mul_(self.weight).sum(1))

    def only(self, chosen: Tensor) -> GroupScores | None:
        """The rows of the thresholds that are ``chosen`` (K,); None when there are none."""
        keep = chosen.index_select(0, self.ids).nonzero().squeeze(1)
        if keep.numel() == 0 or keep.numel() == self.ids.numel():
            return self if keep.numel() else None
        weight = None if self.weight is None else self.weight.index_select(0, keep)
        return GroupScores(self.ids.index_select(0, keep), self.value.index_select(0, keep), weight, self.upper)


class _Balance:
    """The functions g of all thresholds, for :func:`bracketed_newton`; settled thresholds drop out of later passes.

    :param sizes: (K,) how many entries each threshold has.
    :param pool: (K,) which of the G unknowns each threshold is; None when they are the same.
    """

    def __init__(self, groups: list[GroupScores], sizes: Tensor, pool: Tensor | None) -> None:
        self.groups, self.sizes, self.pool, self.entries = groups, sizes, pool, int(sizes.sum())
        self.sums = [sizes.new_zeros(sizes.numel(), dtype=torch.float64) for _ in range(4)]  # (K,) each

    def __call__(self, at: Tensor, active: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """G values, and their slopes by the upper and by the lower entries, at ``at`` (G,)."""
        pool = self.pool
        chosen = active if pool is None else active[pool]
        left = int((self.sizes * chosen).sum())
        if 2 * left < self.entries:  # half of the work is done: continue with the rest
            self.groups = [kept for group in self.groups if (kept := group.only(chosen)) is not None]
            self.entries = left
        lift, lift_mass, drop, drop_mass = self.sums
        for group in self.groups:
            sums = (lift, lift_mass) if group.upper else (drop, drop_mass)
            group.accumulate(at if pool is None else at[pool], *sums)
        if pool is None:
            return lift - drop, lift_mass.clone(), drop_mass.clone()
        up, up_mass, down, down_mass = (torch.zeros_like(at).index_add_(0, pool, sums) for sums in self.sums)
        return up - down, up_mass, down_mass


@dataclass(frozen=True)
class Thresholds:
    """The result of a search."""

    value: Tensor  # (K,) ascending within a list
    moves: Tensor  # (K,) whether any entry is on the wrong side of it
    pool: Tensor  # (K,) thresholds with the same number were pooled, and have the same value


class ThresholdSearch:
    """Finds all thresholds of some lists at once, again and again, each time starting where the last one ended.

    :param shift: (T,) margins to take off the scores before comparing, or a number for the upper side, or None.
    :param weight: (T,) float64, or None for 1.
    :param group_size: entries of a padded group, see :func:`padded_groups`.
    """

    def __init__(
        self, lists: RankingLists, shift: Tensor | float | None, weight: Tensor | None, group_size: int = SEGMENT
    ) -> None:
        self.lists, length = lists, len(lists)
        self._last: Tensor | None = None
        if weight is not None:  # divided by the largest of their list, which changes no threshold and prevents overflow
            top = weight.new_zeros(lists.num_lists).scatter_reduce_(0, lists.list_of, weight, "amax")
            weight = (weight / top[lists.list_of]).clamp_(min=torch.finfo(weight.dtype).tiny)
            weight = torch.cat([weight, weight.new_zeros(2)])
        each = torch.cat([shift, shift.new_zeros(2)]) if isinstance(shift, Tensor) else None
        self._groups = []
        for side, upper, pad in ((lists.upper, True, length), (lists.lower, False, length + 1)):
            for ids, entry in padded_groups(side, pad, group_size):
                own_shift = (shift if upper else None) if each is None else each.index_select(0, entry)
                own_weight = None if weight is None else weight.index_select(0, entry)
                self._groups.append(PaddedGroup(ids, entry, upper, own_shift, own_weight))
        self._sizes = lists.upper.start.diff() + lists.lower.start.diff()  # (K,) entries at each threshold

    def reset_warm_start(self) -> None:
        """Start the next search cold."""
        self._last = None

    def __call__(self, scores: Tensor) -> Thresholds:
        """All thresholds for ``scores`` (T,)."""
        padded = self._padded(scores)
        groups = [group.scores(padded) for group in self._groups]
        low = scores.new_full((self.lists.num_thresholds,), torch.inf, dtype=torch.float64)
        high = -low  # (K,), (K,): the root lies between where low < high
        for group in groups:  # the lowest of the upper entries, the highest of the lower ones
            extreme, bound = (group.value.amin(1), low) if group.upper else (group.value.amax(1), high)
            bound.index_copy_(0, group.ids, extreme)
        if bool((low == -torch.inf).any() | (high == torch.inf).any()):
            raise InputError(
                "scores: expected numbers that stay finite when the margin is taken off, got too large ones"
            )
        last, scale = self._last, self._scale(low, high)
        if scale is not None:
            groups = [replace(group, value=group.value * scale[group.ids].unsqueeze(1)) for group in groups]
            low, high, last = low * scale, high * scale, None if last is None else last * scale
        thresholds = self._search(groups, low, high, last)
        if scale is not None:
            thresholds = replace(thresholds, value=thresholds.value / scale)
        self._last = thresholds.value
        return thresholds

    def _padded(self, scores: Tensor) -> Tensor:
        """(T + 2,) scores in double precision, and two that are out of reach of any threshold."""
        padded = torch.empty(scores.numel() + 2, dtype=torch.float64, device=scores.device)
        total = 0.0
        for segment in segments(scores):
            padded[segment] = scores[segment]
            total += float(padded[segment].sum())
        if not abs(total) < float("inf"):  # so one of them may be infinite or not a number; or the sum overflows
            refuse_where(~torch.isfinite(scores), scores, "scores", "a finite number")
        padded[-2], padded[-1] = torch.inf, -torch.inf
        return padded

    def _scale(self, low: Tensor, high: Tensor) -> Tensor | None:
        """(K,) powers of two that keep sums over huge scores finite; None when there are none, the usual case."""
        size = torch.maximum(low.abs().nan_to_num(0, posinf=0), high.abs().nan_to_num(0, posinf=0))
        limit = torch.finfo(size.dtype).max / (8.0 * (len(self.lists) + 1))
        if size.numel() == 0 or float(size.max()) < limit:
            return None
        top = size.new_zeros(self.lists.num_lists).scatter_reduce_(0, self.lists.threshold_list, size, "amax")
        return torch.where(top < limit, 1.0, 2.0**-70)[self.lists.threshold_list].to(size.dtype)

    def _search(self, groups: list[GroupScores], low: Tensor, high: Tensor, last: Tensor | None) -> Thresholds:
        """Thresholds in order within each list, by pooling adjacent violators.

        Each is the minimiser of a convex function; two neighbours that come out of order have the same value.
        """
        root = bracketed_newton(_Balance(groups, self._sizes, None), low, high, last)
        moves = low < high
        pool = torch.arange(root.numel(), device=root.device)  # (K,) the pool of each threshold
        same_list = self.lists.threshold_list[1:] == self.lists.threshold_list[:-1]  # (K - 1,)
        if not bool(same_list.any()):  # two levels: nothing to keep in order
            return Thresholds(root, moves, pool)
        while True:
            value = root[pool]
            joined = same_list & (value[:-1] >= value[1:])  # equal ones share their entries' fate as well
            opens = torch.ones_like(pool, dtype=torch.bool)
            opens[1:] = ~joined
            pooled = opens.cumsum(0) - 1
            if int(pooled[-1]) == int(pool[-1]):
                return Thresholds(value, moves[pool], pool)
            count = int(pooled[-1]) + 1
            pool_low = low.new_full((count,), torch.inf).scatter_reduce_(0, pooled, low, "amin")
            pool_high = high.new_full((count,), -torch.inf).scatter_reduce_(0, pooled, high, "amax")
            pool, moves = pooled, pool_low < pool_high
            root = bracketed_newton(_Balance(groups, self._sizes, pool), pool_low, pool_high)


class WholeListRankingLoss(WholeListLoss):
    r"""Equation (9) with the order cone and margin d over whole lists, by the identity (10).

    .. math:: f(\psi) = \sum_m \min_b \tfrac12 \sum_{pos} (b + d - \psi)_+^2 + \tfrac{w_0}{2} \sum_{rest} (\psi - b)_+^2

    The search for the threshold b of each row starts from the last call's.

    :param num_cols: N.
    :param margin: d.
    """

    def __init__(
        self, positions: Tensor, num_cols: int, weight: float, margin: float, offset: Tensor | None = None
    ) -> None:
        super().__init__(positions, weight, offset)
        self.num_cols, self.margin = num_cols, margin
        self.row_of = positions // num_cols  # (P,) list of each positive
        self._thresholds: Tensor | None = None

    def __call__(self, psi: Tensor) -> LossValue:
        """At ``psi`` (T,)."""
        total = psi if self.offset is None else psi + self.offset
        scores = total.view(-1, self.num_cols)  # (A, N)
        gradient = torch.empty_like(scores)
        thresholds = torch.empty(len(scores), dtype=torch.float64, device=psi.device)
        rows = max(1, CHUNK_CELLS // self.num_cols)
        starts = [0, *torch.bincount(self.row_of, minlength=len(scores)).cumsum(0).tolist()]
        square, positive_mass = 0.0, 0.0
        for first in range(0, len(scores), rows):
            last = min(first + rows, len(scores))
            start, stop = starts[first], starts[last]
            list_of = self.row_of[start:stop] - first
            col_of = self.positions[start:stop] % self.num_cols
            block, out = scores[first:last], gradient[first:last]
            positives = block[list_of, col_of]
            warm = None if self._thresholds is None else self._thresholds[first:last]
            thresholds[first:last] = self._search(block, list_of, col_of, positives, warm, out)
            b = thresholds[first:last].to(block.dtype)
            torch.sub(block, b.unsqueeze(1), out=out).clamp_min_(0)
            out[list_of, col_of] = 0
            short = (b[list_of] + self.margin - positives).clamp_min(0)
            square += self.weight * float(out.square().sum(1).double().sum()) + float(short.double().square().sum())
            positive_mass += float(short.double().sum())
            out.mul_(self.weight)
            out[list_of, col_of] = -short
        self._thresholds = thresholds
        # the gradient of each row sums to 0, so <theta, r> is the margin times what pulls the positives up
        return self._value(square, gradient.view(-1), -self.margin * positive_mass)

    def _search(
        self, block: Tensor, list_of: Tensor, col_of: Tensor, positives: Tensor, warm: Tensor | None, above: Tensor
    ) -> Tensor:
        """(a,) thresholds of a chunk of rows: roots b of sum_pos (b + d - psi)_+ = w0 sum_rest (psi - b)_+.

        :param block: (a, N) scores. Thresholds are rounded to their precision to be compared with them.
        :param list_of: (p,) row of each positive in the chunk; ``col_of`` its column, ``positives`` its score.
        :param above: (a, N) scratch.
        """
        limits = positives.double() - self.margin  # (p,) the threshold at which a positive begins to be lifted
        zeros = limits.new_zeros(len(block))

        def evaluate(b: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            torch.sub(block, b.to(block.dtype).unsqueeze(1), out=above).clamp_min_(0)
            above[list_of, col_of] = 0
            mass, count = above.sum(1).double(), torch.count_nonzero(above, dim=1).double()
            short = b[list_of] - limits
            pull = zeros.index_add(0, list_of, short.clamp_min(0))
            pulled = zeros.index_add(0, list_of, (short > 0).double())
            return pull - self.weight * mass, pulled, self.weight * count

        largest = block.amax(1).double()
        low = torch.full_like(zeros, torch.inf).scatter_reduce(0, list_of, limits, "amin")
        low = torch.where(torch.isinf(low), largest, low)  # a list without a positive has nothing to say
        high = torch.maximum(low, largest)
        return bracketed_newton(evaluate, low, high, warm, block.dtype)


class WholeListRetargetedLoss(WholeListLoss):
    """Equation (9) over whole lists for any target set, by its own projection, some rows at a time.

    The lists are spelled out for that, with a label, a task and a weight for each cell. They are kept up to
    ``keep_cells`` cells, and made anew in every call beyond that.

    :param num_cols: N.
    :param num_cells: A N.
    :param retargeting_of: from positive (C,) bool, task (C,) and weight (C,), or None where all are 1, the map
        psi (C,) -> r (C,) of equation (8).
    """

    def __init__(
        self,
        positions: Tensor,
        num_cols: int,
        num_cells: int,
        weight: float,
        retargeting_of: Callable[[Tensor, Tensor, Tensor | None], Retargeting],
        offset: Tensor | None = None,
        keep_cells: int = 1 << 23,
    ) -> None:
        super().__init__(positions, weight, offset)
        self.num_cols, self.num_cells, self.retargeting_of = num_cols, num_cells, retargeting_of
        self._kept: dict[int, Retargeting] | None = {} if num_cells <= keep_cells else None

    def _chunks(self) -> Iterator[tuple[slice, Tensor | None, Retargeting]]:
        """Cells of some rows, their weights (C,), and their retargeting."""
        device = self.positions.device
        size = max(1, CHUNK_CELLS // self.num_cols) * self.num_cols
        for first in range(0, self.num_cells, size):
            last = min(first + size, self.num_cells)
            start, stop = torch.searchsorted(self.positions, torch.tensor([first, last], device=device)).tolist()
            positive = torch.zeros(last - first, dtype=torch.bool, device=device)
            positive[self.positions[start:stop] - first] = True
            weight = None
            if self.weight != 1:
                weight = torch.ones(last - first, dtype=torch.float64, device=device)
                weight[~positive] = self.weight  # torch.where of two numbers would round it to single precision
            retarget = self._kept.get(first) if self._kept is not None else None
            if retarget is None:
                task = torch.arange(first, last, device=device) // self.num_cols
                retarget = self.retargeting_of(positive, task, weight)
                if self._kept is not None:
                    self._kept[first] = retarget
            yield slice(first, last), weight, retarget

    def __call__(self, psi: Tensor) -> LossValue:
        """At ``psi`` (T,)."""
        gradient = torch.empty_like(psi)
        square, linear = 0.0, 0.0
        for cells, weight, retarget in self._chunks():
            part = psi[cells] if self.offset is None else psi[cells] + self.offset[cells]
            target = check_targets(retarget(part.detach()), part)
            off = part - target
            gradient[cells] = pull = off if weight is None else weight.to(off) * off
            square += long_dot(pull, off)
            linear += long_dot(pull, target)
        return self._value(square, gradient, linear)
