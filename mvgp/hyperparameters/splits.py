"""Parts of the data: what is fitted, what is held out to judge the fit, and sampled negatives for links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import (
    check_between,
    check_choice,
    check_flag,
    check_instance,
    check_memory,
    check_positive,
    check_seed,
    check_whole_number,
    refuse_gradient,
    whole,
)
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled, positive_pairs
from ..errors import InputError
from ..likelihoods.losses import Data
from ..tensor_checks import check_list, check_shape


@dataclass(frozen=True, eq=False)
class Split:
    """Two parts of the same data, without a pair in common.

    :param train: what is fitted.
    :param held_out: what the fit is judged by; of labels, those above 0 are scored.
    """

    train: Data
    held_out: Data

    def __post_init__(self) -> None:
        for name in ("train", "held_out"):
            check_data(getattr(self, name), name)


def split_pairs(data: Data, *, folds: int | None = None, share: float | None = None, seed: int = 0) -> list[Split]:
    """Random pairs are held out. Give ``folds`` or ``share``.

    :param data: T observations, labels or links; a held-out link counts as unlabelled in the training part.
    :param folds: K splits; every pair is held out in one of them.
    :param share: one split, with this share of the pairs held out.
    :param seed: of the random order.

    Example:
        >>> import mvgp
        >>> from mvgp.hyperparameters import split_pairs
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 2], [1, 2, 0, 3], shape=(3, 4))
        >>> [(len(split.train), len(split.held_out)) for split in split_pairs(links, folds=2)]
        [(2, 2), (2, 2)]

    """
    check_data(data)
    return _splits(data, torch.arange(len(data)), len(data), folds, share, seed, "pairs")


def split_rows(data: Data, *, folds: int | None = None, share: float | None = None, seed: int = 0) -> list[Split]:
    """Whole rows are held out: tasks that are new to the fit. Give ``folds`` or ``share``.

    :param data: T observations, labels or links; rows without an entry are in no part.
    :param folds: K splits; every row is held out in one of them.
    :param share: one split, with this share of the rows held out.
    :param seed: of the random order.

    Example:
        >>> import mvgp
        >>> from mvgp.hyperparameters import split_rows
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 2], [1, 2, 0, 3], shape=(3, 4))
        >>> sorted(len(split.held_out) for split in split_rows(links, folds=3))
        [1, 1, 2]

    """
    check_data(data)
    rows, row = data.rows.unique(return_inverse=True)
    return _splits(data, row.cpu(), len(rows), folds, share, seed, "rows")


def make_splits(data: Data, by: str, folds: int | Sequence[Split], share: float, seed: int) -> list[Split]:
    """The splits of a validation: one with ``share`` held out if ``folds`` is 1, K of them, or those given."""
    check_data(data)
    refuse_gradient(data, "data")
    check_choice(by, "by", ("pairs", "rows"))
    if whole(folds) is not None:
        make = split_pairs if by == "pairs" else split_rows
        return make(data, share=share, seed=seed) if folds == 1 else make(data, folds=whole(folds), seed=seed)
    checked = check_list(folds, "folds", "a positive whole number or a list of Split")
    if not checked:
        raise InputError("folds: expected a positive whole number or a list of Split, got []")
    for at, split in enumerate(checked):
        check_instance(split, f"folds[{at}]", Split, "a Split")
        for name, part in (("train", split.train), ("held_out", split.held_out)):
            if type(part) is not type(data) or part.shape != data.shape:
                raise InputError(
                    f"folds[{at}].{name}: expected {type(data).__name__} of shape {data.shape}, as data, "
                    f"got {type(part).__name__} of shape {part.shape}"
                )
        train, held_out = (part.rows * data.shape[1] + part.cols for part in (split.train, split.held_out))
        both = held_out[torch.isin(held_out, train)]
        if len(both):
            pair = (int(both[0]) // data.shape[1], int(both[0]) % data.shape[1])
            raise InputError(f"folds[{at}]: expected parts without a common pair, got {pair} in both")
    return checked


def check_data(data: Any, name: str = "data") -> None:
    """Whether it is data at all."""
    check_instance(data, name, (ObservedMatrix, PositiveUnlabelled), "an ObservedMatrix or PositiveUnlabelled")


def _splits(data: Data, unit: Tensor, count: int, folds: Any, share: Any, seed: Any, what: str) -> list[Split]:
    """Splits of ``count`` units; ``unit`` (T,) is the one of each entry."""
    if (folds is None) == (share is None):
        raise InputError(f"expected either folds or share, got folds={folds!r} and share={share!r}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(check_seed(seed)))
    fold = torch.full((count,), -1)  # the split that holds each one out
    if share is None:
        folds = check_whole_number(folds, "folds", 2)
        if folds > count:
            raise InputError(f"folds: expected at most {count}, the number of {what}, got {folds}: one would be empty")
        fold[order] = torch.arange(count) % folds
    else:
        share, folds = check_between(share, "share"), 1
        held_out = round(share * count)
        if not 0 < held_out < count:
            part = "held-out" if held_out == 0 else "training"
            raise InputError(f"share: {share!r} of {count} {what} leaves the {part} part empty")
        fold[order[:held_out]] = 0
    each = fold[unit].to(data.rows.device)  # (T,)
    return [Split(_part(data, each != k), _part(data, each == k)) for k in range(folds)]


def _part(data: Data, chosen: Tensor) -> Data:
    """The entries where ``chosen`` (T,) is true."""
    rows, cols = data.rows[chosen], data.cols[chosen]
    names: dict[str, Any] = {"row_names": data.row_names, "col_names": data.col_names}
    if isinstance(data, PositiveUnlabelled):
        return PositiveUnlabelled(rows, cols, data.shape, data.weight, lists=data.lists, **names)
    weights = None if data.weights is None else data.weights[chosen]
    return ObservedMatrix(rows, cols, data.values[chosen], data.shape, weights=weights, **names)


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
    ratio, within_rows = check_positive(ratio, "ratio"), check_flag(within_rows, "within_rows")
    if isinstance(links, PositiveUnlabelled):
        shape, names, pairs = links.shape, (links.row_names, links.col_names), (links.rows, links.cols)
    elif isinstance(links, tuple | list) and len(links) == 3:
        shape, names, pairs = check_shape(links[2]), (None, None), (links[0], links[1])
    else:
        raise InputError(f"links: expected PositiveUnlabelled or (rows, cols, shape), got {type(links).__name__}")
    positives = _cells(pairs, shape, "links")  # (P,)
    if len(positives) == 0:
        raise InputError("links: expected at least one positive, got none")
    check_memory(ratio * len(positives), "ratio", "as many negatives")
    if hasattr(forbidden, "rows") and hasattr(forbidden, "cols"):
        if tuple(getattr(forbidden, "shape", shape)) != shape:
            raise InputError(f"forbidden: expected shape {shape} as of the links, got {tuple(forbidden.shape)}")
        forbidden = (forbidden.rows, forbidden.cols)  # whatever their values
    taken = np.union1d(positives, _cells(forbidden, shape, "forbidden"))
    if within_rows:
        group, per_group = np.unique(positives // shape[1], return_counts=True)
        free = shape[1] - np.bincount(taken // shape[1], minlength=shape[0])[group]
    else:
        group, per_group = np.zeros(1, dtype=np.int64), np.array([len(positives)])
        free = np.array([shape[0] * shape[1] - len(taken)])
    counts = np.floor(ratio * per_group + 0.5).astype(np.int64)
    if counts.sum() == 0:
        raise InputError(f"ratio: {ratio!r} leaves no negative at all")
    if (counts > free).any():
        short = int((counts > free).argmax())
        where = f"row {int(group[short])}" if within_rows else "the matrix"
        raise InputError(
            f"ratio: {ratio!r} asks for {counts[short]} negatives in {where}, which has {free[short]} free cells"
        )
    at, number = draw_distinct(np.random.default_rng(check_seed(seed)), free, counts)
    start = group[at] * shape[1]  # first cell of the row
    number = number + start - np.searchsorted(taken, start)  # place among all free cells
    # the free cell on place j has j + i before it, where i of the taken ones lie below
    cells = number + np.searchsorted(taken - np.arange(len(taken)), number, side="right")
    rows, cols = np.divmod(np.concatenate([positives, cells]), shape[1])
    labels = np.concatenate([np.ones(len(positives)), -np.ones(len(cells))])
    return ObservedMatrix(rows, cols, labels, shape, row_names=names[0], col_names=names[1])


def _cells(pairs: Any, shape: tuple[int, int], name: str) -> np.ndarray:
    """(P,) sorted cell numbers."""
    rows, cols = positive_pairs(pairs, shape, name)
    return torch.Tensor.numpy(rows * shape[1] + cols)


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

    Memory is a few times what is returned, (C,) group and (C,) number, sorted. A group that gives more than half of
    its numbers draws those it keeps. ``sizes`` and ``counts`` are (G,).
    """
    begin = np.cumsum(sizes) - sizes  # (G,) of each group in one long line of cells
    majority = 2 * counts > sizes
    drawn = missing = np.where(majority, sizes - counts, counts)
    cells = np.zeros(0, dtype=np.int64)
    while missing.any():  # draw what is still missing: as one by one with repeats ignored
        groups = np.repeat(np.arange(len(sizes)), missing)
        cells = np.union1d(cells, begin[groups] + rng.integers(sizes[groups]))
        missing = drawn - np.bincount(np.searchsorted(begin, cells, side="right") - 1, minlength=len(sizes))
    if majority.any():
        everything = [np.arange(begin[g], begin[g] + sizes[g]) for g in np.flatnonzero(majority)]
        cells = np.setxor1d(cells, np.concatenate(everything), assume_unique=True)
    group = np.searchsorted(begin, cells, side="right") - 1
    return group, cells - begin[group]
