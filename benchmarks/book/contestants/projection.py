"""Projection of the scores of many lists onto those with every positive above every negative."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import isotonic_regression
from torch import Tensor

from mvgp.likelihoods import OrderProjection

MARGIN, KEPT = 1.0, 1000


def _lists(scores: int, lists: int, positive: float) -> tuple[Tensor, Tensor, Tensor, np.ndarray]:
    """Scores, which are positive, the list of each, and where lists begin: their sizes follow a power law."""
    rng = np.random.default_rng(0)
    share = 1.0 / (np.arange(lists) + 1.0) ** 0.8
    sizes = np.maximum(1, np.floor(scores * share / share.sum())).astype(int)
    sizes[0] += scores - sizes.sum()
    rng.shuffle(sizes)
    values = torch.from_numpy(rng.standard_normal(scores))
    labels = torch.from_numpy(rng.random(scores) < positive)
    return values, labels, torch.from_numpy(np.repeat(np.arange(lists), sizes)), np.concatenate([[0], np.cumsum(sizes)])


def order_projection(scores: int, lists: int, positive: float, warm: bool) -> Callable[[], dict]:
    """``warm`` starts from the thresholds of scores nearby, as in the next step of a solver: both are projected in turns."""
    values, labels, task, _ = _lists(scores, lists, positive)
    project = OrderProjection(labels, task, MARGIN)
    nearby = values + 0.02 * torch.randn(scores, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turns, kept = [values, nearby], project(values)[:KEPT].tolist()

    def run() -> dict:
        if warm:
            turns.reverse()
        else:
            project.reset_warm_start()
        project(turns[0])
        return {"scores": kept}

    return run


def sort(scores: int, lists: int, positive: float) -> Callable[[], dict]:
    """The floor: one sort of all scores."""
    values, *_ = _lists(scores, lists, positive)

    def run() -> dict:
        torch.sort(values)
        return {}

    return run


def isotonic_loop(scores: int, lists: int, positive: float) -> Callable[[], dict]:
    """One call of scipy for each list, on its sorted negatives followed by its sorted positives less the margin."""
    values, labels, _, ends = _lists(scores, lists, positive)
    psi, top = values.numpy(), labels.numpy()

    def run() -> dict:
        found = np.empty_like(psi)
        for first, last in itertools.pairwise(ends):
            own, high = psi[first:last], top[first:last]
            low, up = np.flatnonzero(~high), np.flatnonzero(high)
            order = np.concatenate([low[np.argsort(own[low])], up[np.argsort(own[up])]])
            margin = MARGIN * high[order]
            found[first + order] = isotonic_regression(own[order] - margin).x + margin
        return {"scores": found[:KEPT].tolist()}

    return run
