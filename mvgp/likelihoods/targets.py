"""Target sets: which scores count as a correct ranking. A likelihood takes any of them, or one of your own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..checks import check_not_negative, check_positive
from ..errors import InputError
from .lists import RankingLists
from .projections import LevelProjection, SimplexProjection

Retargeting = Callable[[Tensor], Tensor]  # psi (T,) -> r (T,)


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
