r"""The projections of equation (8), all tasks at once, exact, differentiable; and target sets made of them.

**Order cone with a margin**, :class:`LevelProjection`:

.. math:: r_m = \arg\min_r \tfrac12 \sum_t w_t (r_t - \psi_t)^2
          \quad\text{with every entry of a level at least every entry of a lower level plus d for each step}

Once the thresholds are known each entry is clamped between the one under its level and the one over it.

**Ordered simplex**, :class:`SimplexProjection`, the paper's target set: ordered scores that are not negative and sum to
a total. The order cone first, then one shift for each list, :math:`r = (z - \tau)_+` with :math:`\sum r = c`: the
composition is the projection onto the intersection. A margin d is taken off the positives and the total beforehand and
put back afterwards. The shift is found by Newton's method from below (Michelot's).

The functions ``project_*`` group the entries anew; to project many times, make a projection once and call it.
A :class:`TargetSet` says which scores count as a correct ranking; a likelihood takes any, or one of your own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..checks import check_instance, check_not_negative, check_positive, check_whole_number
from ..errors import InputError
from .lists import SEGMENT, RankingLists, check_scores, check_weight, segments
from .losses import Retargeting
from .thresholds import Thresholds, ThresholdSearch


class PoolJacobian:
    """Entries that were pulled together move as their weighted mean; the others move as themselves.

    :param pool: (T,) the pool of each entry; ``num_pools`` where it stays.
    :param weight: (T,) or None for 1.
    """

    def __init__(self, pool: Tensor, num_pools: int, weight: Tensor | None, dtype: torch.dtype) -> None:
        self.pool, self.num_pools = pool, num_pools
        self.stays = pool == num_pools
        self.weight = torch.ones_like(pool, dtype=dtype) if weight is None else weight.to(dtype)
        self._mass = self._sum(self.weight)

    def _sum(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.num_pools + 1).index_add_(0, self.pool, values)

    def apply(self, tangent: Tensor) -> Tensor:
        """J times (T,): the weighted mean over each pool."""
        mean = self._sum(self.weight * tangent) / self._mass
        return torch.where(self.stays, tangent, mean[self.pool])

    def apply_transposed(self, cotangent: Tensor) -> Tensor:
        """J transposed times (T,): each pool's sum, shared out by weight."""
        share = self._sum(cotangent) / self._mass
        return torch.where(self.stays, cotangent, self.weight * share[self.pool])


class _WithJacobian(torch.autograd.Function):
    """A value that was computed elsewhere, with a derivative with respect to ``scores``; its own is 0."""

    @staticmethod
    def forward(scores: Tensor, value: Tensor, jacobian: PoolJacobian) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.jacobian = inputs[2]

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, None, None]:
        return ctx.jacobian.apply_transposed(cotangents[0]), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return ctx.jacobian.apply(tangents[0])


def _is_differentiated(scores: Tensor) -> bool:
    """Whether someone wants a derivative with respect to ``scores``, backward or forward."""
    backward = torch.is_grad_enabled() and scores.requires_grad
    return backward or forward_ad.unpack_dual(scores).tangent is not None


