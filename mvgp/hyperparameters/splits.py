"""Splits of the data: what is fitted, and what is held out to judge the fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..checks import (
    check_between,
    check_choice,
    check_instance,
    check_seed,
    check_whole_number,
    refuse_gradient,
    shown,
    whole,
)
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..likelihoods.losses import Data


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

    Of ``PositiveUnlabelled`` data, links are split: a held-out one counts as unlabelled in the training part.

    :param data: T observations, labels or links.
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
    fold, count = _assign(len(data), folds, share, seed, "pairs")
    return _splits(data, fold.to(data.rows.device), count)


def split_rows(data: Data, *, folds: int | None = None, share: float | None = None, seed: int = 0) -> list[Split]:
    """Whole rows are held out: tasks that are new to the fit. Give ``folds`` or ``share``.

    Rows without an entry are in no part.

    :param data: T observations, labels or links.
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
    fold, count = _assign(len(rows), folds, share, seed, "rows")
    return _splits(data, fold.to(row.device)[row], count)


def make_splits(data: Data, by: str, folds: int | Sequence[Split], share: float, seed: int) -> list[Split]:
    """The splits of a validation: one with ``share`` held out if ``folds`` is 1, K of them, or those given."""
    check_data(data)
    refuse_gradient(data, "data")
    check_choice(by, "by", ("pairs", "rows"))
    number = whole(folds)
    if number is None:
        return _checked_splits(data, folds)
    folds = number
    split = split_pairs if by == "pairs" else split_rows
    return split(data, share=share, seed=seed) if folds == 1 else split(data, folds=folds, seed=seed)


def check_data(data: Any, name: str = "data") -> None:
    """Whether it is data at all."""
    check_instance(data, name, (ObservedMatrix, PositiveUnlabelled), "an ObservedMatrix or PositiveUnlabelled")


def _checked_splits(data: Data, splits: Any) -> list[Split]:
    checked = list(splits) if isinstance(splits, Sequence) else []
    if not checked or not all(isinstance(split, Split) for split in checked):
        raise InputError(f"folds: expected a positive whole number or a list of Split, got {shown(splits)}")
    for at, split in enumerate(checked):
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


def _assign(count: int, folds: Any, share: Any, seed: Any, what: str) -> tuple[Tensor, int]:
    """(count,) the split that holds each one out, -1 for none; and the number of splits."""
    if (folds is None) == (share is None):
        raise InputError(f"expected either folds or share, got folds={folds!r} and share={share!r}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(check_seed(seed)))
    if share is None:
        folds = check_whole_number(folds, "folds", 2)
        if folds > count:
            raise InputError(f"folds: expected at most {count}, the number of {what}, got {folds}: one would be empty")
        fold = torch.empty(count, dtype=torch.long)
        fold[order] = torch.arange(count) % folds
        return fold, folds
    share = check_between(share, "share")
    held_out = round(share * count)
    if not 0 < held_out < count:
        part = "held-out" if held_out == 0 else "training"
        raise InputError(f"share: {share!r} of {count} {what} leaves the {part} part empty")
    fold = torch.full((count,), -1)
    fold[order[:held_out]] = 0
    return fold, 1


def _splits(data: Data, fold: Tensor, count: int) -> list[Split]:
    return [Split(_part(data, fold != k), _part(data, fold == k)) for k in range(count)]


def _part(data: Data, chosen: Tensor) -> Data:
    """The entries where ``chosen`` (T,) is true."""
    rows, cols = data.rows[chosen], data.cols[chosen]
    names = {"row_names": data.row_names, "col_names": data.col_names}
    if isinstance(data, PositiveUnlabelled):
        return PositiveUnlabelled(rows, cols, data.shape, data.weight, **names)
    weights = None if data.weights is None else data.weights[chosen]
    return ObservedMatrix(rows, cols, data.values[chosen], data.shape, weights=weights, **names)
