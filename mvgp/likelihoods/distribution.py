r"""RankedLevels and RankedLabels: the generative model of a ranking, as torch distributions.

1. Noisy scores :math:`r_t \sim N(\psi_t, \sigma^2 / w_t)`, independent.
2. For each list, how many entries each level has. Either given, or uniform over all possibilities
   (for two levels: the number of positives is uniform on 0, ..., n).
3. The entries with the highest scores get the highest level, and so on down.

Given the counts the labels are the only ones that agree with the order of the scores, which is the paper's likelihood
(nonzero if and only if every positive is at least every negative), normalised. So
:math:`\log p(y \mid \psi) = \log p(counts) + \log P(r \text{ has the order of } y)`.

**Two levels.** The event "every positive is at least every negative" is one integral over the position t of the highest
negative, with :math:`r_t \sim N(\psi_t, s_t^2)`:

.. math:: P = \int \frac{d}{dt}\Big[\prod_{neg} \Phi\big(\tfrac{t - \psi}{s}\big)\Big]
          \prod_{pos} \Phi\big(\tfrac{\psi - t}{s}\big)\, dt

The integrand is smooth and dies off on both sides, so the trapezoidal rule converges faster than any power, here to
about 12 digits. All in logarithms; one integral for each list, all lists at once.

**Several levels.** Going up from the lowest level, let :math:`f_k(t)` be the density of "levels 0 to k are in order,
and the highest score of level k is at t":

.. math:: f_k(t) = \int_{-\infty}^{t} f_{k-1}(u)\, \frac{d}{dt} \prod_{j \in k} \big[\Phi_j(t) - \Phi_j(u)\big]\, du

The top level closes the chain as above. On a grid of Q points a step between levels takes :math:`Q^2 n` operations:
this is for lists of tens of entries. The inner integral ends where its integrand need not vanish; four corrected
weights at that end (Gregory's rule) bring the error down to the order of (step / s)^5, about six digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..checks import check_instance, check_whole_number
from ..errors import InputError, SizeError
from ..tensor_checks import check_index, check_sizes, check_weights, check_whole
from .lists import check_labels, check_many_scores

# Two levels
NODES = 96  # of the trapezoidal rule
ZOOM = 17  # points tried in each round of the search for the peak
ROUNDS = 8  # of that search: each narrows the range 8 times
DROP = 40.0  # the integrand is followed until it is e^-40 of its peak
# Several levels
FINENESS = 5  # grid points for each standard deviation
REACH = 7.0  # standard deviations beyond the outermost scores
MAX_GRID = 4_000  # grid points
GREGORY = (251 / 720, 897 / 720, 633 / 720, 739 / 720)  # weights of the last points of the trapezoidal rule
BLOCK_CELLS = 2**22  # numbers in one temporary array


def log_normal_density(standard: Tensor) -> Tensor:
    """Logarithm of the standard normal density."""
    return -standard.square() / 2 - math.log(2 * math.pi) / 2


class ListSums:
    """Sums, largest values and sums of exponentials over L lists, ``list_of`` (T,): (..., T) to (..., L)."""

    def __init__(self, list_of: Tensor, num_lists: int) -> None:
        self.list_of, self.num_lists = list_of, num_lists

    def sum(self, values: Tensor) -> Tensor:
        """(..., L)"""
        return values.new_zeros(*values.shape[:-1], self.num_lists).index_add(-1, self.list_of, values)

    def amax(self, values: Tensor) -> Tensor:
        """(..., L), -inf for an empty list; without a gradient."""
        start = values.new_full((*values.shape[:-1], self.num_lists), -torch.inf)
        return start.scatter_reduce(-1, self.list_of.expand(values.shape), values.detach(), "amax")

    def logsumexp(self, values: Tensor) -> Tensor:
        """(..., L); a number far below any other, not -inf, where all values are -inf."""
        top = self.amax(values).nan_to_num(0.0, 0.0, 0.0)
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
    """
    positive = positive.expand(scores.shape)
    sign = torch.where(positive, 1.0, -1.0).to(scores.dtype)
    mixed = (sums.sum(positive.long()) > 0) & (sums.sum((~positive).long()) > 0)  # (..., L)

    def integrand(at: Tensor, scores: Tensor, scale: Tensor) -> Tensor:
        """(..., L) logarithm of the integrand at points ``at`` (..., L)."""
        standard = sign * (scores - sums.spread(at)) / scale
        below = torch.special.log_ndtr(standard)
        hazard = log_normal_density(standard) - below - scale.log()
        return sums.sum(below) + sums.logsumexp(hazard.masked_fill(positive, -torch.inf))

    with torch.no_grad():
        fixed, spread = scores.detach(), scale.detach()
        ends = -sums.amax(9 * spread - fixed), sums.amax(fixed + 9 * spread)
        peak, top = _find_peak(lambda at: integrand(at, fixed, spread), *ends)
        left, right = (_find_drop(lambda at: integrand(at, fixed, spread), peak, end, top - DROP) for end in ends)
        step = (right - left) / (NODES - 1)
    values = torch.stack([integrand(left + step * number, scores, scale) for number in range(NODES)])
    return torch.where(mixed, values.logsumexp(0) + step.log(), 0.0)


