r"""All metrics of a block of tasks, from one sort of each row.

Items with equal scores have no order of their own. Every figure here is its expected value over a random order of
them, in closed form, so neither luck nor the numbering of items can flatter. Take the tied items on places
:math:`a + 1, \dots, a + n` of the list, p of them positive, with q positives ahead of them. Each place holds a positive
with probability p / n, any two of them do with :math:`\frac{p (p - 1)}{n (n - 1)}`, whatever happens in other ties. At
place l

.. math:: E[h_l] = \frac p n, \quad E\Big[\sum_{j \le l} h_j\Big] = q + (l - a) \frac p n, \quad
    E\Big[h_l \sum_{j \le l} h_j\Big] = \frac p n \Big(1 + q + (l - 1 - a) \frac{p - 1}{n - 1}\Big)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class BlockMetrics:
    """Metrics of R tasks, each with at least one positive.

    :param auc: (R,), NaN where every candidate is a positive.
    :param precision: (R, k); so are the others.
    """

    auc: Tensor
    precision: Tensor
    recall: Tensor
    average_precision: Tensor
    ndcg: Tensor


def block_metrics(scores: np.ndarray, task: Tensor, item: Tensor, num_excluded: Tensor, k: int) -> BlockMetrics:
    """The metrics of one block of tasks.

    :param scores: (R, N); excluded items are minus infinity, all others finite. Sorted in place.
    :param task: (P,) ascending place of each positive's task in the block; every task occurs.
    :param item: (P,) column of each positive.
    :param num_excluded: (R,).
    :param k: length of the curves; may exceed N.
    """
    num_tasks, num_items = scores.shape
    total = torch.bincount(task, minlength=num_tasks)  # (R,) positives, G in the formulas
    place = torch.arange(len(task)) - (total.cumsum(0) - total)[task]  # (P,) among those of its task
    wanted = torch.zeros(num_tasks, int(total.max()), dtype=torch.from_numpy(scores).dtype)  # (R, max G), padded
    wanted[task, place] = torch.from_numpy(scores)[task, item]
    scores.sort(axis=1)  # values only: several times faster than torch.sort, which carries positions along
    ordered = torch.from_numpy(scores)

    below = torch.searchsorted(ordered, wanted)[task, place]  # (P,) items with a lower score, excluded ones too
    upto = torch.searchsorted(ordered, wanted, right=True)[task, place]  # (P,) and those with the same score
    auc = _auc(below - num_excluded[task], upto - below, task, total, num_items - num_excluded)

    width = min(k, num_items)
    top = ordered[:, num_items - width :].flip(1).contiguous()  # (R, width) best scores, descending
    ahead = num_items - torch.searchsorted(ordered, top, right=True)  # (R, width) a: items ahead of the ties
    size = num_items - torch.searchsorted(ordered, top) - ahead  # (R, width) n
    # positives, each at the first place of its ties; beyond the last candidate there are none
    first = torch.zeros(num_tasks, width, dtype=torch.float64)
    listed = num_items - upto < width
    one = torch.ones((), dtype=torch.float64)
    first.index_put_((task[listed], (num_items - upto)[listed]), one, accumulate=True)
    positive = first.gather(1, ahead)  # (R, width) p
    earlier = (first.cumsum(1) - first).gather(1, ahead)  # (R, width) q

    rank = torch.arange(1, width + 1)  # (width,) l
    share = positive / size
    another = (positive - 1).clamp(min=0) / (size - 1).clamp(min=1)
    hits = earlier + (rank - ahead) * share  # (R, width) expected positives among the first l
    precision_at_hits = share * (1 + earlier + (rank - 1 - ahead) * another) / rank
    if k > width:  # places that no item can take
        hits = torch.cat([hits, hits[:, -1:].expand(num_tasks, k - width)], dim=1)
        share, precision_at_hits = pad(share, (0, k - width)), pad(precision_at_hits, (0, k - width))
    rank = torch.arange(1, k + 1)
    best = torch.minimum(total.unsqueeze(1), rank)  # (R, k) min(G, l)
    discount = 1 / torch.log2(rank.double() + 1)
    return BlockMetrics(
        auc=auc,
        precision=hits / rank,
        recall=hits / best,
        average_precision=precision_at_hits.cumsum(1) / best,
        ndcg=(share * discount).cumsum(1) / discount.cumsum(0)[best - 1],
    )


def _auc(lower: Tensor, equal: Tensor, task: Tensor, total: Tensor, candidates: Tensor) -> Tensor:
    """(R,): share of (positive, other) pairs in the right order, a tie counting 1/2.

    Counted against all candidates first. Among themselves the G positives of a task always contribute G (G - 1) / 2.

    :param lower: (P,) candidates with a lower score than the positive.
    :param equal: (P,) candidates with the same score, itself included.
    """
    against = lower.double() + (equal - 1) / 2  # (P,) exact: multiples of 1/2
    won = torch.zeros(len(total), dtype=torch.float64).index_add_(0, task, against) - total * (total - 1) / 2
    return won / (total * (candidates - total))  # 0 / 0 = NaN without any other candidate
