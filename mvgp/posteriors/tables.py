r"""Answers about a row: samples, and tables of its best items and of those to measure next for a certain top k.

With p the probability of an item to be in the top k, :math:`p (1 - p)` says how open that is. The uncertainty of the
top is :math:`U = \sum_i p_i (1 - p_i) S_{ii}`: variances, weighted by how much depends on them. Measuring item j with
noise variance v turns S into :math:`S - S_{:j} S_{j:} / (S_{jj} + v)` whatever the outcome, so that

.. math:: \text{gain}(j) = \sum_i p_i (1 - p_i) \frac{S_{ij}^2}{S_{jj} + v}

is the exact fall of U with the weights held fixed: an item is worth measuring if it is open itself, or correlated with
open ones. Several items are chosen one after the other, S updated in between, so that the second is not a copy of the
first. The weights stay, since how they move depends on outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class RowSamples:
    """Joint samples of a row, and how they were drawn.

    :param items: (C,) the items that were sampled, ascending.
    :param values: (S, C).
    :param candidates: how many items could have been sampled.
    :param method: ``joint``, ``row`` or ``contenders``.
    :param dropped: bound on the probability that an item which was not sampled is in the top k.
    :param observations: how many the samples are conditioned on.
    :param left_out: bound on what the observations that were left out would take from any variance; None where nobody
        knows, if some were left out.
    """

    items: Tensor
    values: Tensor
    candidates: int
    method: str
    dropped: float
    observations: int
    left_out: float | None

    def __repr__(self) -> str:
        count, size = self.values.shape
        return f"RowSamples({count} samples of {size} of {self.candidates} items, {self.method})"


@dataclass(frozen=True, eq=False, repr=False)
class ItemTable:
    """A table with a line for each of I items; ``heading`` says what the number of a line means."""

    heading: ClassVar[str]
    further: ClassVar[tuple[str, ...]]  # fields (I,) of the subclass
    items: Tensor
    names: tuple[str, ...] | None
    mean: Tensor
    std: Tensor
    top_probability: Tensor

    def __len__(self) -> int:
        return len(self.items)

    def to_frame(self) -> pd.DataFrame:
        """A pandas frame with a line for each item; its index counts them from 1."""
        import pandas as pd

        columns: dict[str, Any] = {"item": self.items.tolist()}
        if self.names is not None:
            columns["name"] = list(self.names)
        for name in ("mean", "std", "top_probability", *self.further):
            columns[name] = getattr(self, name).tolist()
        return pd.DataFrame(columns, index=pd.RangeIndex(1, len(self) + 1, name=self.heading))

    def _text(self, k: int, last: tuple[str, list[str]]) -> str:
        """The table as text; the last column is its heading and I entries."""
        columns = [
            (self.heading, [str(number + 1) for number in range(len(self))]),
            ("item", [str(item) for item in self.items.tolist()]),
            *([] if self.names is None else [("name", list(self.names))]),
            ("mean", [f"{value:.3g}" for value in self.mean.tolist()]),
            ("std", [f"{value:.3g}" for value in self.std.tolist()]),
            (f"P(top {k})", [f"{value:.3f}" for value in self.top_probability.tolist()]),
            last,
        ]
        padded = []
        for heading, entries in columns:
            width = max(len(entry) for entry in (heading, *entries))
            padded.append([f"{entry:>{width}}" for entry in (heading, *entries)])
        return "\n".join("  ".join(line) for line in zip(*padded, strict=True))


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
        >>> from mvgp.posteriors.tables import TopTable
        >>> items, mean = torch.tensor([2, 0]), torch.tensor([0.9, 0.4])
        >>> low, high = items * 0 + 1, items + 1
        >>> print(TopTable(items, ("BRCA2", "TP53"), mean, mean / 4, mean, low, high, k=2, level=0.9))
        place  item   name  mean    std  P(top 2)  90% ranks
            1     2  BRCA2   0.9  0.225     0.900        1-3
            2     0   TP53   0.4    0.1     0.400        1-1

    """

    heading: ClassVar[str] = "place"
    further: ClassVar[tuple[str, ...]] = ("rank_low", "rank_high")
    rank_low: Tensor
    rank_high: Tensor
    k: int
    level: float

    def __str__(self) -> str:
        pairs = zip(self.rank_low.tolist(), self.rank_high.tolist(), strict=True)
        return self._text(self.k, (f"{100 * self.level:g}% ranks", [f"{low}-{high}" for low, high in pairs]))

    def __repr__(self) -> str:
        return f"TopTable({len(self)} items, P(top {self.k}))"


@dataclass(frozen=True, eq=False, repr=False)
class TestPlan(ItemTable):
    """Items of a row to measure, the most useful first.

    :param items: (I,) column of each item.
    :param names: their I names, or None.
    :param mean: (I,) posterior mean.
    :param std: (I,) posterior standard deviation, before any measurement.
    :param top_probability: (I,) probability of being among the k best candidates.
    :param gain: (I,) share of the uncertainty of the top k that goes with this measurement, after those before it.
    :param k: how many places the top has.
    """

    __test__ = False  # for pytest, which collects classes by their names

    heading: ClassVar[str] = "order"
    further: ClassVar[tuple[str, ...]] = ("gain",)
    gain: Tensor
    k: int

    def __str__(self) -> str:
        return self._text(self.k, ("gain", [f"{value:.1%}" for value in self.gain.tolist()]))

    def __repr__(self) -> str:
        return f"TestPlan({len(self)} items, {float(self.gain.sum()):.0%} of the uncertainty of the top {self.k})"


def plan_tests(
    covariance: Tensor, at_top: Tensor, items: Tensor, mean: Tensor, noise: float, count: int, k: int, names: Any = None
) -> TestPlan:
    """Choose ``count`` items one after the other by their gain.

    :param covariance: (C, C) joint posterior covariance of the candidates.
    :param at_top: (C,) their probabilities of being in the top k.
    :param items: (C,) their columns.
    :param mean: (C,) their posterior means.
    :param noise: variance of a measurement.
    """
    remaining, weight = covariance.clone(), (at_top * (1 - at_top)).clamp_min(0).to(covariance)
    std = covariance.diagonal().clamp_min(0).sqrt()
    total = float((weight * covariance.diagonal()).sum())
    open_ = torch.ones_like(at_top, dtype=torch.bool)
    chosen, gains = [], []
    for _ in range(min(count, len(items))):
        gain = (weight @ remaining.square()) / (remaining.diagonal().clamp_min(0) + noise)
        best = int(torch.where(open_, gain, -torch.ones_like(gain)).argmax())
        chosen.append(best)
        gains.append(float(gain[best]) / total if total > 0 else 0.0)
        open_[best] = False
        column = remaining[:, best].clone()
        remaining.addr_(column, column, alpha=-1 / (float(column[best].clamp_min(0)) + noise))
    at = torch.tensor(chosen, device=items.device)
    picked = items[at]
    return TestPlan(
        items=picked,
        names=None if names is None else tuple(names[item] for item in picked.tolist()),
        mean=mean[at],
        std=std[at].to(mean),
        top_probability=at_top[at],
        gain=torch.tensor(gains, dtype=torch.float64, device=items.device),
        k=k,
    )