class LevelProjection:
    """Projects scores so that in each list higher levels stay above lower ones. Reusable; warm-starts itself.

    Exact (no tolerance), differentiable almost everywhere; entries that are pulled together come out equal. A list that
    is in order already, or has a single level, is returned as it is. Sums do not overflow for scores up to the largest
    number there is, nor vanish for the smallest.

    :param lists: the T entries, grouped.
    :param margin: d >= 0, for each step between levels (levels 1 and 3 are 2 d apart even where 2 is missing).
    :param weight: (T,) positive, or None for 1. A list's weights should stay within a factor of 1e150 of each other.
    :param group_size: entries that are worked on at a time.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import LevelProjection, RankingLists
        >>> lists = RankingLists.bipartite(torch.tensor([True, False, False]), torch.tensor([0, 0, 0]))
        >>> LevelProjection(lists, margin=1.0)([0.0, 0.0, -3.0]).tolist()  # equation (8), with a margin
        [0.5, -0.5, -3.0]

    """

    def __init__(
        self, lists: RankingLists, margin: float = 0.0, weight: Any = None, *, group_size: int = SEGMENT
    ) -> None:
        self.lists = check_instance(lists, "lists", RankingLists, "mvgp.likelihoods.RankingLists")
        self.margin = check_not_negative(margin, "margin")
        self.weight = check_weight(weight, len(lists))
        self._cell_shift = self.margin * lists.cell_level.double() if self.margin else None  # (C,)
        shift: Tensor | float | None = None
        if self._cell_shift is not None:
            two_levels = lists.num_thresholds == lists.num_lists and bool(((lists.cell_level | 1) == 1).all())
            shift = self.margin if two_levels else self._cell_shift[lists.cell]
        self._search = ThresholdSearch(lists, shift, self.weight, check_whole_number(group_size, "group_size"))

    def reset_warm_start(self) -> None:
        """Let the next call start cold; it changes the time, not the result."""
        self._search.reset_warm_start()

    def __call__(self, scores: Any) -> Tensor:
        """(T,) the nearest ordered scores."""
        scores = check_scores(scores, len(self.lists))
        projected, thresholds, low, high = self._solve(scores)
        if _is_differentiated(scores):
            return _WithJacobian.apply(scores, projected, self._jacobian(scores.detach(), thresholds, low, high))
        return projected

    def jacobian(self, scores: Any) -> PoolJacobian:
        """The derivative of the projection at ``scores`` (T,), as an operator."""
        scores = check_scores(scores, len(self.lists)).detach()
        _, thresholds, low, high = self._solve(scores)
        return self._jacobian(scores, thresholds, low, high)

    def _solve(self, scores: Tensor) -> tuple[Tensor, Thresholds, Tensor, Tensor]:
        """The projection (T,), the thresholds, and the bounds (C,), (C,) that they put on each cell."""
        limit = torch.finfo(scores.dtype).max / 4
        if self._cell_shift is not None and len(self._cell_shift) and float(self._cell_shift.abs().max()) > limit:
            raise InputError(f"margin: expected one within the range of {scores.dtype}, got {self.margin:g}")
        with torch.no_grad():
            scores = scores.detach()
            thresholds = self._search(scores)
            low = self._bounds(thresholds, self.lists.below_cell, -torch.inf).to(scores.dtype)
            high = self._bounds(thresholds, self.lists.above_cell, torch.inf).to(scores.dtype)
            projected = torch.empty_like(scores)
            for segment in segments(scores):
                cell = self.lists.cell[segment]
                bounds = low.index_select(0, cell), high.index_select(0, cell)
                torch.clamp(scores[segment], *bounds, out=projected[segment])
        return projected, thresholds, low, high

    def _bounds(self, thresholds: Thresholds, edge: Tensor, none: float) -> Tensor:
        """(C,) the bound of each cell at one of its edges; ``none`` where no threshold moves anything."""
        value = torch.where(thresholds.moves, thresholds.value, none)
        bound = torch.cat([value, value.new_full((1,), none)]).index_select(0, edge)
        return bound if self._cell_shift is None else bound + self._cell_shift

    def _jacobian(self, scores: Tensor, thresholds: Thresholds, low: Tensor, high: Tensor) -> PoolJacobian:
        cell, count = self.lists.cell, self.lists.num_thresholds
        pool_of = torch.cat([thresholds.pool, thresholds.pool.new_full((1,), count)])
        pool = torch.where(scores < low[cell], pool_of[self.lists.below_cell][cell], count)  # (T,) count: it stays
        pool = torch.where(scores > high[cell], pool_of[self.lists.above_cell][cell], pool)
        return PoolJacobian(pool, count, self.weight, scores.dtype)


class OrderProjection(LevelProjection):
    """Projects scores so that in each task positives >= negatives + margin; see :class:`LevelProjection`.

    With d the margin and b the threshold of a task, positives become max(psi, b + d) and negatives min(psi, b).

    :param positive: (T,) bool.
    :param task: (T,) whole numbers, in any order; sorted is quickest to set up.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import OrderProjection
        >>> project = OrderProjection(torch.tensor([True, False, False]), torch.tensor([0, 0, 0]), margin=1.0)
        >>> project(torch.tensor([0.0, 1.0, -3.0])).tolist()
        [1.0, 0.0, -3.0]

    """

    def __init__(self, positive: Any, task: Any, margin: float = 0.0, weight: Any = None) -> None:
        super().__init__(RankingLists.bipartite(positive, task), margin, weight)


