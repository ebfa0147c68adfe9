r"""How wide samples of ``auto`` have to be for P(top k) to be right: a scale, and independent noise.

The Bayesian bootstrap weighs the links that are known. It does not know of links that are found later, nor that the
weights of the terms will then be others. So samples are made wider,

.. math:: \tilde s = \hat s + \tau (s - \bar s) + \sigma z,

with the score :math:`\hat s` of the list, the mean :math:`\bar s` of the samples and standard normal z, drawn for each
column and sample. Both numbers maximise the likelihood of
what happens when hidden links are added: which candidates are in the top k of the list that is fitted to all links.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Protocol

import torch
from torch import Tensor

from ...checks import check_seed, check_whole_number
from ...errors import InputError

SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # that are tried first
WIDEST = 0.3  # noise by which contenders are chosen
NOISES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True, eq=False)
class ContenderSamples:
    """Samples of the scores of a row.

    :param cols: (C,) the contenders, ascending.
    :param values: (S, C) in single precision.
    :param scores: (C,) of the list itself.
    :param deviations: (N,) of all columns: of the samples for contenders, of the pilot for others.
    :param num_links: how many links have random weights.
    """

    cols: Tensor
    values: Tensor
    scores: Tensor
    deviations: Tensor
    num_links: int


def top_shares(values: Tensor, k: int) -> Tensor:
    """(C,) the share of samples (S, C) in which each column is among the first k."""
    best = values.topk(min(k, values.shape[1]), 1).indices.flatten()
    return torch.bincount(best, minlength=values.shape[1]).double() / len(values)


def spread(values: Tensor, scores: Tensor, scale: float, noise: float, seed: int) -> Tensor:
    """(S, C) samples around the scores (C,), as wide as they should be; scale 1 without noise changes nothing."""
    if scale == 1 and noise == 0:
        return values
    found = scores + scale * (values - values.mean(0))
    if noise:
        found += noise * torch.randn(values.shape, generator=torch.Generator().manual_seed(seed))
    return found


class Sampled(Protocol):
    """What :func:`fit_scale` needs of a fitted ranker; :class:`~mvgp.prioritise.auto.AutoRanker` is one."""

    bank: Any

    def scores(self, rows: Any = None) -> Tensor:
        """(R, N)"""
        ...

    def contender_samples(
        self, row: int, k: int, *, exclude: Any, num_samples: int, seed: int, scale: float | None, noise: float | None
    ) -> ContenderSamples:
        """Samples of a row."""
        ...


@dataclass(frozen=True)
class ScaleFit:
    """The spread of samples that predicts best who is in the top k once more links are known.

    :param scale: of the deviations of samples from their mean.
    :param noise: standard deviation of what is added to each score of each sample, independently.
    :param error_before: expected calibration error of P(top k) with scale 1 and no noise, over the first k of each row.
    :param error_after: the same with both.
    :param rows: how many rows were used.
    :param k: places of the top.
    :param trials: (scale, noise, log likelihood of a row) of everything that was tried.
    """

    scale: float
    noise: float
    error_before: float
    error_after: float
    rows: int
    k: int
    trials: tuple[tuple[float, float, float], ...] = field(repr=False)


def fit_scale(
    fits: Iterable[tuple[Sampled, Sampled]],
    rows: Sequence[int] | None = None,
    k: int = 20,
    *,
    num_rows: int = 60,
    num_samples: int = 300,
    seed: int = 0,
) -> ScaleFit:
    """Scale and noise of P(top k), by maximum likelihood on links that were hidden.

    A candidate is in the top k if it is there in the list that was fitted to all links, over the same candidates. Each
    contender of each row counts as an event with the probability P(top k) of the model that knows the visible links.

    :param fits: pairs of rankers, fitted to the visible links and to all links.
    :param rows: of the matrix; some of those with links are drawn for each pair when left out.
    :param k: places of the top.
    :param num_rows: how many rows are drawn.
    :param num_samples: of each row.
    :param seed: of rows and samples.

    Example:
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.auto import Auto, fit_scale
        >>> from mvgp.prioritise.tables import LinkSet
        >>> links = LinkSet("abc", "wxyz", [0, 1, 2], [1, 1, 2], Graph([(0, 2)], 3), Graph([], 4))
        >>> ranker = Auto(links).fit(links.links())
        >>> fit_scale([(ranker, ranker)], k=2, num_samples=20).rows
        3

    """
    for name, value in (("k", k), ("num_rows", num_rows), ("num_samples", num_samples)):
        check_whole_number(value, name)
    cases: list[_Case] = []
    generator = torch.Generator().manual_seed(check_seed(seed))
    for visible, complete in fits:
        chosen: Sequence[int]
        if rows is None:
            linked = complete.bank.links.rows.unique()
            chosen = linked[torch.randperm(len(linked), generator=generator)[:num_rows]].tolist()
        else:
            chosen = rows
        cases += [_case(visible, complete, row, k, num_samples, seed + at) for at, row in enumerate(chosen)]
    if not cases:
        raise InputError("fits: expected at least one pair of rankers and one row, got none")
    trials: dict[tuple[float, float], float] = {}

    def try_all(scales: Iterable[float], noises: Iterable[float]) -> tuple[float, float]:
        for scale, noise in product(scales, noises):
            if (scale, noise) not in trials:
                trials[scale, noise] = sum(case.likelihood(scale, noise) for case in cases) / len(cases)
        return max(trials, key=lambda pair: trials[pair])

    scale, noise = try_all(SCALES, NOISES)
    for step in (1.4, 1.2, 1.1):  # then near the best
        scale, noise = try_all((scale / step, scale, scale * step), (noise / step, noise, noise * step))
    before, after = (_error(cases, *pair) for pair in ((1.0, 0.0), (scale, noise)))
    tried = tuple((*pair, value) for pair, value in trials.items())
    return ScaleFit(scale, noise, before, after, len(cases), k, tried)


@dataclass(frozen=True, eq=False)
class _Case:
    """One row: samples (S, C) and scores (C,) of contenders, who came to the top (C,), and who is listed (C,)."""

    values: Tensor
    scores: Tensor
    outcome: Tensor
    listed: Tensor
    k: int
    seed: int

    def chances(self, scale: float, noise: float) -> Tensor:
        """(C,) P(top k)."""
        return top_shares(spread(self.values, self.scores, scale, noise, self.seed), self.k)

    def likelihood(self, scale: float, noise: float) -> float:
        """The logarithm; a chance that is counted as 0 or 1 is half a sample away from it."""
        count = len(self.values)
        chance = (self.chances(scale, noise) * count + 0.5) / (count + 1)
        return float(torch.where(self.outcome, chance, 1 - chance).log().sum())


def _case(visible: Sampled, complete: Sampled, row: int, k: int, num_samples: int, seed: int) -> _Case:
    known = visible.bank.links.cols[visible.bank.links.rows == row].cpu()
    drawn = visible.contender_samples(
        row, k, exclude=visible.bank.links, num_samples=num_samples, seed=seed, scale=1.0, noise=WIDEST
    )
    own, later = (ranker.scores([row])[0].index_fill(0, known, -torch.inf) for ranker in (visible, complete))
    tops = []
    for scores in (later, own):
        top = torch.zeros(len(scores), dtype=torch.bool)
        top[scores.topk(min(k, len(scores) - len(known))).indices] = True
        tops.append(top[drawn.cols])
    return _Case(drawn.values, drawn.scores, tops[0], tops[1], k, seed)


def _error(cases: Sequence[_Case], scale: float, noise: float) -> float:
    """Expected calibration error over the columns that are listed."""
    chances = torch.cat([case.chances(scale, noise)[case.listed] for case in cases])
    outcomes = torch.cat([case.outcome[case.listed] for case in cases])
    return calibration_error(chances, outcomes)


def calibration_error(chances: Tensor, outcomes: Tensor, bins: int = 10) -> float:
    """How far chances (H,) are from the share of outcomes (H,) in bins of equal width, averaged over all of them."""
    place = (chances * bins).long().clamp(max=bins - 1)
    count = torch.bincount(place, minlength=bins)
    gaps = torch.bincount(place, weights=chances - outcomes.double(), minlength=bins).abs()
    return float(gaps.sum() / count.sum())
