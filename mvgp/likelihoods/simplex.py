r"""Projection onto ordered scores that are not negative and sum to a total: the paper's target set.

The order cone first, then one shift for each list, :math:`r = (z - \tau)_+` with :math:`\sum r = c`: the composition
is the projection onto the intersection. A margin d is taken off the positives and the total beforehand and put back
afterwards. The shift is found by Newton's method from below (Michelot's): the support only shrinks, and when it
does not the shift is exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import check_instance, check_not_negative, check_positive
from ..errors import InputError
from .checks import check_scores
from .jacobian import SupportJacobian, is_differentiated, with_jacobian
from .lists import RankingLists
from .order import LevelProjection


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

    def forget(self) -> None:
        """Let the next call start cold."""
        self._order.forget()

    def __call__(self, scores: Any) -> Tensor:
        """(T,) the nearest point of the set."""
        scores = check_scores(scores, len(self.lists))
        if self._shift is None:
            return self._share_out(self._order(scores))
        shift = self._shift.to(scores.dtype)
        return self._share_out(self._order(scores - shift)) + shift

    def _share_out(self, ordered: Tensor) -> Tensor:
        value = shift_to_total(ordered.detach(), self.lists.list_of, self._room)
        if is_differentiated(ordered):
            jacobian = SupportJacobian(value > 0, self.lists.list_of, self.lists.num_lists)
            return with_jacobian(ordered, value, jacobian)
        return value


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
