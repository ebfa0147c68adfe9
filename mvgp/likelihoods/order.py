r"""Projection onto ordered scores: the retargeting of equation (8) for the order cone with a margin.

.. math:: r_m = \arg\min_r \tfrac12 \sum_t w_t (r_t - \psi_t)^2
          \quad\text{with every entry of a level at least every entry of a lower level plus d for each step}

Once the thresholds are known each entry is clamped between the one under its level and the one over it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import check_instance, check_not_negative
from ..errors import InputError
from .checks import check_scores, check_weight
from .jacobian import PoolJacobian, is_differentiated, with_jacobian
from .lists import RankingLists
from .runs import pieces
from .thresholds import Thresholds, ThresholdSearch


class LevelProjection:
    """Projects scores so that in each list higher levels stay above lower ones. Reusable; warm-starts itself.

    Exact (no tolerance), differentiable almost everywhere, and free of ties broken by rounding: entries that are pulled
    together come out equal. A list that is in order already, or has a single level, is returned as it is. Scores
    must be finite; sums do not overflow for scores up to the largest number there is, nor vanish for the smallest.

    :param lists: the T entries, grouped.
    :param margin: d >= 0, for each step between levels (levels 1 and 3 are 2 d apart even where 2 is missing).
    :param weight: (T,) positive, or None for 1. A list's weights should stay within a factor of 1e150 of each other.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import LevelProjection, RankingLists
        >>> lists = RankingLists.bipartite(torch.tensor([True, False, False]), torch.tensor([0, 0, 0]))
        >>> LevelProjection(lists, margin=1.0)([0.0, 0.0, -3.0]).tolist()  # equation (8), with a margin
        [0.5, -0.5, -3.0]

    """

    def __init__(self, lists: RankingLists, margin: float = 0.0, weight: Any = None) -> None:
        self.lists = check_instance(lists, "lists", RankingLists, "mvgp.likelihoods.RankingLists")
        self.margin = check_not_negative(margin, "margin")
        self.weight = check_weight(weight, len(lists))
        self._cell_shift = self.margin * lists.cell_level.double() if self.margin else None  # (C,)
        shift: Tensor | float | None = None
        if self._cell_shift is not None:
            two_levels = lists.num_thresholds == lists.num_lists and bool(((lists.cell_level | 1) == 1).all())
            shift = self.margin if two_levels else self._cell_shift[lists.cell]
        self._search = ThresholdSearch(lists, shift, self.weight)

    def forget(self) -> None:
        """Let the next call start cold; it changes the time, not the result."""
        self._search.forget()

    def __call__(self, scores: Any) -> Tensor:
        """(T,) the nearest ordered scores."""
        scores = check_scores(scores, len(self.lists))
        found, thresholds, low, high = self._solve(scores)
        if is_differentiated(scores):
            return with_jacobian(scores, found, self._jacobian(scores.detach(), thresholds, low, high))
        return found

    def jacobian(self, scores: Any) -> PoolJacobian:
        """The derivative of the projection at ``scores`` (T,), as an operator."""
        scores = check_scores(scores, len(self.lists)).detach()
        _, thresholds, low, high = self._solve(scores)
        return self._jacobian(scores, thresholds, low, high)

    def _solve(self, scores: Tensor) -> tuple[Tensor, Thresholds, Tensor, Tensor]:
        """The projection (T,), the thresholds, and the bounds (C,), (C,) that they put on each cell."""
        most = torch.finfo(scores.dtype).max / 4
        if self._cell_shift is not None and len(self._cell_shift) and float(self._cell_shift.abs().max()) > most:
            raise InputError(f"margin: expected one within the range of {scores.dtype}, got {self.margin:g}")
        with torch.no_grad():
            scores = scores.detach()
            thresholds = self._search(scores)
            low = self._bounds(thresholds, self.lists.below_cell, -torch.inf).to(scores.dtype)
            high = self._bounds(thresholds, self.lists.above_cell, torch.inf).to(scores.dtype)
            found = torch.empty_like(scores)
            for piece in pieces(scores):
                cell = self.lists.cell[piece]
                torch.clamp(scores[piece], low.index_select(0, cell), high.index_select(0, cell), out=found[piece])
        return found, thresholds, low, high

    def _bounds(self, thresholds: Thresholds, edge: Tensor, none: float) -> Tensor:
        """(C,) the bound of each cell at one of its edges; ``none`` where no threshold moves anything."""
        value = torch.where(thresholds.moves, thresholds.value, none)
        bound = torch.cat([value, value.new_full((1,), none)]).index_select(0, edge)
        return bound if self._cell_shift is None else bound + self._cell_shift

    def _jacobian(self, scores: Tensor, thresholds: Thresholds, low: Tensor, high: Tensor) -> PoolJacobian:
        lists, count = self.lists, self.lists.num_thresholds
        pool_of = torch.cat([thresholds.pool, thresholds.pool.new_full((1,), count)])
        pool = torch.full_like(lists.cell, count)  # (T,) count: the entry stays
        lifted, lowered = scores < low[lists.cell], scores > high[lists.cell]
        pool = torch.where(lifted, pool_of[lists.below_cell][lists.cell], pool)
        pool = torch.where(lowered, pool_of[lists.above_cell][lists.cell], pool)
        return PoolJacobian(pool, count, self.weight, scores.dtype)


class OrderProjection(LevelProjection):
    """Projects scores so that in each task positives >= negatives + margin; see :class:`LevelProjection`.

    With d the margin and b the threshold of a task, positives become max(psi, b + d) and negatives min(psi, b).

    :param positive: (T,) bool.
    :param task: (T,) whole numbers, in any order; sorted is quickest to set up.
    :param margin: d >= 0.
    :param weight: (T,) positive, or None for 1.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import OrderProjection
        >>> project = OrderProjection(torch.tensor([True, False, False]), torch.tensor([0, 0, 0]), margin=1.0)
        >>> project(torch.tensor([0.0, 1.0, -3.0])).tolist()
        [1.0, 0.0, -3.0]

    """

    def __init__(self, positive: Any, task: Any, margin: float = 0.0, weight: Any = None) -> None:
        super().__init__(RankingLists.bipartite(positive, task), margin, weight)