def _find_peak(function: Callable[[Tensor], Tensor], left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Position and height of the peak between ``left`` and ``right``."""
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
    return peak, top


def _find_drop(function: Callable[[Tensor], Tensor], inside: Tensor, outside: Tensor, height: Tensor) -> Tensor:
    """A point between the two where the function is a little below ``height``, or ``outside``."""
    inner, outer = inside, outside
    for _ in range(12):
        middle = (inner + outer) / 2
        low = function(middle) < height
        inner, outer = torch.where(low, inner, middle), torch.where(low, middle, outer)
    return outer


def log_chain_probability(scores: Tensor, scale: Tensor, level: Tensor) -> Tensor:
    """(B,) log P that every level of one list is above the lower ones: scores (B, n), scale (n,), level (n,)."""
    groups = [(level == value).nonzero().squeeze(1) for value in torch.unique(level)]
    if len(groups) < 2:
        return scores.new_zeros(scores.shape[0])
    with torch.no_grad():
        widest, narrowest = float(scale.max()), float(scale.min())
        left, right = float(scores.min()) - REACH * widest, float(scores.max()) + REACH * widest
    points = int((right - left) / narrowest * FINENESS) + 2
    if points > MAX_GRID:
        raise SizeError(
            f"a list with scores over {right - left:.3g} and noise {narrowest:.3g} needs a grid of {points} "
            f"points, more than {MAX_GRID}; with two levels there is no such limit"
        )
    grid = torch.linspace(left, right, points, dtype=scores.dtype, device=scores.device)
    block = max(1, BLOCK_CELLS // (points * points * max(group.numel() for group in groups)))
    return torch.cat([_chain(some, scale, groups, grid) for some in scores.split(block)])


def _chain(scores: Tensor, scale: Tensor, groups: list[Tensor], grid: Tensor) -> Tensor:
    """(B,) the recursion of the module's docstring on ``grid`` (Q,), in logarithms."""
    step = (grid[1] - grid[0]).log()
    rule = _end_rule(grid).log()  # (Q, Q): weights of u for each t

    def at_grid(group: Tensor) -> tuple[Tensor, Tensor]:
        """(B, Q, n) log Phi and log of the density of each score of a level."""
        standard = (grid[:, None] - scores[:, None, group]) / scale[group]
        return torch.special.log_ndtr(standard), log_normal_density(standard) - scale[group].log()

    below, density = at_grid(groups[0])
    highest = below.sum(-1) + (density - below).logsumexp(-1)  # (B, Q) log f_0
    for group in groups[1:-1]:
        below, density = at_grid(group)
        if group.numel() == 1:
            inner = density.expand(-1, -1, grid.numel())  # (B, t, u): a single score only has to lie above u
        else:
            gap = _log_difference(below[:, :, None, :], below[:, None, :, :])  # (B, t, u, n)
            inner = gap.sum(-1) + (density[:, :, None, :] - gap).logsumexp(-1)
        highest = (highest[:, None, :] + inner + rule).logsumexp(-1) + step
    standard = (scores[:, None, groups[-1]] - grid[:, None]) / scale[groups[-1]]
    return (highest + torch.special.log_ndtr(standard).sum(-1)).logsumexp(-1) + step


def _end_rule(grid: Tensor) -> Tensor:
    """(Q, Q) weights of the integral over u up to t; a tiny number stands for 0 so that logarithms stay finite."""
    size = grid.numel()
    weights = torch.ones(size, size, dtype=grid.dtype, device=grid.device).tril()
    for back, weight in enumerate(GREGORY):
        weights.diagonal(-back).fill_(weight)
    return weights.clamp(min=torch.finfo(grid.dtype).tiny)


def _log_difference(larger: Tensor, smaller: Tensor) -> Tensor:
    """log(exp(larger) - exp(smaller)) where that is positive, and a very low number elsewhere."""
    ratio = (smaller - larger).clamp(max=-1e-30)
    positive = smaller < larger
    return torch.where(positive, larger + torch.log(-torch.expm1(torch.where(positive, ratio, -1.0))), -1e5)


class RankedLevels(Distribution):
    r"""Levels 0, ..., K - 1 of the entries of some lists.

    :math:`\log p(y \mid \psi)` is :math:`\log p(\text{counts})` plus :math:`\log P(r \text{ has the order of } y)`
    of noisy scores r.

    :param scores: (..., T) psi.
    :param list_of: (T,) the list of each entry, in [0, L).
    :param num_lists: L.
    :param scale: (T,) standard deviation of the noise of each score.
    :param num_levels: K >= 2.
    :param counts: (L, K) how many entries of each level a list has, or None when they are random.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import RankedLevels
        >>> two = torch.zeros(2, dtype=torch.float64)  # one list of two entries with equal scores
        >>> levels = RankedLevels(two, torch.tensor([0, 0]), 1, two + 1.0, 2, counts=torch.tensor([[1, 1]]))
        >>> round(levels.log_prob(torch.tensor([1, 0])).exp().item(), 6)  # either may be on top
        0.5

    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    has_rsample = False

    def __init__(
        self,
        scores: Tensor,
        list_of: Tensor,
        num_lists: int,
        scale: Tensor,
        num_levels: int,
        counts: Tensor | None = None,
    ) -> None:
        scores = check_many_scores(scores)
        num_lists = check_whole_number(num_lists, "num_lists")
        num_levels = check_whole_number(num_levels, "num_levels", 2)
        list_of = check_index(list_of, num_lists, "list_of")
        if len(list_of) != scores.shape[-1]:
            raise InputError(f"list_of: expected {scores.shape[-1]} numbers, one for each score, got {len(list_of)}")
        check_instance(scale, "scale", Tensor, "a tensor")
        check_weights(scale, len(list_of), name="scale", each="score", keep_gradient=True)
        sizes = torch.bincount(list_of, minlength=num_lists)  # (L,)
        if counts is not None:
            counts = check_whole(counts, "counts")
            shape = tuple(counts.shape)
            if shape != (num_lists, num_levels) or bool((counts < 0).any()):
                raise InputError(f"counts: expected ({num_lists}, {num_levels}) counts, got shape {shape}")
            for at in (counts.sum(-1) != sizes).nonzero().flatten().tolist():
                raise InputError(f"counts: list {at} has {int(sizes[at])} entries, got counts {counts[at].tolist()}")
        self.scores, self.list_of, self.scale = scores, list_of, scale
        self.num_lists, self.num_levels, self.counts = num_lists, num_levels, counts
        self._sums, self._sizes = ListSums(list_of, num_lists), sizes
        super().__init__(scores.shape[:-1], scores.shape[-1:], validate_args=False)

    @property
    def support(self) -> Any:
        """Whole numbers below K."""
        return constraints.integer_interval(0, self.num_levels - 1)

    def expand(self, batch_shape: Any, _instance: Any = None) -> RankedLevels:
        """The same with a larger batch."""
        sizes = check_sizes(batch_shape, "batch_shape")
        old = self.scores.shape[:-1]
        if len(sizes) < len(old) or any(o not in (1, s) for o, s in zip(reversed(old), reversed(sizes), strict=False)):
            raise InputError(f"batch_shape: expected a shape that {tuple(old)} can be expanded to, got {sizes}")
        scores = self.scores.expand(*sizes, self.scores.shape[-1])
        return type(self)(scores, self.list_of, self.num_lists, self.scale, self.num_levels, self.counts)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """``(*sample_shape, ..., T)`` levels, as floating-point numbers."""
        with torch.no_grad():
            shape = torch.Size(check_sizes(sample_shape, "sample_shape")) + self.batch_shape
            size = *shape, self.scores.shape[-1]
            noisy = self.scores + self.scale * torch.randn(size, dtype=self.scores.dtype, device=self.scores.device)
            edges = self._draw_counts(shape).cumsum(-1)[..., :-1].index_select(-2, self.list_of)  # (..., T, K - 1)
            return (self._ranks(noisy)[..., None] >= edges).sum(-1).to(self.scores.dtype)

    def _ranks(self, noisy: Tensor) -> Tensor:
        """(..., T) rank of each entry in its list, 0 for the lowest score."""
        by_score = noisy.argsort(-1)
        by_list = self.list_of[by_score].argsort(dim=-1, stable=True)
        order = by_score.gather(-1, by_list)  # lists one after the other, ascending within
        start = self._sizes.cumsum(0) - self._sizes
        rank = torch.arange(noisy.shape[-1], device=noisy.device) - start[self.list_of[order]]
        return torch.empty_like(rank).scatter_(-1, order, rank)

    def _draw_counts(self, shape: torch.Size) -> Tensor:
        """(..., L, K) entries of each level; when none are given, all ways to write n as a sum of K are alike."""
        if self.counts is not None:
            return self.counts.expand(*shape, *self.counts.shape)
        # stars and bars: K - 1 bars among n + K - 1 places, distinct, all choices alike
        bars = self._sizes.new_zeros(*shape, self.num_lists, self.num_levels - 1)
        for number in range(self.num_levels - 1):
            rooms = self._sizes + number + 1  # Floyd's sampling without replacement
            draw = (torch.rand(*shape, self.num_lists, device=bars.device, dtype=torch.float64) * rooms).long()
            taken = (bars[..., :number] == draw[..., None]).any(-1)
            bars[..., number] = torch.where(taken, rooms - 1, draw)
        bars = bars.sort(-1).values
        ends = torch.cat([bars, (self._sizes + self.num_levels - 1).expand(*shape, -1)[..., None]], -1)
        return ends.diff(prepend=torch.full_like(ends[..., :1], -1), dim=-1) - 1

    def log_prob(self, value: Tensor) -> Tensor:
        """(...) joint log-probability of the levels ``value`` (..., T)."""
        return self.log_prob_of_lists(value).sum(-1)

    def log_prob_of_lists(self, value: Tensor) -> Tensor:
        """(..., L) log-probability of each list; lists are independent given the scores."""
        level = self._checked(value)
        try:
            shape = torch.broadcast_shapes(level.shape, self.scores.shape)
        except RuntimeError:
            batches = f"{tuple(level.shape[:-1])} and {tuple(self.scores.shape[:-1])}"
            raise InputError(f"value: expected a batch that fits that of the scores, got {batches}") from None
        scores = self.scores.expand(shape)
        return self._log_order(scores, level) + self._log_counts(level).to(scores.dtype)

    def _log_order(self, scores: Tensor, level: Tensor) -> Tensor:
        """(..., L) log P that the noisy scores have the order of the levels."""
        if self.num_levels == 2:
            return log_probability_in_order(scores, self.scale, level > 0, self._sums)
        flat = scores.reshape(-1, scores.shape[-1])
        rows, row_of = torch.unique(level.expand(scores.shape).reshape(flat.shape), dim=0, return_inverse=True)
        log_order = flat.new_zeros(flat.shape[0], self.num_lists)
        for number in range(self.num_lists):
            own = (self.list_of == number).nonzero().squeeze(1)
            for row, levels in enumerate(rows):  # samples that share their labels go together
                some = (row_of == row).nonzero().squeeze(1)
                value = log_chain_probability(flat[some][:, own], self.scale[own], levels[own])
                log_order = log_order.index_put((some, torch.full_like(some, number)), value)
        return log_order.reshape(*scores.shape[:-1], self.num_lists)

    def _log_counts(self, level: Tensor) -> Tensor:
        """(..., L) log p(counts): 0 or -inf when they are given, else minus log of how many there could be."""
        if self.counts is not None:
            same = torch.ones((*level.shape[:-1], self.num_lists), dtype=torch.bool, device=level.device)
            for number in range(self.num_levels):
                same &= self._sums.sum((level == number).long()) == self.counts[:, number]
            return torch.where(same, 0.0, -torch.inf)
        size, extra = self._sizes.double(), self.num_levels - 1
        ways = (size + extra + 1).lgamma() - (size + 1).lgamma() - torch.tensor(extra + 1.0).double().lgamma()
        return -ways.expand(*level.shape[:-1], -1)

    def _checked(self, value: Tensor) -> Tensor:
        level = check_labels(value, self.event_shape[0], "levels").to(self.scores.device)
        bad = level[~((level >= 0) & (level < self.num_levels) & (level == level.floor()))]
        if bad.numel():
            raise InputError(f"levels: expected whole numbers from 0 to {self.num_levels - 1}, got {bad[0].item()}")
        return level.long()


class RankedLabels(RankedLevels):
    """Labels +1 and -1 of the entries of some lists: :class:`RankedLevels` with two levels by another name.

    :param scores: (..., T) psi.
    :param list_of: (T,) the list of each entry, in [0, L).
    :param scale: (T,) standard deviation of the noise of each score.
    :param counts: (L, 2) how many negatives and positives each list has, or None when that is random.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import RankedLabels
        >>> one_list = torch.zeros(2, dtype=torch.long)
        >>> labels = RankedLabels(torch.zeros(2), one_list, 1, torch.ones(2), 2, counts=torch.tensor([[1, 1]]))
        >>> round(float(labels.log_prob(torch.tensor([1.0, -1.0])).exp()), 4)  # equal scores: either may be first
        0.5

    """

    @property
    def support(self) -> Any:
        """+1 and -1."""
        return constraints.interval(-1, 1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """``(*sample_shape, ..., T)`` of +1 and -1, as floating-point numbers."""
        return 2 * super().sample(sample_shape) - 1

    def _checked(self, value: Tensor) -> Tensor:
        labels = check_labels(value, self.event_shape[0]).to(self.scores.device)
        bad = labels[(labels != 1) & (labels != -1)]
        if bad.numel():
            raise InputError(f"labels: expected +1 and -1, got {bad[0].item()}")
        return (labels > 0).long()
