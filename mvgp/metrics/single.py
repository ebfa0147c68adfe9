"""One metric at a time. For several of them :func:`~mvgp.metrics.ranking_scores` does the work once."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .ranking import ranking_scores


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

    :param scores: (M, N) tensor or array, or a posterior.
    :param positives: held-out positives: an ``ObservedMatrix`` or a pair (rows, cols).
    :param k: length of the list.
    :param exclude: training positives, in the same form; they are no candidates.

    Example:
        >>> import mvgp.metrics
        >>> mvgp.metrics.precision_at([[0.9, 0.1, 0.5]], ([0], [0]), k=2).tolist()
        [0.5]

    """
    return ranking_scores(scores, positives, exclude=exclude, k=k).precision[:, -1]


def recall_at(scores: Any, positives: Any, k: int, *, exclude: Any = None) -> Tensor:
    r"""(M,): :math:`R@k = \sum_{l \le k} h_l / \min(G, k)` of each task with G positives.

    :param scores: (M, N) tensor or array, or a posterior.
    :param positives: held-out positives: an ``ObservedMatrix`` or a pair (rows, cols).
    :param k: length of the list.
    :param exclude: training positives, in the same form; they are no candidates.

    Example:
        >>> import mvgp.metrics
        >>> mvgp.metrics.recall_at([[0.9, 0.1, 0.5]], ([0, 0], [0, 1]), k=2).tolist()
        [0.5]

    """
    return ranking_scores(scores, positives, exclude=exclude, k=k).recall[:, -1]


def average_precision_at(scores: Any, positives: Any, k: int, *, exclude: Any = None) -> Tensor:
    r"""(M,): :math:`AP@k = \sum_{l \le k} h_l\, P@l / \min(G, k)` of each task; its average is MAP@k.

    :param scores: (M, N) tensor or array, or a posterior.
    :param positives: held-out positives: an ``ObservedMatrix`` or a pair (rows, cols).
    :param k: length of the list.
    :param exclude: training positives, in the same form; they are no candidates.

    Example:
        >>> import mvgp.metrics
        >>> mvgp.metrics.average_precision_at([[0.9, 0.1, 0.5]], ([0], [2]), k=2).tolist()
        [0.5]

    """
    return ranking_scores(scores, positives, exclude=exclude, k=k).average_precision[:, -1]


def ndcg_at(scores: Any, positives: Any, k: int, *, exclude: Any = None) -> Tensor:
    r"""(M,): nDCG@k of each task, the sum of :math:`h_l / \log_2(l + 1)` relative to that of a perfect list.

    :param scores: (M, N) tensor or array, or a posterior.
    :param positives: held-out positives: an ``ObservedMatrix`` or a pair (rows, cols).
    :param k: length of the list.
    :param exclude: training positives, in the same form; they are no candidates.

    Example:
        >>> import mvgp.metrics
        >>> mvgp.metrics.ndcg_at([[0.9, 0.1, 0.5]], ([0], [0]), k=2).tolist()
        [1.0]

    """
    return ranking_scores(scores, positives, exclude=exclude, k=k).ndcg[:, -1]
