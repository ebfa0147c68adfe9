"""How certain a rank is: functions of joint samples of one row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import check_between, check_index, check_matrix, check_one_index, check_values, check_whole_number
from ..data.positive_pairs import positive_pairs
from ..errors import InputError


def top_probability(samples: Any, k: int) -> Tensor:
    """(N,): the probability that each item is among the k best of its row.

    Items that tie for the last places share them equally, so the probabilities add up to k, or to N if k exceeds N.

    :param samples: (S, N) joint samples of the N candidates of a row.
    :param k: how many places the top has.

    Example:
        >>> from mvgp.posteriors.ranks import top_probability
        >>> top_probability([[3.0, 2.0, 1.0], [3.0, 1.0, 1.0]], k=2).tolist()
        [1.0, 0.75, 0.25]

    """
    given, places = check_samples(samples), check_whole_number(k, "k")
    if places >= given.shape[1]:
        return torch.ones(given.shape[1], dtype=torch.float64, device=given.device)
    last = given.topk(places, dim=1).values[:, -1:]  # (S, 1) the score on place k
    above, level = given > last, given == last
    share = (places - above.sum(1, keepdim=True)).double() / level.sum(1, keepdim=True)  # (S, 1) in (0, 1]
    return (above.sum(0) + (share * level).sum(0)) / len(given)


def rank_interval(samples: Any, level: float = 0.9, items: Any = None) -> tuple[Tensor, Tensor]:
    """(I,) and (I,): the lowest and the highest rank of a central credible interval; rank 1 is the best.

    Of the samples, at most (1 - level) / 2 lie below the interval and as many above. A tie counts as the best of its
    ranks for the lower end and as the worst for the upper one.

    :param samples: (S, N) joint samples of the N candidates of a row.
    :param level: probability of the interval, between 0 and 1.
    :param items: (I,) positions among the candidates; all N when left out.

    Example:
        >>> from mvgp.posteriors.ranks import rank_interval
        >>> low, high = rank_interval([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0]], level=0.9)
        >>> low.tolist(), high.tolist()
        ([1, 2, 2], [1, 3, 3])

    """
    given, share = check_samples(samples), check_between(level, "level")
    num_samples, num_items = given.shape
    chosen = given
    if items is not None:
        chosen = given[:, check_index(items, num_items, "items").to(given.device)].contiguous()  # (S, I)
    ordered = given.sort(dim=1).values
    best = num_items + 1 - torch.searchsorted(ordered, chosen, right=True, out_int32=True)  # (S, I)
    worst = num_items - torch.searchsorted(ordered, chosen, out_int32=True)  # (S, I)
    # the rounding of (1 - 0.9) / 2 must not cost a sample
    cut = min(int((1 - share) / 2 * num_samples + 1e-9), (num_samples - 1) // 2)
    low = best.mT.contiguous().kthvalue(cut + 1).values
    high = worst.mT.contiguous().kthvalue(num_samples - cut).values
    return low.long(), high.long()


def expected_hits(probabilities: Any, chosen: Any) -> float:
    """How many of the chosen items are expected in the top k: the sum of their probabilities.

    :param probabilities: (N,) probability of each item to be in the top k.
    :param chosen: (C,) distinct items.

    Example:
        >>> from mvgp.posteriors.ranks import expected_hits
        >>> expected_hits([1.0, 0.75, 0.25], chosen=[0, 2])
        1.25

    """
    given = check_values(probabilities, None, "probabilities", torch.float64)
    size = len(given)
    bad = (given < 0) | (given > 1 + 1e-9)
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"probabilities[{at}]: expected a number from 0 to 1, got {given[at].item()}")
    picked = check_index(chosen, size, "chosen").to(given.device)
    values, counts = torch.unique(picked, return_counts=True)
    if len(values) < len(picked):
        raise InputError(f"chosen: expected distinct items, got {int(values[counts > 1][0])} more than once")
    return float(given[picked].sum())


def beats(samples: Any, i: int, j: int) -> float:
    """The probability that item i has a higher score than item j; a tie counts 1/2.

    :param samples: (S, N) joint samples of the N candidates of a row.
    :param i: position of the one.
    :param j: position of the other.

    Example:
        >>> from mvgp.posteriors.ranks import beats
        >>> beats([[3.0, 2.0], [1.0, 1.0]], 0, 1)
        0.75

    """
    given = check_samples(samples)
    one, other = (given[:, check_one_index(place, given.shape[1], name)] for place, name in ((i, "i"), (j, "j")))
    return float((one > other).double().mean() + (one == other).double().mean() / 2)


def candidates(row: int, exclude: Any, shape: tuple[int, int]) -> Tensor:
    """(C,) ascending: the items of a row that are not excluded.

    :param row: the row.
    :param exclude: as for :func:`mvgp.metrics.ranking_scores`: an ``ObservedMatrix``, whose entries above 0 count,
        anything else with ``rows`` and ``cols``, or a pair (rows, cols) of vectors; ``None`` for no items.
    :param shape: (M, N).
    """
    keep = torch.ones(shape[1], dtype=torch.bool)
    if exclude is not None:
        rows, cols = positive_pairs(exclude, shape, "exclude")
        keep[cols[rows == row]] = False
    if not keep.any():
        raise InputError(f"exclude: expected at least one item of row {row} to be left, got all {shape[1]} excluded")
    return keep.nonzero().squeeze(1)


def check_samples(samples: Any) -> Tensor:
    """(S, N) finite real numbers, at least one of them."""
    given = check_matrix(samples, "samples", shape="(S, N)")
    return given.contiguous()
