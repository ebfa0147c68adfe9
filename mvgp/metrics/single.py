"""One metric at a time. For several of them :func:`~mvgp.metrics.ranking_scores` does the work once."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .ranking import ranking_scores


def auc(scores: Any, positives: Any, *, exclude: Any = None) -> Tensor:
    """(M,): the area under each task's ROC curve, ties counted 1/2; NaN where it is not defined.

    Arguments as in :func:`~mvgp.metrics.ranking_scores`.

    Example:
        >>> import mvgp.metrics
        >>> mvgp.metrics.auc([[0.5, 0.5, 0.1], [1.0, 2.0, 3.0]], ([0], [1])).tolist()
        [0.75, nan]

    """
    return ranking_scores(scores, positives, exclude=exclude, k=1).auc


def precision_at(scores: Any, positives: Any, k: int, *, exclude: Any = None) -> Tensor:
    """(M,): P@k of each task, hits / k. Arguments as in :func:`~mvgp.metrics.ranking_scores`."""
    return ranking_scores(scores, positives, exclude=exclude, k=k).precision[:, -1]


def recall_at(scores: Any, positives: Any, k: int, *, exclude: Any = None) -> Tensor:
    """(M,): R@k of each task, hits / min(G, k). Arguments as in :func:`~mvgp.metrics.ranking_scores`."""
    return ranking_scores(scores, positives, exclude=exclude, k=k).recall[:, -1]


def average_precision_at(scores: Any, positives: Any, k: int, *, exclude: Any = None) -> Tensor:
    """(M,): AP@k of each task; its average is MAP@k. Arguments as in :func:`~mvgp.metrics.ranking_scores`."""
    return ranking_scores(scores, positives, exclude=exclude, k=k).average_precision[:, -1]


def ndcg_at(scores: Any, positives: Any, k: int, *, exclude: Any = None) -> Tensor:
    """(M,): nDCG@k of each task. Arguments as in :func:`~mvgp.metrics.ranking_scores`."""
    return ranking_scores(scores, positives, exclude=exclude, k=k).ndcg[:, -1]
