"""Sampled negatives: one set of labels for links, or several independent ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..checks import (
    check_flag,
    check_instance,
    check_memory,
    check_positive,
    check_seed,
    check_shape,
    check_whole_number,
    whole,
)
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled, positive_pairs
from ..errors import InputError


def with_negatives(
    links: PositiveUnlabelled | tuple[Any, Any, tuple[int, int]],
    ratio: float = 1.0,
    *,
    seed: int = 0,
    within_rows: bool = False,
    forbidden: Any = None,
) -> ObservedMatrix:
    """Labels +1 for the links and -1 for cells drawn uniformly, without repeats, among all the others.

    :param links: ``PositiveUnlabelled``, or (rows, cols, shape).
    :param ratio: negatives for each positive; the number of them is rounded.
    :param seed: of the draw.
    :param within_rows: each row gets ``ratio`` times as many negatives as it has positives; otherwise they come from
        the whole matrix, as in the paper.
    :param forbidden: cells that are not to be drawn, with ``rows`` and ``cols`` or as a pair (rows, cols). Not the
        held-out ones: a fit that was told where they are is judged too kindly.

    Example:
        >>> import mvgp
        >>> from mvgp.hyperparameters import with_negatives
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 2], [1, 2, 0, 3], shape=(3, 4))
        >>> with_negatives(links, ratio=1.5).values.sum()
        tensor(-2., dtype=torch.float64)

    """
    rows, cols, shape, names = _read(links)
    ratio, within_rows = check_positive(ratio, "ratio"), check_flag(within_rows, "within_rows")
    check_memory(ratio * len(rows), "ratio", "as many negatives")
    positives = rows * shape[1] + cols  # (P,) sorted cell numbers
    taken = np.union1d(positives, _cells(forbidden, shape))
    rng = np.random.default_rng(check_seed(seed))
    if within_rows:
        group, per_row = np.unique(rows, return_counts=True)
        free = shape[1] - np.bincount(taken // shape[1], minlength=shape[0])[group]
        counts = np.floor(ratio * per_row + 0.5).astype(np.int64)
    else:
        group = np.zeros(1, dtype=np.int64)
        free = np.array([shape[0] * shape[1] - len(taken)])
        counts = np.floor(ratio * np.array([len(positives)]) + 0.5).astype(np.int64)
    _check_counts(counts, free, group if within_rows else None, ratio)
    at, number = draw_distinct(rng, free, counts)
    start = group[at] * shape[1]  # first cell of the row
    number = number + start - np.searchsorted(taken, start)  # place among all free cells
    # the free cell on place j has j + i before it, where i of the taken ones lie below
    cells = number + np.searchsorted(taken - np.arange(len(taken)), number, side="right")
    labelled = np.concatenate([positives, cells])
    labels = np.concatenate([np.ones(len(positives)), -np.ones(len(cells))])
    return ObservedMatrix(
        labelled // shape[1], labelled % shape[1], labels, shape, row_names=names[0], col_names=names[1]
    )


@dataclass(frozen=True)
class NegativeSets:
    """Several independent sets of negatives; the scores of the models fitted to them are averaged.

    :param sets: how many.
    :param ratio: as in :func:`with_negatives`.
    :param within_rows: as in :func:`with_negatives`.
    """

    sets: int = 1
    ratio: float = 1.0
    within_rows: bool = False

    def __post_init__(self) -> None:
        check_whole_number(self.sets, "negatives: number of sets")
        check_positive(self.ratio, "negatives: ratio")
        check_flag(self.within_rows, "negatives: within_rows")

    def draw(self, links: Any, seed: int, stream: int) -> list[ObservedMatrix]:
        """The sets for ``links``; others for each ``seed`` and each ``stream``."""
        seed, stream = check_seed(seed), check_seed(stream, "stream")
        seeds = np.random.SeedSequence([seed, stream]).generate_state(self.sets)
        options: dict[str, Any] = {"ratio": self.ratio, "within_rows": self.within_rows}
        return [with_negatives(links, seed=int(own), **options) for own in seeds]


def check_negatives(negatives: Any, data: Any) -> NegativeSets | None:
    """From a number of sets or from ``NegativeSets``; only links need negatives."""
    if negatives is None:
        return None
    sets = NegativeSets(negatives) if whole(negatives) is not None else negatives
    if not isinstance(sets, NegativeSets):
        raise InputError(f"negatives: expected a number of sets or NegativeSets, got {type(negatives).__name__}")
    check_instance(data, "negatives", PositiveUnlabelled, "links (PositiveUnlabelled) as data")
    return sets


def draw_distinct(rng: np.random.Generator, sizes: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From each group g, ``counts[g]`` distinct numbers of [0, ``sizes[g]``), every such set equally likely.

    Memory is a few times what is returned. A group that gives more than half of its numbers draws those it keeps.

    :param sizes: (G,).
    :param counts: (G,), none above its size.
    :returns: (C,) group and (C,) number, sorted; C is the sum of ``counts``.
    """
    majority = 2 * counts > sizes  # (G,)
    group, number = _few(rng, sizes, np.where(majority, sizes - counts, counts))
    listed = np.flatnonzero(majority)
    if len(listed) == 0:
        return group, number
    whole_group = np.repeat(listed, sizes[listed])
    begin = np.cumsum(sizes[listed]) - sizes[listed]  # (L,)
    whole_number = np.arange(len(whole_group)) - np.repeat(begin, sizes[listed])
    kept = majority[group]
    first = np.zeros(len(sizes), dtype=np.int64)
    first[listed] = begin
    taken = np.ones(len(whole_group), dtype=bool)
    taken[first[group[kept]] + number[kept]] = False
    group = np.concatenate([group[~kept], whole_group[taken]])
    number = np.concatenate([number[~kept], whole_number[taken]])
    order = np.lexsort((number, group))
    return group[order], number[order]


