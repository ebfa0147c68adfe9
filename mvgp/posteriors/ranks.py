"""How certain a rank is: functions of joint samples of one row, and the table that shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data.checks import as_tensor, check_index, check_no_duplicates, check_values
from ..errors import InputError

if TYPE_CHECKING:
    import pandas as pd


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
    given, places = check_samples(samples), check_count(k, "k")
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
    given, share = check_samples(samples), check_level(level)
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
    size = as_tensor(probabilities, "probabilities").numel()
    given = check_values(probabilities, size, "probabilities", torch.float64)
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
    one, other = (given[:, check_one(place, given.shape[1], name)] for place, name in ((i, "i"), (j, "j")))
    return float((one > other).double().mean() + (one == other).double().mean() / 2)


@dataclass(frozen=True, eq=False, repr=False)
class TopTable:
    """The best I items of a row by posterior mean, best first, and how certain that is.

    :param items: (I,) column of each item.
    :param names: their I names, or None.
    :param mean: (I,) posterior mean.
    :param std: (I,) posterior standard deviation.
    :param top_probability: (I,) probability of being among the k best candidates.
    :param rank_low: (I,) best rank of the credible interval.
    :param rank_high: (I,) worst rank of the credible interval.
    :param k: how many places the top has.
    :param level: probability of the credible intervals.

    Example:
        >>> import torch
        >>> from mvgp.posteriors.ranks import TopTable
        >>> one, two = torch.tensor([2, 0]), torch.tensor([0.9, 0.4])
        >>> print(TopTable(one, ("BRCA2", "TP53"), two, two / 4, two, one * 0 + 1, one + 1, k=2, level=0.9))
        place  item   name  mean    std  P(top 2)  90% ranks
            1     2  BRCA2   0.9  0.225     0.900        1-3
            2     0   TP53   0.4    0.1     0.400        1-1

    """

    items: Tensor
    names: tuple[str, ...] | None
    mean: Tensor
    std: Tensor
    top_probability: Tensor
    rank_low: Tensor
    rank_high: Tensor
    k: int
    level: float

    def __len__(self) -> int:
        return len(self.items)

    def to_frame(self) -> pd.DataFrame:
        """A pandas frame with a line for each item; its index is the place in the list, from 1."""
        import pandas as pd

        columns: dict[str, Any] = {"item": self.items.tolist()}
        if self.names is not None:
            columns["name"] = list(self.names)
        for name in ("mean", "std", "top_probability", "rank_low", "rank_high"):
            columns[name] = getattr(self, name).tolist()
        return pd.DataFrame(columns, index=pd.RangeIndex(1, len(self) + 1, name="place"))

    def __str__(self) -> str:
        columns = [
            ["place", *(str(place + 1) for place in range(len(self)))],
            ["item", *(str(item) for item in self.items.tolist())],
            ["mean", *(f"{value:.3g}" for value in self.mean.tolist())],
            ["std", *(f"{value:.3g}" for value in self.std.tolist())],
            [f"P(top {self.k})", *(f"{value:.3f}" for value in self.top_probability.tolist())],
            [
                f"{100 * self.level:g}% ranks",
                *(f"{a}-{b}" for a, b in zip(self.rank_low.tolist(), self.rank_high.tolist(), strict=True)),
            ],
        ]
        if self.names is not None:
            columns.insert(2, ["name", *self.names])
        widths = [max(len(entry) for entry in column) for column in columns]
        lines = zip(*columns, strict=True)
        return "\n".join(
            "  ".join(f"{entry:>{width}}" for entry, width in zip(line, widths, strict=True)) for line in lines
        )

    def __repr__(self) -> str:
        return f"TopTable({len(self)} items, P(top {self.k}))"


def candidates(row: int, exclude: Any, shape: tuple[int, int]) -> Tensor:
    """(C,) ascending: the items of a row that are not excluded.

    :param row: the row.
    :param exclude: as for :func:`mvgp.metrics.ranking_scores`: an ``ObservedMatrix``, whose entries above 0 count,
        anything else with ``rows`` and ``cols``, or a pair (rows, cols) of vectors; ``None`` for no items.
    :param shape: (M, N).
    """
    keep = torch.ones(shape[1], dtype=torch.bool)
    if exclude is not None:
        given_rows, given_cols = _excluded_pairs(exclude, shape)
        rows = check_index(given_rows, shape[0], "exclude rows").cpu()
        cols = check_index(given_cols, shape[1], "exclude cols").cpu()
        if len(rows) != len(cols):
            raise InputError(f"exclude: rows and cols differ in length: {len(rows)} and {len(cols)}")
        check_no_duplicates(*torch.sort(rows * shape[1] + cols, stable=True), shape[1])
        keep[cols[rows == row]] = False
    if not keep.any():
        raise InputError(f"exclude: expected at least one item of row {row} to be left, got all {shape[1]} excluded")
    return keep.nonzero().squeeze(1)


def _excluded_pairs(given: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    if hasattr(given, "rows") and hasattr(given, "cols"):
        if tuple(getattr(given, "shape", shape)) != shape:
            raise InputError(f"exclude: expected shape {shape} as in the posterior, got {tuple(given.shape)}")
        values = getattr(given, "values", None)
        if isinstance(values, Tensor):
            return given.rows[values > 0], given.cols[values > 0]
        return given.rows, given.cols
    if isinstance(given, tuple | list) and len(given) == 2:
        return given[0], given[1]
    raise InputError(f"exclude: expected an ObservedMatrix or a pair (rows, cols), got {type(given).__name__}")


def check_samples(samples: Any) -> Tensor:
    """(S, N) finite real numbers, at least one of them."""
    given = as_tensor(samples, "samples")
    if given.dim() != 2 or 0 in given.shape or given.is_complex():
        raise InputError(
            f"samples: expected real numbers of shape (S, N), got {given.dtype} of shape {tuple(given.shape)}"
        )
    bad = ~torch.isfinite(given)
    if bad.any():
        row, col = bad.nonzero()[0].tolist()
        raise InputError(f"samples[{row}, {col}]: expected a finite number, got {given[row, col].item()}")
    return given.contiguous()


def check_count(count: Any, name: str) -> int:
    """A positive whole number."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"{name}: expected a positive whole number, got {count!r}")
    return count


def check_level(level: Any) -> float:
    """A probability strictly between 0 and 1."""
    if not isinstance(level, int | float) or not 0 < level < 1:
        raise InputError(f"level: expected a number between 0 and 1, got {level!r}")
    return float(level)


def check_one(place: Any, size: int, name: str) -> int:
    """A single position in [0, size)."""
    found = check_index(place, size, name)
    if len(found) != 1:
        raise InputError(f"{name}: expected one position in [0, {size}), got {len(found)} of them")
    return int(found[0])
