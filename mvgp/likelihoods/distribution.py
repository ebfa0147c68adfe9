r"""RankedLevels and RankedLabels: the generative model of a ranking, as torch distributions.

1. Noisy scores :math:`r_t \sim N(\psi_t, \sigma^2 / w_t)`, independent.
2. For each list, how many entries each level has. Either given, or uniform over all possibilities
   (for two levels: the number of positives is uniform on 0, ..., n).
3. The entries with the highest scores get the highest level, and so on down.

Given the counts of step 2 the labels are the only ones that agree with the order of the scores, which is the
paper's likelihood (nonzero if and only if every positive is at least every negative), normalised.
So :math:`\log p(y \mid \psi) = \log p(counts) + \log P(r \text{ has the order of } y)`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..checks import check_index, check_instance, check_sizes, check_weights, check_whole, check_whole_number
from ..errors import InputError
from .chain_probability import log_chain_probability
from .checks import check_labels, check_many_scores
from .order_probability import ListSums, log_probability_in_order


class RankedLevels(Distribution):
    r"""Levels 0, ..., K - 1 of the entries of some lists.

    :math:`\log p(y \mid \psi) = \log p(\text{counts}) + \log P(r \text{ has the order of } y)` with noisy scores
    :math:`r_t \sim N(\psi_t, \sigma_t^2)`; see the module.

    :param scores: (..., T) psi.
    :param list_of: (T,) the list of each entry, in [0, L).
    :param num_lists: L.
    :param scale: (T,) standard deviation of the noise of each score.
    :param num_levels: K >= 2.
    :param counts: (L, K) how many entries of each level a list has, or None when they are random.
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
        if counts is not None:
            counts = check_whole(counts, "counts")
            if tuple(counts.shape) != (num_lists, num_levels) or bool((counts < 0).any()):
                shape = tuple(counts.shape)
                raise InputError(f"counts: expected ({num_lists}, {num_levels}) counts, got shape {shape}")
        self.scores, self.list_of, self.scale = scores, list_of, scale
        self.num_lists, self.num_levels, self.counts = num_lists, num_levels, counts
        self._sums = ListSums(list_of, num_lists)
        self._sizes = torch.bincount(list_of, minlength=num_lists)  # (L,)
        if counts is not None and not torch.equal(counts.sum(-1), self._sizes):
            at = int((counts.sum(-1) != self._sizes).nonzero()[0])
            raise InputError(f"counts: list {at} has {int(self._sizes[at])} entries, got counts {counts[at].tolist()}")
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
            noisy = self.scores + self.scale * torch.randn(
                *shape, self.scores.shape[-1], dtype=self.scores.dtype, device=self.scores.device
            )
            return self._levels(self._ranks(noisy), self._draw_counts(shape)).to(self.scores.dtype)

    def _ranks(self, noisy: Tensor) -> Tensor:
        """(..., T) place of each entry in its list, 0 for the lowest score."""
        by_score = noisy.argsort(-1)
        by_list = self.list_of[by_score].argsort(dim=-1, stable=True)
        order = by_score.gather(-1, by_list)  # lists one after the other, ascending within
        start = self._sizes.cumsum(0) - self._sizes
        place = torch.arange(noisy.shape[-1], device=noisy.device) - start[self.list_of[order]]
        return torch.empty_like(place).scatter_(-1, order, place)

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

    def _levels(self, ranks: Tensor, counts: Tensor) -> Tensor:
        edges = counts.cumsum(-1)[..., :-1].index_select(-2, self.list_of)  # (..., T, K - 1)
        return (ranks[..., None] >= edges).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """(...) joint log-probability of the levels ``value`` (..., T)."""
        return self.log_prob_of_lists(value).sum(-1)

    def log_prob_of_lists(self, value: Tensor) -> Tensor:
        """(..., L) log-probability of each list; lists are independent given the scores."""
        return self._log_prob_of_lists(self._checked(value))

    def _log_prob_of_lists(self, level: Tensor) -> Tensor:
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
        found = flat.new_zeros(flat.shape[0], self.num_lists)
        for number in range(self.num_lists):
            own = (self.list_of == number).nonzero().squeeze(1)
            for row, levels in enumerate(rows):  # samples that share their labels go together
                some = (row_of == row).nonzero().squeeze(1)
                value = log_chain_probability(flat[some][:, own], self.scale[own], levels[own])
                found = found.index_put((some, torch.full_like(some, number)), value)
        return found.reshape(*scores.shape[:-1], self.num_lists)

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
        bad = ~((level >= 0) & (level < self.num_levels) & (level == level.floor()))
        if bad.any():
            raise InputError(
                f"levels: expected whole numbers from 0 to {self.num_levels - 1}, got {level[bad][0].item()}"
            )
        return level.long()


class RankedLabels(RankedLevels):
    """Labels +1 and -1 of the entries of some lists: two levels by another name.

    :param scores: (..., T) psi.
    :param list_of: (T,) the list of each entry, in [0, L).
    :param num_lists: L.
    :param scale: (T,) standard deviation of the noise of each score.
    :param num_levels: 2.
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
        bad = (labels != 1) & (labels != -1)
        if bad.any():
            raise InputError(f"labels: expected +1 and -1, got {labels[bad][0].item()}")
        return (labels > 0).long()
