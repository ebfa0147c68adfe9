r"""The probability that noisy scores come out in the right order: positives over negatives, exactly.

With :math:`r_t \sim N(\psi_t, s_t^2)` independent, the event "every positive is at least every negative" is one
integral over the place t of the highest negative:

.. math:: P = \int \frac{d}{dt}\Big[\prod_{neg} \Phi\big(\tfrac{t - \psi}{s}\big)\Big]
          \prod_{pos} \Phi\big(\tfrac{\psi - t}{s}\big)\, dt

The integrand is smooth and dies off on both sides, so the trapezoidal rule converges faster than any power: with
the nodes here to about 12 digits. All in logarithms; one integral for each list, all lists at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

NODES = 96  # of the trapezoidal rule
ZOOM = 17  # places tried in each round of the search for the peak
ROUNDS = 8  # of that search: each narrows the range 8 times
DROP = 40.0  # the integrand is followed until it is e^-40 of its peak


def log_normal_density(standard: Tensor) -> Tensor:
    """Logarithm of the standard normal density."""
    return -standard.square() / 2 - math.log(2 * math.pi) / 2


class ListSums:
    """Sums, largest values and sums of exponentials over lists: (..., T) to (..., L).

    :param list_of: (T,) the list of each entry.
    :param num_lists: L.
    """

    def __init__(self, list_of: Tensor, num_lists: int) -> None:
        self.list_of, self.num_lists = list_of, num_lists

    def sum(self, values: Tensor) -> Tensor:
        """(..., L)"""
        return values.new_zeros(*values.shape[:-1], self.num_lists).index_add(-1, self.list_of, values)

    def amax(self, values: Tensor) -> Tensor:
        """(..., L), -inf for an empty list; without a gradient."""
        values = values.detach()
        index = self.list_of.expand(values.shape)
        start = values.new_full((*values.shape[:-1], self.num_lists), -torch.inf)
        return start.scatter_reduce(-1, index, values, "amax")

    def logsumexp(self, values: Tensor) -> Tensor:
        """(..., L); a number far below any other, not -inf, where all values are -inf."""
        top = self.amax(values)
        top = torch.where(top.isfinite(), top, 0.0)
        total = self.sum((values - self.spread(top)).exp())
        return top + total.clamp(min=torch.finfo(values.dtype).tiny).log()

    def spread(self, values: Tensor) -> Tensor:
        """(..., T) from (..., L)."""
        return values.index_select(-1, self.list_of)


def log_probability_in_order(scores: Tensor, scale: Tensor, positive: Tensor, sums: ListSums) -> Tensor:
    """(..., L) log P of the module's docstring; 0 for lists with one kind of label.

    :param scores: (..., T) psi.
    :param scale: (T,) s, standard deviations.
    :param positive: bool, broadcasts to (..., T).
    :param sums: which entry belongs to which list.
    """
    positive = positive.expand(scores.shape)
    sign = torch.where(positive, 1.0, -1.0).to(scores.dtype)
    kinds = sums.sum(positive.to(scores.dtype)), sums.sum((~positive).to(scores.dtype))
    mixed = (kinds[0] > 0) & (kinds[1] > 0)  # (..., L)

    def integrand(at: Tensor, scores: Tensor, scale: Tensor) -> Tensor:
        """(..., L) logarithm of the integrand at places ``at`` (..., L)."""
        standard = sign * (scores - sums.spread(at)) / scale
        below = torch.special.log_ndtr(standard)
        hazard = log_normal_density(standard) - below - scale.log()
        return sums.sum(below) + sums.logsumexp(hazard.masked_fill(positive, -torch.inf))

    with torch.no_grad():
        fixed, spread = scores.detach(), scale.detach()
        reach = 9 * spread
        left = -sums.amax(-(fixed - reach))
        right = sums.amax(fixed + reach)
        peak, top, ends = _find_peak(lambda at: integrand(at, fixed, spread), left, right)
        left, right = (_find_drop(lambda at: integrand(at, fixed, spread), peak, end, top - DROP) for end in ends)
        step = (right - left) / (NODES - 1)
    values = torch.stack([integrand(left + step * number, scores, scale) for number in range(NODES)])
    return torch.where(mixed, values.logsumexp(0) + step.log(), 0.0)


def _find_peak(
    function: Callable[[Tensor], Tensor], left: Tensor, right: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Place and height of the peak between ``left`` and ``right``, and these two."""
    ends = left, right
    peak, top = left, function(left)
    for _ in range(ROUNDS):
        step = (right - left) / (ZOOM - 1)
        for number in range(ZOOM):
            at = left + step * number
            height = function(at)
            better = height > top
            peak, top = torch.where(better, at, peak), torch.where(better, height, top)
        left, right = torch.maximum(peak - step, ends[0]), torch.minimum(peak + step, ends[1])
    return peak, top, ends


def _find_drop(function: Callable[[Tensor], Tensor], inside: Tensor, outside: Tensor, height: Tensor) -> Tensor:
    """A place between the two where the function is a little below ``height``, or ``outside``."""
    inner, outer = inside, outside
    for _ in range(12):
        middle = (inner + outer) / 2
        low = function(middle) < height
        inner, outer = torch.where(low, inner, middle), torch.where(low, middle, outer)
    return outer
