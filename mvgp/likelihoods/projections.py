"""The projections of equation (8) as pure functions of tensors: all tasks at once, exact, differentiable.

Each groups the entries anew; to project many times, make an :class:`~mvgp.likelihoods.OrderProjection` (or one of its
kin) once and call it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .lists import RankingLists
from .order import LevelProjection, OrderProjection
from .simplex import SimplexProjection


def project_order(scores: Any, positive: Any, task: Any, margin: float = 0.0, weight: Any = None) -> Tensor:
    """The nearest scores with positives >= negatives + margin in every task: the order cone of equation (8).

    A task with positives only, negatives only or a single item is returned as it is.

    :param scores: (T,) finite floating-point numbers.
    :param positive: (T,) bool.
    :param task: (T,) whole numbers, in any order.
    :param margin: d >= 0.
    :param weight: (T,) positive, or None for 1.
    :return: (T,), in the precision of ``scores``.

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

    :param scores: (T,) finite floating-point numbers.
    :param positive: (T,) bool.
    :param task: (T,) whole numbers, in any order.
    :param total: c > 0.
    :param margin: d >= 0, with d times the number of positives at most ``total`` in each task that has negatives.
    :return: (T,), in the precision of ``scores``.

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

    :param scores: (T,) finite floating-point numbers.
    :param level: (T,) whole numbers, the higher the more relevant.
    :param task: (T,) whole numbers, in any order.
    :param margin: d >= 0.
    :param weight: (T,) positive, or None for 1.
    :return: (T,), in the precision of ``scores``.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import project_levels
        >>> scores, level = torch.tensor([3.0, 2.0, 1.0, 5.0]), torch.tensor([0, 1, 2, 2])
        >>> project_levels(scores, level, torch.tensor([0, 0, 0, 0])).tolist()
        [2.0, 2.0, 2.0, 5.0]

    """
    return LevelProjection(RankingLists.graded(level, task), margin, weight)(scores)
