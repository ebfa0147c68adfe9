"""Random lists for the contracts of rankings, and the nearest point of a polyhedron as a judge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor


@dataclass(frozen=True)
class ExampleLists:
    """Lists in no order: some with one level only, one with a single entry.

    :param scores: (T,) psi.
    :param level: (T,) whole numbers from 0 on.
    :param task: (T,) whole numbers, not consecutive.
    :param weight: (T,) positive.
    """

    scores: Tensor
    level: Tensor
    task: Tensor
    weight: Tensor


def example_lists(seed: int, num_levels: int, num_lists: int = 8) -> ExampleLists:
    """The same for the same ``seed``; list 0 has the lowest level only, list 1 the highest, list 2 one entry."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(2, 8, num_lists)
    sizes[2] = 1
    number = np.repeat(np.arange(num_lists), sizes)
    level = draw.integers(0, num_levels, len(number))
    level[number == 0], level[number == 1] = 0, num_levels - 1
    scores = draw.normal(size=len(number)) * draw.choice([0.3, 1.0, 5.0], num_lists)[number]
    weight, order = draw.uniform(0.2, 2.0, len(number)), draw.permutation(len(number))
    found = (scores, level, 3 * number + 1, weight)
    return ExampleLists(*(torch.from_numpy(part[order]) for part in found))


def nearest_in_polyhedron(point: np.ndarray, above: np.ndarray, least: np.ndarray, weight: np.ndarray) -> np.ndarray:
    r"""(n,) the r nearest to ``point`` (n,) with ``above`` r >= ``least``, in the norm with ``weight`` (n,).

    Least distance programming (Lawson and Hanson 1974, chapter 23): the shortest u with G u >= h follows from the
    residual of one non-negative least-squares problem, :math:`\min_{\lambda \ge 0} \|(G^T; h^T) \lambda - e_{n+1}\|`.

    :param above: (q, n).
    :param least: (q,).
    """
    if len(least) == 0:  # nothing to keep to; scipy's solver aborts the process on an empty system
        return point
    scale = 1 / np.sqrt(weight)
    system = np.vstack([(above * scale).T, least - above @ point])  # (n + 1, q)
    wanted = np.zeros(len(point) + 1)
    wanted[-1] = 1.0
    residual = system @ nnls(system, wanted, maxiter=100 * system.shape[1])[0] - wanted
    if abs(residual[-1]) < 1e-12:
        raise ValueError("the inequalities contradict each other")
    return point - scale * residual[:-1] / residual[-1]
