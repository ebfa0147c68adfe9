r"""ranking_scores: every ranking metric of every task, in bounded memory, from one sort of each row.

Items with equal scores have no order of their own. Every metric here is its expected value over a random order of
them, in closed form, so neither luck nor the numbering of items can flatter. Take the tied items at ranks
:math:`a + 1, \dots, a + n` of the list, p of them positive, with q positives ahead of them. Each rank holds a positive
with probability p / n, any two of them do with :math:`\frac{p (p - 1)}{n (n - 1)}`, whatever happens in other ties. At
rank l

.. math:: E[h_l] = \frac p n, \quad E\Big[\sum_{j \le l} h_j\Big] = q + (l - a) \frac p n, \quad
    E\Big[h_l \sum_{j \le l} h_j\Big] = \frac p n \Big(1 + q + (l - 1 - a) \frac{p - 1}{n - 1}\Big)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..checks import FLOATS, check_memory, check_text, check_whole_number, shown, without_gradient
from ..data.positive_unlabelled import positive_pairs
from ..errors import InputError
from ..tensor_checks import as_tensor, check_index, check_list

CURVES = {"precision": "P", "recall": "R", "average_precision": "MAP", "ndcg": "nDCG"}  # attribute: short name
_ATTRIBUTE = {short.lower(): name for name, short in CURVES.items()} | {"ap": "average_precision"}
CHUNK_CELLS = 2**22  # scores held at a time when no chunk is given


@without_gradient
def ranking_scores(
    scores: Any, positives: Any, *, exclude: Any = None, k: int = 100, rows: Any = None, chunk: int | None = None
) -> RankingScores:
    r"""AUC, and the curves P@l, R@l, AP@l and nDCG@l for l = 1..k, of each task.

    The candidates of a task are all its items except the excluded ones. With :math:`h_l` whether the item on place l of
    the ranked list is one of the G held-out positives:

    - AUC is the share of pairs (positive, other candidate) in the right order, ties counted 1/2;
    - :math:`P@k = \frac1k \sum_{l \le k} h_l`;
    - :math:`R@k = \frac{1}{\min(G, k)} \sum_{l \le k} h_l`, so that a perfect list has 1;
    - :math:`AP@k = \frac{1}{\min(G, k)} \sum_{l \le k} h_l\, P@l`, whose average over tasks is MAP@k;
    - :math:`nDCG@k` is :math:`\sum_{l \le k} \frac{h_l}{\log_2(l + 1)}` divided by what a perfect list has,
      :math:`\sum_{l \le \min(G, k)} \frac{1}{\log_2(l + 1)}`.

    Equal scores count by their expected value over a random order of them (:mod:`mvgp.metrics.ranking`). A list shorter
    than k goes on with places that hold nothing. A task without held-out positives has NaN everywhere, a task without
    any other candidate has NaN for AUC; averages leave them out.

    :param scores: (M, N) tensor or array, finite, or a posterior (anything with ``shape`` and ``scores(rows)``).
    :param positives: held-out positives: an ``ObservedMatrix`` or a scipy sparse matrix, whose entries above 0 count,
        or a pair (rows, cols).
    :param exclude: training positives, in the same form; they are no candidates.
    :param k: length of the curves.
    :param rows: (R,) distinct tasks; all M when left out.
    :param chunk: tasks whose scores are held at a time; by default about 4 million scores.
    """
    k = check_whole_number(k, "k")
    chunk = None if chunk is None else check_whole_number(chunk, "chunk")
    ranker = scores if isinstance(scores, Ranker) and not isinstance(scores, type) else _DenseScores(scores)
    num_tasks, num_items = shape = (int(ranker.shape[0]), int(ranker.shape[1]))
    check_memory(float(k) * num_tasks * len(CURVES), "k", f"curves of length {k}")
    held_out, excluded = TaskItems(positives, shape, "positives"), TaskItems(exclude, shape, "exclude")
    _check_disjoint(held_out, excluded, num_items)
    tasks = torch.arange(num_tasks) if rows is None else check_index(rows, num_tasks, "rows").cpu()
    values, times = torch.unique(tasks, return_counts=True)
    if len(values) < len(tasks):
        raise InputError(f"rows: expected distinct tasks, got {int(values[times > 1][0])} more than once")
    metrics = {name: torch.full((len(tasks), k), torch.nan, dtype=torch.float64) for name in CURVES}
    metrics["auc"] = torch.full((len(tasks),), torch.nan, dtype=torch.float64)

    count = held_out.counts[tasks]
    ranked = count.argsort(stable=True)[int((count == 0).sum()) :]  # places; tasks alike in size share a chunk
    chunk = chunk or max(1, CHUNK_CELLS // num_items)
    for start in range(0, len(ranked), chunk):
        part = ranked[start : start + chunk]
        block = _block(ranker, tasks[part], num_items)
        task, item = excluded.of(tasks[part])
        block[task.numpy(), item.numpy()] = -torch.inf
        of_block = _block_metrics(block, *held_out.of(tasks[part]), excluded.counts[tasks[part]], k)
        for name, value in of_block.items():
            metrics[name][part] = value
    return RankingScores(tasks, count, num_items - excluded.counts[tasks], **metrics)


@dataclass(frozen=True, eq=False, repr=False)
class RankingScores:
    """Metrics of R tasks, as :func:`~mvgp.metrics.ranking_scores` defines them. NaN: not defined for the task.

    :param tasks: (R,) row of each task.
    :param num_positives: (R,) held-out positives, G.
    :param num_candidates: (R,) length of the ranked list.
    :param auc: (R,).
    :param precision: (R, k); column l - 1 is P@l.
    :param recall: (R, k).
    :param average_precision: (R, k).
    :param ndcg: (R, k).

    Example:
        >>> import mvgp.metrics, torch
        >>> scores = torch.tensor([[0.9, 0.1, 0.5, 0.3], [0.2, 0.2, 0.2, 0.8]])
        >>> print(mvgp.metrics.ranking_scores(scores, ([0, 0, 1], [0, 3, 0]), k=2))
        2 tasks with 3 held-out positives
        AUC  0.542
                  @1     @2
        P      0.500  0.333
        R      0.500  0.417
        MAP    0.500  0.333
        nDCG   0.500  0.412

    """

    tasks: Tensor
    num_positives: Tensor
    num_candidates: Tensor
    auc: Tensor
    precision: Tensor
    recall: Tensor
    average_precision: Tensor
    ndcg: Tensor

    @property
    def k(self) -> int:
        """Length of the curves."""
        return int(self.precision.shape[1])

    @property
    def num_ranked(self) -> int:
        """Tasks with a held-out positive: those that the averages are about."""
        return int((self.num_positives > 0).sum())

    def per_task(self, metric: str) -> Tensor:
        """(R,): one metric of every task.

        :param metric: ``AUC``, or ``P@10``, ``R@10``, ``AP@10`` (the same as ``MAP@10``), ``nDCG@10``, or any other k.
        """
        if check_text(metric, "metric").lower() == "auc":
            return self.auc
        match = re.fullmatch(r"(p|r|ap|map|ndcg)@(\d+)", metric.lower())
        if match is None:
            raise InputError(
                f"metric: expected 'AUC', or P, R, AP, MAP or nDCG with a place, as 'P@10', got {metric!r}"
            )
        k = int(match[2])
        if not 1 <= k <= self.k:
            raise InputError(f"metric: expected k from 1 to {self.k}, the length of the curves, got {metric!r}")
        column: Tensor = getattr(self, _ATTRIBUTE[match[1]])[:, k - 1]
        return column

    def curves(self) -> dict[str, Tensor]:
        """(k,) each: the averages over tasks of P, R, MAP and nDCG, for 1..k."""
        return {short: torch.nanmean(getattr(self, name), dim=0) for name, short in CURVES.items()}

    def summary(self, at: Sequence[int] | None = None) -> dict[str, float]:
        """Averages over tasks: ``AUC``, and ``P@k``, ``R@k``, ``MAP@k``, ``nDCG@k`` for each k of ``at``.

        :param at: by default 10 and the length of the curves.
        """
        if at is None:
            places = sorted({min(10, self.k), self.k})
        else:
            places = [check_whole_number(k, "at", 1, self.k) for k in check_list(at, "at", "places of the curves")]
        names = ["AUC", *(f"{short}@{place}" for place in places for short in CURVES.values())]
        return {name: float(torch.nanmean(self.per_task(name))) for name in names}

    def __str__(self) -> str:
        places = [place for place in (1, 10, 100) if place < self.k] + [self.k]
        means = self.summary(places)
        lines = [
            f"{self.num_ranked} tasks with {int(self.num_positives.sum())} held-out positives",
            f"AUC  {means['AUC']:.3f}",
            " " * 5 + "".join(f"{f'@{place}':>7}" for place in places),
        ]
        for short in CURVES.values():
            lines.append(f"{short:<5}" + "".join(f"{means[f'{short}@{place}']:7.3f}" for place in places))
        return "\n".join(lines)

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {value:.3f}" for name, value in self.summary([self.k]).items())
        return f"RankingScores({self.num_ranked} tasks, {means})"


@runtime_checkable
class Ranker(Protocol):
    """What the metrics need of a posterior, or of anything else that scores items."""

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        ...

    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): the scores of whole rows."""
        ...