class SimplexProjection:
    """Projects onto positives >= negatives + margin, all >= 0, summing to ``total`` in each list.

    A list with positives only has no negatives to keep a margin from: there the margin plays no role.

    :param lists: the T entries in two levels.
    :param total: c > 0.
    :param margin: d >= 0; a list with p positives (and a negative) needs p d <= c.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import RankingLists, SimplexProjection
        >>> lists = RankingLists.bipartite(torch.tensor([True, False, False]), torch.tensor([5, 5, 5]))
        >>> SimplexProjection(lists)(torch.tensor([0.0, 0.4, -2.0])).tolist()
        [0.5, 0.5, 0.0]

    """

    def __init__(self, lists: RankingLists, total: float = 1.0, margin: float = 0.0) -> None:
        self.lists = check_instance(lists, "lists", RankingLists, "mvgp.likelihoods.RankingLists")
        self.total, self.margin = check_positive(total, "total"), check_not_negative(margin, "margin")
        if bool((lists.threshold_list[1:] == lists.threshold_list[:-1]).any()):
            raise InputError("lists: the ordered simplex has two levels, got lists with more")
        self._order = LevelProjection(lists)
        positives, sizes = lists.num_positive, lists.sizes
        margins = self.margin * ((positives < sizes) & (positives > 0)).double()  # (L,)
        room = self.total - margins * positives  # (L,) what is left to share out
        short = room < -4 * torch.finfo(torch.float64).eps * self.total
        if short.any():
            at = int(short.nonzero()[0])
            raise InputError(
                f"task {int(lists.task_ids[at])}: the set is empty, {int(positives[at])} positives with margin "
                f"{self.margin:g} need a total of at least {self.margin * int(positives[at]):g}, got {self.total:g}"
            )
        self._room = room.clamp_(min=0.0)
        upper = lists.below_cell[lists.cell] < lists.num_thresholds  # (T,) positives
        self._shift = (margins[lists.list_of] * upper) if self.margin else None

    def reset_warm_start(self) -> None:
        """Let the next call start cold."""
        self._order.reset_warm_start()

    def __call__(self, scores: Any) -> Tensor:
        """(T,) the nearest point of the set."""
        scores = check_scores(scores, len(self.lists))
        shift = 0.0 if self._shift is None else self._shift.to(scores.dtype)
        ordered = self._order(scores - shift)
        value = shift_to_total(ordered.detach(), self.lists.list_of, self._room)
        if _is_differentiated(
            ordered
        ):  # entries of the support move less the mean of their list's support, others stay
            pool = torch.where(value > 0, self.lists.list_of, self.lists.num_lists)
            common = PoolJacobian(pool, self.lists.num_lists, None, value.dtype)
            own = ordered - ordered.detach()  # 0, with a derivative
            value = value + own - _WithJacobian.apply(ordered, torch.zeros_like(value), common)
        return value + shift


def shift_to_total(values: Tensor, list_of: Tensor, total: Tensor) -> Tensor:
    r"""(T,) :math:`(z - \tau)_+`, with :math:`\tau` of each list such that it sums to ``total`` (L,) >= 0.

    Everything is measured from the largest value of its list, so huge values neither overflow nor swallow the total.
    """
    top = total.new_full(total.shape, -torch.inf).scatter_reduce_(0, list_of, values.double(), "amax")
    depth = values.double() - top[list_of]  # (T,) <= 0
    tau, support = -total, torch.full_like(total, -1.0)  # (L,), (L,): the shift, and how many entries it leaves
    while True:
        above = (depth - tau[list_of]).relu_()
        count = torch.zeros_like(total).index_add_(0, list_of, above.sign())
        if bool((count == support).all()):
            return above.to(values.dtype)
        excess = torch.zeros_like(total).index_add_(0, list_of, above) - total
        # never back: in exact arithmetic it would not, and rounding must not make it go to and fro
        tau, support = torch.maximum(tau, tau + excess / count.clamp(min=1.0)), count


def project_order(scores: Any, positive: Any, task: Any, margin: float = 0.0, weight: Any = None) -> Tensor:
    """The nearest scores with positives >= negatives + margin in every task: the order cone of equation (8).

    A task with positives only, negatives only or a single item is returned as it is.

    :param scores: (T,) finite numbers; the answer has their precision.
    :param positive: (T,) bool.
    :param task: (T,) whole numbers, in any order.
    :param margin: d >= 0.
    :param weight: (T,) positive, or None for 1.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import project_order
        >>> scores, positive = torch.tensor([1.0, 3.0, 0.0]), torch.tensor([True, False, False])
        >>> project_order(scores, positive, torch.tensor([5, 5, 5])).tolist()
        [2.0, 2.0, 0.0]

    """
    return OrderProjection(positive, task, margin, weight)(scores)


