"""TopTable: the best items of a row, and how certain that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .item_table import ItemTable


@dataclass(frozen=True, eq=False, repr=False)
class TopTable(ItemTable):
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
        >>> from mvgp.posteriors import TopTable
        >>> one, two = torch.tensor([2, 0]), torch.tensor([0.9, 0.4])
        >>> print(TopTable(one, ("BRCA2", "TP53"), two, two / 4, two, one * 0 + 1, one + 1, k=2, level=0.9))
        place  item   name  mean    std  P(top 2)  90% ranks
            1     2  BRCA2   0.9  0.225     0.900        1-3
            2     0   TP53   0.4    0.1     0.400        1-1

    """

    place: ClassVar[str] = "place"
    order: ClassVar[tuple[str, ...]] = ("mean", "std", "top_probability", "rank_low", "rank_high")

    items: Tensor
    names: tuple[str, ...] | None
    mean: Tensor
    std: Tensor
    top_probability: Tensor
    rank_low: Tensor
    rank_high: Tensor
    k: int
    level: float

    def __str__(self) -> str:
        return self._text(
            [
                ["mean", *(f"{value:.3g}" for value in self.mean.tolist())],
                ["std", *(f"{value:.3g}" for value in self.std.tolist())],
                [f"P(top {self.k})", *(f"{value:.3f}" for value in self.top_probability.tolist())],
                [
                    f"{100 * self.level:g}% ranks",
                    *(f"{a}-{b}" for a, b in zip(self.rank_low.tolist(), self.rank_high.tolist(), strict=True)),
                ],
            ]
        )

    def __repr__(self) -> str:
        return f"TopTable({len(self)} items, P(top {self.k}))"
