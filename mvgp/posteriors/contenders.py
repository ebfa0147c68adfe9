r"""Which items of a row can reach its top k: a union bound.

Let the k leaders be the items of largest mean. If each of them is at least t and everybody who was dropped is below t,
nobody who was dropped is in the top k, and none is ahead of a leader. With means m_i and standard deviations s_i, or
upper bounds of these, the chance that this fails is at most

.. math:: \sum_{\text{leaders}} \Phi\left(\frac{t - m_l}{s_l}\right) +
    \sum_{\text{dropped}} \Phi\left(\frac{m_j - t}{s_j}\right),

however the items are correlated. P(in the top k) of a contender is off by at most this number if only contenders are
sampled, and that of everybody else is below it. The threshold t is the one that leaves the fewest contenders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

THRESHOLDS = 65  # that are tried
FEW = 256  # contenders, below which better standard deviations are not worth their time


@dataclass(frozen=True)
class Contenders:
    """The items of a row that can reach its top k.

    :param items: (C,) positions among the candidates, ascending.
    :param dropped: bound on the probability that anybody else is in the top k, or ahead of one of the k leaders.
    """

    items: Tensor
    dropped: float

    def __len__(self) -> int:
        return len(self.items)


def find_contenders(mean: Tensor, std: Tensor, k: int, epsilon: float) -> Contenders:
    """The smallest set of contenders that the union bound allows.

    :param mean: (N,) of each candidate.
    :param std: (N,) standard deviations, or upper bounds of these.
    :param k: how many places the top has.
    :param epsilon: largest probability that somebody who was dropped should not have been.

    Example:
        >>> import torch
        >>> from mvgp.posteriors.contenders import find_contenders
        >>> mean, std = torch.tensor([3.0, 2.9, 0.0, -1.0]), torch.full((4,), 0.1)
        >>> find_contenders(mean, std, k=1, epsilon=1e-3).items.tolist()
        [0, 1]

    """
    mean, std = mean.double(), std.double()
    everybody = torch.arange(len(mean), device=mean.device)
    if k >= len(mean):
        return Contenders(everybody, 0.0)
    order = mean.argsort(descending=True, stable=True)
    leaders, others = order[:k], order[k:]
    low = float((mean[leaders] - 8 * std[leaders]).min())
    best, fewest = Contenders(everybody, 0.0), len(mean)
    for at in torch.linspace(low, float(mean[leaders].min()), THRESHOLDS, dtype=torch.float64).tolist():
        failing = float(_tail(at - mean[leaders], std[leaders]).sum())
        if failing >= epsilon:
            continue
        chance, places = _tail(mean[others] - at, std[others]).sort()
        total = chance.cumsum(0)
        count = int((total <= epsilon - failing).sum())
        if count and len(mean) - count < fewest:
            fewest = len(mean) - count
            kept = torch.cat([leaders, others[places[count:]]]).sort().values
            best = Contenders(kept, failing + float(total[count - 1]))
    return best


def _tail(lead: Tensor, std: Tensor) -> Tensor:
    """P(z >= 0) for z normal with mean ``lead``; without a standard deviation it is 0 or 1, a tie counts as reached."""
    certain = (lead >= 0).double()
    return torch.where(std > 0, torch.special.ndtr(lead / std.clamp_min(1e-300)), certain)


def narrow(mean: Tensor, k: int, epsilon: float, bounds: Sequence[Callable[[Tensor], Tensor]]) -> Contenders:
    """Contenders from better and better standard deviations, each computed for those who are left alone.

    :param bounds: functions from positions (C,) to upper bounds (C,) of their standard deviations, the cheapest first.
    """
    kept, spent = torch.arange(len(mean), device=mean.device), 0.0
    std = torch.full_like(mean, torch.inf, dtype=torch.float64)
    for number, bound in enumerate(bounds):
        if number and len(kept) <= max(FEW, 2 * k):
            break
        std[kept] = torch.minimum(std[kept], bound(kept).double())
        share = epsilon if number + 1 == len(bounds) else epsilon / 2
        found = find_contenders(mean[kept], std[kept], k, share - spent)
        kept, spent = kept[found.items], spent + found.dropped
    return Contenders(kept, spent)