def project_ordered_simplex(scores: Any, positive: Any, task: Any, total: float = 1.0, margin: float = 0.0) -> Tensor:
    """The nearest scores >= 0 with positives >= negatives + margin that sum to ``total`` in every task.

    There are no weights here: with them the shift is no longer common to the items of a task.

    :param scores: (T,) finite numbers; the answer has their precision.
    :param positive: (T,) bool.
    :param task: (T,) whole numbers, in any order.
    :param total: c > 0.
    :param margin: d >= 0, with d times the number of positives at most ``total`` in each task that has negatives.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import project_ordered_simplex
        >>> scores, positive = torch.tensor([0.0, 0.4, -2.0]), torch.tensor([True, False, False])
        >>> project_ordered_simplex(scores, positive, torch.tensor([5, 5, 5])).tolist()
        [0.5, 0.5, 0.0]

    """
    return SimplexProjection(RankingLists.bipartite(positive, task), total, margin)(scores)


def project_levels(scores: Any, level: Any, task: Any, margin: float = 0.0, weight: Any = None) -> Tensor:
    """The nearest scores whose levels are in order: an entry of level j >= any of level i < j, plus (j - i) margins.

    Within a level there is no order. Two levels, 0 and 1, are :func:`project_order`.

    :param scores: (T,) finite numbers; the answer has their precision.
    :param level: (T,) whole numbers, the higher the more relevant.
    :param task: (T,) whole numbers, in any order.
    :param margin: d >= 0.
    :param weight: (T,) positive, or None for 1.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import project_levels
        >>> scores, level = torch.tensor([3.0, 2.0, 1.0, 5.0]), torch.tensor([0, 1, 2, 2])
        >>> project_levels(scores, level, torch.tensor([0, 0, 0, 0])).tolist()
        [2.0, 2.0, 2.0, 5.0]

    """
    return LevelProjection(RankingLists.graded(level, task), margin, weight)(scores)


# Target sets ------------------------------------------------------------------------------------


class TargetSet(Protocol):
    """A closed convex set of scores for each list, given by its projection.

    Another one takes a few lines. Scores of the positives at 1, of the negatives free but at most 0:

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import BipartiteRankingLikelihood
        >>> class OneAndBelow:
        ...     supports_weights, shift_invariant = True, False
        ...     def projection(self, lists, weight=None):
        ...         positive = lists.cell_level[lists.cell] == 1
        ...         return lambda psi: torch.where(positive, torch.ones_like(psi), psi.clamp(max=0.0))
        >>> ranking = BipartiteRankingLikelihood(target=OneAndBelow())
        >>> psi, labels, task = torch.tensor([0.0, 0.5]), torch.tensor([1, -1]), torch.tensor([0, 0])
        >>> ranking.retarget(psi, labels, task).tolist()
        [1.0, 0.0]

    """

    @property
    def supports_weights(self) -> bool:
        """Whether the projection may be in a norm with a weight for each entry."""
        ...

    @property
    def shift_invariant(self) -> bool:
        """Whether r + constant is in the set of a list whenever r is; then a bias for each task changes nothing."""
        ...

    def projection(self, lists: RankingLists, weight: Tensor | None = None) -> Retargeting:
        """The map psi (T,) -> r (T,) of equation (8) for these lists, to be called many times."""
        ...


@dataclass(frozen=True)
class OrderCone:
    """Positives >= negatives + margin. The default: margin 1 keeps the scores away from the constant solution.

    :param margin: d >= 0.
    """

    margin: float = 1.0
    supports_weights = True
    shift_invariant = True
    closed_form = True  # whole lists need ``margin`` alone, not ``projection``: equation (10)

    def __post_init__(self) -> None:
        check_not_negative(self.margin, "margin")

    def projection(self, lists: RankingLists, weight: Tensor | None = None) -> LevelProjection:
        """See :class:`TargetSet`."""
        return LevelProjection(lists, self.margin, weight)


@dataclass(frozen=True)
class GradedOrder(OrderCone):
    """Every level >= the next lower one + margin, for any number of levels.

    :param margin: d >= 0, for each step.
    """


@dataclass(frozen=True)
class OrderedSimplex:
    """Positives >= negatives + margin, all >= 0, summing to ``total``: with total 1 and no margin, the paper's.

    :param total: c > 0.
    :param margin: d >= 0.
    """

    total: float = 1.0
    margin: float = 0.0
    supports_weights = False
    shift_invariant = False

    def __post_init__(self) -> None:
        check_positive(self.total, "total")
        check_not_negative(self.margin, "margin")

    def projection(self, lists: RankingLists, weight: Tensor | None = None) -> SimplexProjection:
        """See :class:`TargetSet`."""
        if weight is not None:
            raise InputError("weight: OrderedSimplex takes none (the shift would not be a common one), got weights")
        return SimplexProjection(lists, self.total, self.margin)