def _few(rng: np.random.Generator, sizes: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by drawing what is still missing until nothing is: as one by one with repeats ignored."""
    begin = np.cumsum(sizes) - sizes  # (G,) of each group in one long line of numbers
    cells = np.zeros(0, dtype=np.int64)
    missing = counts.astype(np.int64)
    group = np.zeros(0, dtype=np.int64)
    while missing.any():
        groups = np.repeat(np.arange(len(sizes)), missing)
        drawn = begin[groups] + rng.integers(sizes[groups])
        cells = np.unique(np.concatenate([cells, drawn]))
        group = np.searchsorted(begin, cells, side="right") - 1
        missing = counts - np.bincount(group, minlength=len(sizes))
    return group, cells - begin[group]


def _read(links: Any) -> tuple[np.ndarray, np.ndarray, tuple[int, int], tuple[Any, Any]]:
    """(P,) rows and (P,) columns, row-major sorted; the shape; names of rows and columns."""
    if isinstance(links, PositiveUnlabelled):
        rows, cols = links.rows.cpu().numpy(), links.cols.cpu().numpy()
        return rows, cols, links.shape, (links.row_names, links.col_names)
    if not isinstance(links, tuple | list) or len(links) != 3:
        raise InputError(f"links: expected PositiveUnlabelled or (rows, cols, shape), got {type(links).__name__}")
    shape = check_shape(links[2])
    pairs = positive_pairs((links[0], links[1]), shape, "links")
    if len(pairs[0]) == 0:
        raise InputError("links: expected at least one positive, got none")
    return pairs[0].numpy(), pairs[1].numpy(), shape, (None, None)


def _cells(forbidden: Any, shape: tuple[int, int]) -> np.ndarray:
    """(F,) sorted cell numbers."""
    if hasattr(forbidden, "rows") and hasattr(forbidden, "cols"):
        if tuple(getattr(forbidden, "shape", shape)) != shape:
            raise InputError(f"forbidden: expected shape {shape} as of the links, got {tuple(forbidden.shape)}")
        forbidden = (forbidden.rows, forbidden.cols)  # whatever their values
    rows, cols = positive_pairs(forbidden, shape, "forbidden")
    return torch.Tensor.numpy(rows * shape[1] + cols)


def _check_counts(counts: np.ndarray, free: np.ndarray, rows: np.ndarray | None, ratio: float) -> None:
    if counts.sum() == 0:
        raise InputError(f"ratio: {ratio!r} leaves no negative at all")
    short = counts > free
    if short.any():
        at = int(short.argmax())
        where = "the matrix" if rows is None else f"row {int(rows[at])}"
        raise InputError(
            f"ratio: {ratio!r} asks for {counts[at]} negatives in {where}, which has {free[at]} free cells"
        )
