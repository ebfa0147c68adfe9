"""ranking_scores: every ranking metric of every task, in bounded memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import check_index, check_memory, check_whole_number, without_gradient
from ..errors import InputError
from .lists import block_metrics
from .result import CURVES, RankingScores
from .sources import ScoreSource
from .tasks import TaskItems, check_disjoint

CHUNK_CELLS = 2**22  # scores held at a time when no chunk is given


@without_gradient
def ranking_scores(
    scores: Any,
    positives: Any,
    *,
    exclude: Any = None,
    k: int = 100,
    rows: Any = None,
    chunk: int | None = None,
) -> RankingScores:
    r"""AUC, and the curves P@l, R@l, AP@l and nDCG@l for l = 1..k, of each task.

    The candidates of a task are all its items except the excluded ones. With :math:`h_l` whether the item on place l of
    the ranked list is one of the G held-out positives:

    - AUC is the share of pairs (positive, other candidate) in the right order, ties counted 1/2;
    - :math:`P@k = \frac1k \sum_{l \le k} h_l`;
    - :math:`R@k = \frac{1}{\min(G, k)} \sum_{l \le k} h_l`, so that a perfect list has 1;
    - :math:`AP@k = \frac{1}{\min(G, k)} \sum_{l \le k} h_l\, P@l`, whose average over tasks is MAP@k;
    - :math:`nDCG@k = \sum_{l \le k} \frac{h_l}{\log_2(l + 1)} \Big/ \sum_{l \le \min(G, k)} \frac{1}{\log_2(l + 1)}`.

    Equal scores within a list count by their expected value over a random order of them (:mod:`mvgp.metrics.lists`).
    A list shorter than k goes on with places that hold nothing. A task without held-out positives has NaN everywhere,
    a task without any other candidate has NaN for AUC; averages leave them out.

    :param scores: (M, N) tensor or array, finite, or a posterior (anything with ``shape`` and ``scores(rows)``).
    :param positives: held-out positives: an ``ObservedMatrix``, whose entries above 0 count, or a pair (rows, cols).
    :param exclude: training positives, in the same form; they are no candidates.
    :param k: length of the curves.
    :param rows: (R,) distinct tasks; all M when left out.
    :param chunk: tasks whose scores are held at a time; by default about 4 million scores.

    Example:
        >>> import mvgp.metrics, torch
        >>> scores = torch.tensor([[0.9, 0.1, 0.5, 0.3], [0.2, 0.2, 0.2, 0.8]])
        >>> found = mvgp.metrics.ranking_scores(scores, ([0, 1], [2, 0]), exclude=([0], [0]), k=3)
        >>> found.auc.tolist(), found.recall.tolist()[1]
        ([1.0, 0.3333333333333333], [0.0, 0.3333333333333333, 0.6666666666666666])

    """
    k = check_whole_number(k, "k")
    chunk = None if chunk is None else check_whole_number(chunk, "chunk")
    source = ScoreSource(scores)
    check_memory(float(k) * source.shape[0] * len(CURVES), "k", f"curves of length {k}")
    wanted, excluded = (
        TaskItems(given, source.shape, name) for given, name in ((positives, "positives"), (exclude, "exclude"))
    )
    check_disjoint(wanted, excluded, source.shape[1])
    tasks = _check_tasks(rows, source.shape[0])
    auc = torch.full((len(tasks),), torch.nan, dtype=torch.float64)
    curves = {name: torch.full((len(tasks), k), torch.nan, dtype=torch.float64) for name in CURVES}

    count = wanted.counts[tasks]
    ranked = count.argsort(stable=True)[int((count == 0).sum()) :]  # places; tasks alike in size share a chunk
    chunk = chunk or max(1, CHUNK_CELLS // source.shape[1])
    for start in range(0, len(ranked), chunk):
        part = ranked[start : start + chunk]
        block = source.block(tasks[part])
        task, item = excluded.of(tasks[part])
        block[task.numpy(), item.numpy()] = -torch.inf
        found = block_metrics(block, *wanted.of(tasks[part]), excluded.counts[tasks[part]], k)
        auc[part] = found.auc
        for name, curve in curves.items():
            curve[part] = getattr(found, name)
    return RankingScores(
        tasks=tasks,
        num_positives=count,
        num_candidates=source.shape[1] - excluded.counts[tasks],
        auc=auc,
        **curves,
    )


def _check_tasks(rows: Any, size: int) -> Tensor:
    """(R,) distinct tasks."""
    if rows is None:
        return torch.arange(size)
    tasks = check_index(rows, size, "rows").cpu()
    values, counts = torch.unique(tasks, return_counts=True)
    if len(values) < len(tasks):
        raise InputError(f"rows: expected distinct tasks, got {int(values[counts > 1][0])} more than once")
    return tasks