class _DenseScores:
    """Numbers (M, N) as a :class:`Ranker`."""

    def __init__(self, scores: Any) -> None:
        self.values = as_tensor(scores, "scores")
        if self.values.dim() != 2 or self.values.dtype == torch.bool or 0 in self.values.shape:
            raise InputError(
                "scores: expected real numbers of shape (M, N), or a posterior with scores(rows), "
                f"got {self.values.dtype} of shape {tuple(self.values.shape)}"
            )
        self.shape = (self.values.shape[0], self.values.shape[1])

    def scores(self, rows: Any = None) -> Tensor:
        return self.values[rows.to(self.values.device)]


def _block(ranker: Ranker, rows: Tensor, num_items: int) -> np.ndarray:
    """(R, N): the scores of ``rows`` (R,), all finite; a copy, as a ranker may hand out what it keeps."""
    block = ranker.scores(rows)
    if block.shape != (len(rows), num_items):
        raise InputError(f"scores(rows): expected {(len(rows), num_items)}, got {tuple(block.shape)}")
    if block.dtype not in FLOATS:  # whole numbers and half precision fit into these
        block = block.to(torch.float32 if block.is_floating_point() else torch.float64)
    scores = np.array(block.detach().cpu().numpy())
    bad = ~np.isfinite(scores)
    if bad.any():
        row, col = (int(at[0]) for at in bad.nonzero())
        raise InputError(
            f"scores[{int(rows[row])}, {col}]: expected a finite number, got {scores[row, col]} "
            "(to leave an item out of the candidates, use exclude=)"
        )
    return scores


