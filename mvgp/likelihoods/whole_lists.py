"""Losses over whole lists: positives with weight 1, every other item of the row with weight w0.

Nothing is sampled. The scores are a dense block (A, N) of rows; it is gone through in chunks of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from .lists import check_targets
from .losses import LossValue, long_dot

CELLS = 1 << 20  # cells handled at a time


class _WholeList:
    """What the losses share: weight 1 at the positives, w0 elsewhere."""

    positions: Tensor  # (P,)
    weight: float

    @property
    def curvature(self) -> float:
        """See :class:`~mvgp.likelihoods.losses.Loss`."""
        return 1.0

    def bend(self, step: Tensor) -> float:
        """See :class:`~mvgp.likelihoods.losses.Loss`."""
        return _weighted_square(step, self.positions, self.weight)


class WholeListSquaredLoss(_WholeList):
    r""":math:`\tfrac12 \sum_{pos} (\psi - 1)^2 + \tfrac{w_0}{2} \sum_{rest} \psi^2`.

    :param positions: (P,) where the positives are among the A N cells.
    :param weight: w0.
    :param offset: (A N,) prior mean there, or None for 0.
    """

    def __init__(self, positions: Tensor, weight: float, offset: Tensor | None = None) -> None:
        self.positions, self.weight, self.offset = positions, weight, offset

    def __call__(self, psi: Tensor) -> LossValue:
        """See :class:`~mvgp.likelihoods.losses.Loss`."""
        total = psi if self.offset is None else psi + self.offset
        at = total[self.positions]
        gradient = self.weight * total
        gradient[self.positions] = at - 1
        square = _weighted_square(total, self.positions, self.weight) + float((at - 1).double().square().sum())
        square -= float(at.double().square().sum())
        if self.offset is None:
            linear = float((at - 1).double().sum())
        else:  # <theta, r> with the targets as psi sees them: 1 - offset and -offset
            linear = float((at - 1).double().sum()) - long_dot(gradient, self.offset)
        return LossValue(square / 2, gradient, linear, square)


class WholeListRankingLoss(_WholeList):
    r"""Equation (9) with the order cone and margin d over whole lists, by the identity (10).

    .. math:: f(\psi) = \sum_m \min_b \tfrac12 \sum_{pos} (b + d - \psi)_+^2 + \tfrac{w_0}{2} \sum_{rest} (\psi - b)_+^2

    The threshold b of each row is the root of a piecewise linear increasing function; Newton steps inside a
    bracket end on it exactly (up to rounding), and start from the last call's thresholds.

    :param positions: (P,) ascending, where the positives are among the A N cells.
    :param num_cols: N.
    :param weight: w0.
    :param margin: d.
    :param offset: (A N,) prior mean there, or None for 0.
    """

    def __init__(
        self, positions: Tensor, num_cols: int, weight: float, margin: float, offset: Tensor | None = None
    ) -> None:
        self.positions, self.num_cols, self.weight, self.margin, self.offset = (
            positions, num_cols, weight, margin, offset
        )  # fmt: skip
        self.row_of = positions // num_cols  # (P,) list of each positive
        self.num_rows = int(self.row_of.max()) + 1
        self.counts = torch.bincount(self.row_of, minlength=self.num_rows)  # (A,)
        self.starts = torch.cat([self.counts.new_zeros(1), self.counts.cumsum(0)]).tolist()
        self._thresholds: Tensor | None = None

    def __call__(self, psi: Tensor) -> LossValue:
        """See :class:`~mvgp.likelihoods.losses.Loss`."""
        total = psi if self.offset is None else psi + self.offset
        scores = total.view(-1, self.num_cols)  # (A, N)
        gradient = torch.empty_like(scores)
        thresholds = torch.empty(len(scores), dtype=torch.float64, device=psi.device)
        rows = max(1, CELLS // self.num_cols)
        square, positive_mass = 0.0, 0.0
        for first in range(0, len(scores), rows):
            last = min(first + rows, len(scores))
            start, stop = self.starts[first], self.starts[last]
            list_of = self.row_of[start:stop] - first
            col_of = self.positions[start:stop] % self.num_cols
            block = scores[first:last]
            positives = block[list_of, col_of]
            warm = None if self._thresholds is None else self._thresholds[first:last]
            b = self._search(block, list_of, col_of, positives, warm)
            thresholds[first:last] = b
            b = b.to(block.dtype)
            out = torch.sub(block, b.unsqueeze(1), out=gradient[first:last]).clamp_min_(0)
            out[list_of, col_of] = 0
            short = (b[list_of] + self.margin - positives).clamp_min(0)
            square += self.weight * float(out.square().sum(1).double().sum()) + float(short.double().square().sum())
            positive_mass += float(short.double().sum())
            out.mul_(self.weight)
            out[list_of, col_of] = -short
        self._thresholds = thresholds
        # the gradient of each row sums to 0, so <theta, r> is the margin times what pulls the positives up
        linear = -self.margin * positive_mass
        flat = gradient.view(-1)
        if self.offset is not None:
            linear -= long_dot(flat, self.offset)
        return LossValue(square / 2, flat, linear, square)

    def _search(self, block: Tensor, list_of: Tensor, col_of: Tensor, positives: Tensor, warm: Tensor | None) -> Tensor:
        """(a,) thresholds of a chunk of rows: roots b of sum_pos (b + d - psi)_+ = w0 sum_rest (psi - b)_+.

        Newton steps within a bracket, every fifth a bisection. A step that lands where the same entries are active
        as where it came from is exact, since the function is linear in between.

        :param block: (a, N) scores.
        :param list_of: (p,) row of each positive in the chunk.
        :param col_of: (p,) its column.
        :param positives: (p,) its score.
        """
        wanted = positives.double() - self.margin
        infinite = torch.full((len(block),), torch.inf, dtype=torch.float64, device=block.device)
        low = infinite.scatter_reduce(0, list_of, wanted, "amin")  # the root is not below the lowest wanted score
        high = torch.maximum(low, block.amax(1).double())
        b = (low + high) / 2 if warm is None else torch.minimum(torch.maximum(warm, low), high)
        before = torch.full_like(b, -1)
        by_newton = torch.zeros_like(b, dtype=torch.bool)
        done = torch.zeros_like(by_newton)
        above = torch.empty_like(block)
        for step in range(1000):
            b = b.to(block.dtype).double()  # a number that the scores can be compared with
            torch.sub(block, b.to(block.dtype).unsqueeze(1), out=above).clamp_min_(0)
            above[list_of, col_of] = 0
            mass, count = above.sum(1).double(), torch.count_nonzero(above, dim=1).double()
            short = b[list_of] - wanted
            pull = torch.zeros_like(b).index_add_(0, list_of, short.clamp_min(0))
            pulled = torch.zeros_like(b).index_add_(0, list_of, (short > 0).double())
            value, slope = pull - self.weight * mass, pulled + self.weight * count
            active = pulled * (self.num_cols + 1) + count
            newton = b - value / torch.where(slope > 0, slope, torch.ones_like(slope))
            settled = (by_newton & (active == before)) | (value == 0) | (slope == 0)
            low, high = torch.where(value < 0, b, low), torch.where(value > 0, b, high)
            middle = (low + high) / 2
            narrow = middle.to(block.dtype).double()
            done |= settled | (narrow <= low) | (narrow >= high)  # or no number is left in between
            # the last correction is kept in double precision
            final = torch.where(done & (newton >= low) & (newton <= high), newton, b)
            if bool(done.all()):
                return final
            before = active
            by_newton = (newton >= low) & (newton <= high) & (step % 5 != 4)
            b = torch.where(done, b, torch.where(by_newton, newton, middle))
        return final


RetargetingOf = Callable[[Tensor, Tensor, Tensor | None], Callable[[Tensor], Tensor]]


class WholeListRetargetedLoss(_WholeList):
    """Equation (9) over whole lists for any target set, by its own projection, some rows at a time.

    The lists are spelled out for that, with a label, a task and a weight for each cell. They are kept while they fit,
    and made anew in every call beyond that.

    :param positions: (P,) ascending, where the positives are among the A N cells.
    :param num_cols: N.
    :param num_cells: A N.
    :param weight: w0.
    :param retargeting_of: from positive (C,) bool, task (C,) and weight (C,), or None where all are 1, the map
        psi (C,) -> r (C,) of equation (8).
    :param offset: (A N,) prior mean there, or None for 0.
    :param keep_cells: up to how many cells the lists are kept.
    """

    def __init__(
        self,
        positions: Tensor,
        num_cols: int,
        num_cells: int,
        weight: float,
        retargeting_of: RetargetingOf,
        offset: Tensor | None = None,
        keep_cells: int = 1 << 23,
    ) -> None:
        self.positions, self.weight, self.offset = positions, weight, offset
        self.num_cols, self.num_cells, self.retargeting_of = num_cols, num_cells, retargeting_of
        self._kept: list[Callable[[Tensor], Tensor]] | None = [] if num_cells <= keep_cells else None

    def _pieces(self) -> Iterator[tuple[slice, Tensor | None, Callable[[Tensor], Tensor]]]:
        """Cells of some rows, their weights (C,), and their retargeting."""
        size = max(1, CELLS // self.num_cols) * self.num_cols
        for number, first in enumerate(range(0, self.num_cells, size)):
            last = min(first + size, self.num_cells)
            bounds = torch.tensor([first, last], device=self.positions.device)
            start, stop = torch.searchsorted(self.positions, bounds).tolist()
            positive = torch.zeros(last - first, dtype=torch.bool, device=self.positions.device)
            positive[self.positions[start:stop] - first] = True
            weight = None
            if self.weight != 1:
                weight = torch.ones(last - first, dtype=torch.float64, device=self.positions.device)
                weight[~positive] = self.weight  # torch.where of two numbers would round it to single precision
            if self._kept is not None and number < len(self._kept):
                retarget = self._kept[number]
            else:
                task = torch.arange(first, last, device=self.positions.device) // self.num_cols
                retarget = self.retargeting_of(positive, task, weight)
                if self._kept is not None:
                    self._kept.append(retarget)
            yield slice(first, last), weight, retarget

    def __call__(self, psi: Tensor) -> LossValue:
        """See :class:`~mvgp.likelihoods.losses.Loss`."""
        gradient = torch.empty_like(psi)
        square, linear = 0.0, 0.0
        for cells, weight, retarget in self._pieces():
            part = psi[cells] if self.offset is None else psi[cells] + self.offset[cells]
            target = check_targets(retarget(part.detach()), part)
            off = part - target
            pull = off if weight is None else weight.to(off) * off
            seen = target if self.offset is None else target - self.offset[cells]  # the targets as psi sees them
            square += long_dot(pull, off)
            linear += long_dot(pull, seen)
            gradient[cells] = pull
        return LossValue(square / 2, gradient, linear, square)


def _weighted_square(step: Tensor, positions: Tensor, weight: float) -> float:
    return weight * long_dot(step, step) + (1 - weight) * float(step[positions].double().square().sum())
