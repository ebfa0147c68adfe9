"""Losses over whole lists: positives with weight 1, every other item of the row with weight w0.

Nothing is sampled. The scores are a dense block (A, N) of rows; it is worked on in chunks of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from typing_extensions import override

from .lists import check_targets
from .losses import Loss, LossValue, long_dot
from .thresholds import bracketed_newton

CHUNK_CELLS = 1 << 20  # cells worked on at a time

Retargeting = Callable[[Tensor], Tensor]  # psi (C,) -> r (C,)
RetargetingOf = Callable[[Tensor, Tensor, Tensor | None], Retargeting]


class WholeListLoss(Loss):
    """What the losses over whole lists share: weight 1 at the positives, w0 elsewhere.

    :param positions: (P,) ascending, where the positives are among the A N cells.
    :param weight: w0.
    :param offset: (A N,) prior mean there, or None for 0.
    """

    def __init__(self, positions: Tensor, weight: float, offset: Tensor | None) -> None:
        self.positions, self.weight, self.offset = positions, weight, offset

    @property
    @override
    def curvature(self) -> float:
        return 1.0

    @override
    def quadratic_bound(self, step: Tensor) -> float:
        at_positives = float(step[self.positions].double().square().sum())
        return self.weight * long_dot(step, step) + (1 - self.weight) * at_positives

    def _value(self, square: float, gradient: Tensor, linear: float) -> LossValue:
        """The loss, with <theta, r> for the targets as psi sees them: less the prior mean."""
        if self.offset is not None:
            linear -= long_dot(gradient, self.offset)
        return LossValue(square / 2, gradient, linear, square)


class WholeListSquaredLoss(WholeListLoss):
    r""":math:`\tfrac12 \sum_{pos} (\psi - 1)^2 + \tfrac{w_0}{2} \sum_{rest} \psi^2`.

    :param positions: (P,) where the positives are among the A N cells.
    :param weight: w0.
    :param offset: (A N,) prior mean there, or None for 0.
    """

    def __init__(self, positions: Tensor, weight: float, offset: Tensor | None = None) -> None:
        super().__init__(positions, weight, offset)

    def targets(self, dtype: torch.dtype, num_cells: int) -> Tensor:
        """(A N,): 1 at the positives and 0 elsewhere, less the prior mean."""
        targets = torch.zeros(num_cells, dtype=dtype, device=self.positions.device)
        targets[self.positions] = 1.0
        return targets if self.offset is None else targets - self.offset

    @override
    def __call__(self, psi: Tensor) -> LossValue:
        total = psi if self.offset is None else psi + self.offset
        positives = total[self.positions]
        off = (positives - 1).double()
        gradient = self.weight * total
        gradient[self.positions] = positives - 1
        square = self.quadratic_bound(total) + float(off.square().sum() - positives.double().square().sum())
        return self._value(square, gradient, float(off.sum()))


class WholeListRankingLoss(WholeListLoss):
    r"""Equation (9) with the order cone and margin d over whole lists, by the identity (10).

    .. math:: f(\psi) = \sum_m \min_b \tfrac12 \sum_{pos} (b + d - \psi)_+^2 + \tfrac{w_0}{2} \sum_{rest} (\psi - b)_+^2

    The threshold b of each row is the root of a piecewise linear increasing function, found exactly (up to rounding) by
    :func:`~mvgp.likelihoods.thresholds.bracketed_newton`, which starts from the last call's thresholds.

    :param positions: (P,) ascending, where the positives are among the A N cells.
    :param num_cols: N.
    :param weight: w0.
    :param margin: d.
    :param offset: (A N,) prior mean there, or None for 0.
    """

    def __init__(
        self, positions: Tensor, num_cols: int, weight: float, margin: float, offset: Tensor | None = None
    ) -> None:
        super().__init__(positions, weight, offset)
        self.num_cols, self.margin = num_cols, margin
        self.row_of = positions // num_cols  # (P,) list of each positive
        self._starts: list[int] | None = None  # where the positives of each row begin; the last one is P
        self._thresholds: Tensor | None = None

    @override
    def __call__(self, psi: Tensor) -> LossValue:
        total = psi if self.offset is None else psi + self.offset
        scores = total.view(-1, self.num_cols)  # (A, N)
        gradient = torch.empty_like(scores)
        thresholds = torch.empty(len(scores), dtype=torch.float64, device=psi.device)
        rows = max(1, CHUNK_CELLS // self.num_cols)
        if self._starts is None:
            counts = torch.bincount(self.row_of, minlength=len(scores))
            self._starts = [0, *counts.cumsum(0).tolist()]
        square, positive_mass = 0.0, 0.0
        for first in range(0, len(scores), rows):
            last = min(first + rows, len(scores))
            start, stop = self._starts[first], self._starts[last]
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
        :param list_of: (p,) row of each positive in the chunk.
        :param col_of: (p,) its column.
        :param positives: (p,) its score.
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
        super().__init__(positions, weight, offset)
        self.num_cols, self.num_cells, self.retargeting_of = num_cols, num_cells, retargeting_of
        self._kept: list[Retargeting] | None = [] if num_cells <= keep_cells else None

    def _chunks(self) -> Iterator[tuple[slice, Tensor | None, Retargeting]]:
        """Cells of some rows, their weights (C,), and their retargeting."""
        device = self.positions.device
        size = max(1, CHUNK_CELLS // self.num_cols) * self.num_cols
        for number, first in enumerate(range(0, self.num_cells, size)):
            last = min(first + size, self.num_cells)
            start, stop = torch.searchsorted(self.positions, torch.tensor([first, last], device=device)).tolist()
            positive = torch.zeros(last - first, dtype=torch.bool, device=device)
            positive[self.positions[start:stop] - first] = True
            weight = None
            if self.weight != 1:
                weight = torch.ones(last - first, dtype=torch.float64, device=device)
                weight[~positive] = self.weight  # torch.where of two numbers would round it to single precision
            if self._kept is not None and number < len(self._kept):
                retarget = self._kept[number]
            else:
                task = torch.arange(first, last, device=device) // self.num_cols
                retarget = self.retargeting_of(positive, task, weight)
                if self._kept is not None:
                    self._kept.append(retarget)
            yield slice(first, last), weight, retarget

    @override
    def __call__(self, psi: Tensor) -> LossValue:
        gradient = torch.empty_like(psi)
        square, linear = 0.0, 0.0
        for cells, weight, retarget in self._chunks():
            part = psi[cells] if self.offset is None else psi[cells] + self.offset[cells]
            target = check_targets(retarget(part.detach()), part)
            off = part - target
            pull = off if weight is None else weight.to(off) * off
            square += long_dot(pull, off)
            linear += long_dot(pull, target)
            gradient[cells] = pull
        return self._value(square, gradient, linear)