class TaskItems:
    """Distinct items of each task, in compressed form; ``pairs`` as :func:`ranking_scores` takes them, or None."""

    def __init__(self, pairs: Any, shape: tuple[int, int], name: str) -> None:
        rows, self.cols = positive_pairs(pairs, shape, name)
        self.cells = rows * shape[1] + self.cols  # (P,) row-major numbers
        self.counts = torch.bincount(rows, minlength=shape[0])  # (M,)
        self._begin = self.counts.cumsum(0) - self.counts  # (M,)

    def of(self, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """(Q,) place of the task within ``tasks`` (R,), and (Q,) item, of all items of these tasks."""
        counts = self.counts[tasks]
        index = torch.repeat_interleave(torch.arange(len(tasks)), counts)  # (Q,)
        shift = self._begin[tasks] - (counts.cumsum(0) - counts)  # (R,)
        return index, self.cols[torch.arange(len(index)) + shift[index]]


def check_metric(value: Any, name: str = "metric") -> str:
    """The name of a metric that can be optimised, as tables have it: "AUC", or P, R, MAP, nDCG with a k."""
    metric = value.lower() if isinstance(value, str) else ""
    if not re.fullmatch(r"auc|(p|r|map|ndcg)@[1-9][0-9]{0,17}", metric):
        expected = "'AUC', or P, R, MAP or nDCG with a k, as 'MAP@100'"
        raise InputError(f"{name}: expected {expected}, got {shown(value)}")
    return str(metric.upper().replace("NDCG", "nDCG"))


def _check_disjoint(positives: TaskItems, exclude: TaskItems, num_items: int) -> None:
    """A held-out positive that is no candidate could not be found, so it may not be excluded."""
    both = positives.cells[torch.isin(positives.cells, exclude.cells)]
    if len(both):
        raise InputError(
            f"exclude: expected pairs that are not held-out positives, got {divmod(int(both[0]), num_items)} in both "
            f"({len(both)} such pairs of {len(positives.cells)} positives)"
        )


def _block_metrics(scores: np.ndarray, task: Tensor, item: Tensor, num_excluded: Tensor, k: int) -> dict[str, Tensor]:
    """AUC (R,), NaN where every candidate is a positive, and the curves (R, k) of one block of tasks.

    :param scores: (R, N), sorted in place; excluded items are minus infinity, all others finite.
    :param task: (P,) ascending place of each positive's task in the block; every task occurs. Its column is ``item``.
    :param num_excluded: (R,).
    :param k: length of the curves; may exceed N.
    """
    num_tasks, num_items = scores.shape
    total = torch.bincount(task, minlength=num_tasks)  # (R,) positives, G in the formulas
    index = torch.arange(len(task)) - (total.cumsum(0) - total)[task]  # (P,) among those of its task
    own = torch.zeros(num_tasks, int(total.max()), dtype=torch.from_numpy(scores).dtype)  # (R, max G), padded
    own[task, index] = torch.from_numpy(scores)[task, item]
    scores.sort(axis=1)  # values only: several times faster than torch.sort, which carries positions along
    ordered = torch.from_numpy(scores)

    below = torch.searchsorted(ordered, own)[task, index]  # (P,) items with a lower score, excluded ones too
    upto = torch.searchsorted(ordered, own, right=True)[task, index]  # (P,) and those with the same score
    # against all candidates, ties counted 1/2; among themselves the G positives of a task always have G (G - 1) / 2
    against = (below - num_excluded[task]).double() + (upto - below - 1) / 2  # (P,) exact: multiples of 1/2
    won = torch.zeros(num_tasks, dtype=torch.float64).index_add_(0, task, against) - total * (total - 1) / 2
    area = won / (total * (num_items - num_excluded - total))  # 0 / 0 = NaN without any other candidate

    width = min(k, num_items)
    top = ordered[:, num_items - width :].flip(1).contiguous()  # (R, width) best scores, descending
    ahead = num_items - torch.searchsorted(ordered, top, right=True)  # (R, width) a: items ahead of the ties
    size = num_items - torch.searchsorted(ordered, top) - ahead  # (R, width) n
    # positives, each at the first place of its ties; beyond the last candidate there are none
    first = torch.zeros(num_tasks, width, dtype=torch.float64)
    listed = num_items - upto < width
    unit = torch.ones((), dtype=torch.float64)
    first.index_put_((task[listed], (num_items - upto)[listed]), unit, accumulate=True)
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
    return {
        "auc": area,
        "precision": hits / rank,
        "recall": hits / best,
        "average_precision": precision_at_hits.cumsum(1) / best,
        "ndcg": (share * discount).cumsum(1) / discount.cumsum(0)[best - 1],
    }


# One metric at a time: for several of them, ranking_scores does the work once. ------------------


def auc(scores: Any, positives: Any, *, exclude: Any = None) -> Tensor:
    """(M,): the area under each task's ROC curve, ties counted 1/2; NaN where it is not defined.

    :param scores: (M, N) tensor or array, or a posterior.
    :param positives: held-out positives: an ``ObservedMatrix`` or a pair (rows, cols).
    :param exclude: training positives, in the same form; they are no candidates.

    Example:
        >>> import mvgp.metrics
        >>> mvgp.metrics.auc([[0.5, 0.5, 0.1], [1.0, 2.0, 3.0]], ([0], [1])).tolist()
        [0.75, nan]

    """
    return ranking_scores(scores, positives, exclude=exclude, k=1).auc


def precision_at(scores: Any, positives: Any, k: int, *, exclude: Any = None) -> Tensor:
    r"""(M,): :math:`P@k = \frac1k \sum_{l \le k} h_l` of each task, :math:`h_l` whether place l holds a positive.

    :param scores: as for :func:`auc`.
    :param positives: held-out ones.
    :param k: length of the list.
    :param exclude: training positives.
    """
    return ranking_scores(scores, positives, exclude=exclude, k=k).precision[:, -1]


def recall_at(scores: Any, positives: Any, k: int, *, exclude: Any = None) -> Tensor:
    r"""(M,): :math:`R@k = \sum_{l \le k} h_l / \min(G, k)` of each task with G positives.

    :param scores: as for :func:`auc`.
    :param positives: held-out ones.
    :param k: length of the list.
    :param exclude: training positives.
    """
    return ranking_scores(scores, positives, exclude=exclude, k=k).recall[:, -1]


def average_precision_at(scores: Any, positives: Any, k: int, *, exclude: Any = None) -> Tensor:
    r"""(M,): :math:`AP@k = \sum_{l \le k} h_l\, P@l / \min(G, k)` of each task; its average is MAP@k.

    :param scores: as for :func:`auc`.
    :param positives: held-out ones.
    :param k: length of the list.
    :param exclude: training positives.
    """
    return ranking_scores(scores, positives, exclude=exclude, k=k).average_precision[:, -1]


def ndcg_at(scores: Any, positives: Any, k: int, *, exclude: Any = None) -> Tensor:
    r"""(M,): nDCG@k of each task, the sum of :math:`h_l / \log_2(l + 1)` relative to that of a perfect list.

    :param scores: as for :func:`auc`.
    :param positives: held-out ones.
    :param k: length of the list.
    :param exclude: training positives.
    """
    return ranking_scores(scores, positives, exclude=exclude, k=k).ndcg[:, -1]
