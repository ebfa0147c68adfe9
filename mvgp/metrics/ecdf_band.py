"""Uniformity: are the ranks of true values among posterior samples uniform, as simulation-based calibration asks?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from ..checks import check_between, check_whole_number, without_gradient
from ..errors import InputError
from ..tensor_checks import check_values, refuse_where


@without_gradient
def uniformity(values: Any, bins: int = 100, level: float = 0.95) -> Uniformity:
    r"""Are the numbers uniform between 0 and 1? Simultaneous bands of the empirical distribution function, exact.

    Under a right posterior F, the probability :math:`F(\theta)` of a true value that was drawn from the prior is
    uniform, and so is its rank r among L samples: give :math:`(r + 1/2) / (L + 1)` and L + 1 bins, or a divisor of
    that. At each edge k / bins the count of smaller values is binomial; the band holds all counts with a two-sided tail
    probability above t, the same t at all edges, so that the whole curve stays inside with probability
    ``level`` (Saeilynoja, Buerkner and Vehtari, 2022). That probability comes from a recursion over the edges, not from
    simulation. The p-value is that of the smallest tail probability.

    :param values: (Q,) from 0 to 1.
    :param bins: how many; the band has an edge between any two.
    :param level: of the band.

    Example:
        >>> import torch
        >>> from mvgp.metrics import uniformity
        >>> even = (torch.arange(200) + 0.5) / 200
        >>> uniformity(even).inside, uniformity(even.sqrt()).inside
        (True, False)

    """
    checked = check_values(values, None, "values", torch.float64).cpu()
    refuse_where((checked < 0) | (checked > 1), checked, "values", "a number from 0 to 1")
    number, share, size = check_whole_number(bins, "bins", 2, 10_000), check_between(level, "level"), len(checked)
    if size == 0:
        raise InputError("values: expected at least one, got none")
    counts = np.bincount(np.minimum((checked.numpy() * number).astype(int), number - 1), minlength=number)
    edges, below = np.arange(1, number) / number, counts.cumsum()[:-1]  # (K - 1,) each
    smallest = float(_tails(below, size, edges).min())
    p_value = (
        1 - _inside(size, edges, smallest * (1 + 1e-9)) if smallest < 1 else 1.0
    )  # ties are symmetric, but rounded
    lower, upper = _band(size, number, share)
    inside = bool(((lower <= below) & (below <= upper)).all())
    edge, ecdf, low, high = (torch.from_numpy(part) for part in (edges, below / size, lower / size, upper / size))
    return Uniformity(edge, ecdf, low, high, size, max(p_value, 0.0), inside)


@dataclass(frozen=True, eq=False)
class Uniformity:
    """An empirical distribution function beside the diagonal, with its simultaneous band.

    :param edges: (K,) where it is looked at.
    :param ecdf: (K,) share of the values below.
    :param low: (K,) lower end of the band.
    :param high: (K,) upper end.
    :param num_values: how many values there were.
    :param p_value: of the hypothesis that they are uniform.
    :param inside: whether the function is inside the band at all edges.
    """

    edges: Tensor
    ecdf: Tensor
    low: Tensor
    high: Tensor
    num_values: int
    p_value: float
    inside: bool

    @property
    def deviation(self) -> float:
        """The largest distance from the diagonal."""
        return float((self.ecdf - self.edges).abs().max())


@lru_cache(maxsize=16)
def _band(size: int, bins: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    """(K,) and (K,): smallest and largest counts of the narrowest band with this level."""
    edges = np.arange(1, bins) / bins
    low, high = (1 - level) / bins, 1 - level  # tail probabilities: by the union bound, and of one edge
    while high / low > 1 + 1e-9:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _inside(size, edges, middle) >= level else (low, middle)
    return _limits(size, edges, low)


def _tails(counts: np.ndarray, size: int, edges: np.ndarray) -> np.ndarray:
    """Two-sided tail probabilities of binomial counts."""
    return np.asarray(2 * np.minimum(stats.binom.cdf(counts, size, edges), stats.binom.sf(counts - 1, size, edges)))


def _limits(size: int, edges: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """(K,) and (K,): least and largest counts with a two-sided tail probability of ``tail`` or more; by bisection."""
    zero, end = np.zeros(len(edges), dtype=int), np.full(len(edges), size)
    low, low_end, high, high_start = zero, end, end, zero
    for _ in range(size.bit_length() + 1):
        middle = (low + low_end) // 2  # the smallest count with 2 P(X <= count) >= tail is from low to low_end
        fits = 2 * stats.binom.cdf(middle, size, edges) >= tail
        low, low_end = np.where(fits, low, np.minimum(middle + 1, size)), np.where(fits, middle, low_end)
        middle = (high_start + high + 1) // 2  # and the largest with 2 P(X >= count) >= tail from high_start to high
        fits = 2 * stats.binom.sf(middle - 1, size, edges) >= tail
        high_start, high = np.where(fits, middle, high_start), np.where(fits, high, np.maximum(middle - 1, 0))
    return low, high


def _inside(size: int, edges: np.ndarray, tail: float) -> float:
    """The probability that all counts of uniform numbers have a two-sided tail probability of at least ``tail``.

    The counts of the bins are independent Poisson numbers, given their sum: convolutions, cut to the limits.
    """
    low, high = _limits(size, edges, tail)
    step = stats.poisson.pmf(np.arange(size + 1), size / (len(edges) + 1))
    step = step[: len(step) - int((step[::-1].cumsum() < 1e-18).sum())]
    start, mass = 0, np.ones(1)  # of the count so far
    for least, most in zip(low, high, strict=True):
        grown = np.convolve(mass, step)
        end = min(most + 1, start + len(grown))
        mass, start = grown[max(least - start, 0) : end - start], max(least, start)
        if len(mass) == 0:
            return 0.0
    rest = size - start - np.arange(len(mass))
    last = stats.poisson.pmf(rest, size / (len(edges) + 1))
    return float(mass @ last / stats.poisson.pmf(size, size))
