r"""P(top k): whether a candidate is still among the first k of its list when hidden links are known, too.

In :class:`~.cross_fit.CrossFit` a list is made twice: by the fit without the hidden links, and by the ranker that knows
all links, over the same candidates. A candidate stays if its rank in the second list is at most k. For each of a few k
the features of the candidate at place l with score :math:`s_l` are, relative to the end of the top k,

.. math:: a_l = \log \frac{k + 1/2}{l}, \qquad m_l = \frac1u \Big( s_l - \frac{s_k + s_{k + 1}}{2} \Big),

each in two parts, above and below 0, for all rows and for each group of rows, with weights that are not negative. A
penalised logistic regression and an isotonic regression, as in :mod:`~.calibration`, make a probability of them that
does not rise with the place. Between those k straight lines in :math:`\log k` are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...checks import check_instance, check_whole_number
from ...errors import InputError
from ...metrics.calibration import calibration_error
from ...tensor_checks import as_tensor
from ..auto.blend import GROUPS, group_of
from .calibration import Cells, between, isotonic, logistic_weights
from .cross_fit import CrossFit

KNOTS = (2, 5, 10, 50)  # k that are fitted, beside 1, the usual one and the largest
USUAL = 20  # the k whose error is published
FEW_ROWS = 30  # of a group, below which there are no probabilities: shares of so many have errors above .03
TOP_SLOPES = 4 * (1 + len(GROUPS))
TOP_FEATURES = TOP_SLOPES + 1 + len(GROUPS)
ERROR_BINS = 10  # of equal widths


@dataclass(frozen=True, eq=False)
class TopKnot:
    """The calibration of P(top k) for one k.

    :param k: places of the top.
    :param weights: (F,) of the logistic regression.
    :param grid: (B,) linear predictors, ascending.
    :param values: (B,) probability at each, not descending.
    """

    k: int
    weights: Tensor
    grid: Tensor
    values: Tensor

    def chances(self, x: Tensor) -> Tensor:
        """(I,) given features (I, F)."""
        return between(x @ self.weights, self.grid, self.values)


@dataclass(frozen=True, eq=False, repr=False)
class TopPlaces:
    """P(top k) of candidates, by place, score and known links of the row.

    :param knots: one for each k that was fitted, ascending.
    :param unit: of differences of scores.
    :param rows: (4,) rows of each group that were compared.
    :param error: expected calibration error of P(top :attr:`error_k`) over the first places, cross-fitted, in 10 bins
        of equal width.
    :param error_k: 20, or the largest k.
    """

    knots: tuple[TopKnot, ...]
    unit: float
    rows: Tensor
    error: float
    error_k: int

    def refusal(self, num_known: int, k: int, candidates: int) -> str | None:
        """Why nothing can be said about a row with so many known links; None where something can."""
        if k >= candidates:
            return None
        if k > self.knots[-1].k:
            return f"P(top {k}) is not known: the first {self.knots[-1].k} places were compared"
        group = int(group_of(torch.tensor([num_known])))
        if (count := int(self.rows[group])) < FEW_ROWS:
            return f"P(top {k}) is not known, order only: {count} rows with as many known links were compared"
        return None

    def chances(self, scores: Tensor, num_known: int, k: int) -> Tensor:
        """(I,) the probability of each candidate of a row to stay among the first k; 1 where there are no more than k.

        :param scores: (I,) of all candidates or of the first k + 1 or more, descending.
        :param num_known: known links of the row.
        :param k: places of the top.
        """
        scores = as_tensor(scores, "scores").double()
        k = check_whole_number(k, "k")
        if k >= len(scores):
            return torch.ones_like(scores)
        if reason := self.refusal(num_known, k, len(scores)):
            raise InputError(f"k: expected one for which there are probabilities, got {k}: {reason}")
        group = group_of(torch.tensor([check_whole_number(num_known, "num_known", 0)]))
        ks = [knot.k for knot in self.knots]
        above = next(at for at, knot in enumerate(ks) if knot >= k)
        x = top_features(scores[None], group, k, self.unit)[0]
        chances = self.knots[above].chances(x)
        if ks[above] > k:
            share = float(np.log(k / ks[above - 1]) / np.log(ks[above] / ks[above - 1]))
            chances = share * chances + (1 - share) * self.knots[above - 1].chances(x)
        return chances.cummin(0).values  # rounding does not rise with the place, either

    def in_words(self) -> str:
        """What was measured, in a sentence."""
        return (
            f"calibration error of P(top {self.error_k}) over the first {self.error_k} places: {self.error:.3f} "
            f"({int(self.rows.sum()):,} rows)"
        )

    def __repr__(self) -> str:
        return f"TopPlaces(k up to {self.knots[-1].k}, error {self.error:.4f})"


def top_features(scores: Tensor, group: Tensor, k: int, unit: float) -> Tensor:
    """(R, L, F) given scores (R, L), descending; the first ``TOP_SLOPES`` do not rise with the place."""
    length = scores.shape[1]
    place = -torch.log(torch.arange(1, length + 1, dtype=torch.float64) / (k + 0.5)).expand(scores.shape)
    end = scores[:, k - 1 : k + 1].mean(1, keepdim=True)  # of the last place alone where no other is known
    parts = torch.stack([place, (scores - end) / unit], dim=2)
    slopes = torch.cat([parts.clamp(min=0), parts.clamp(max=0)], dim=2)  # (R, L, 4)
    groups = torch.nn.functional.one_hot(group, len(GROUPS)).double()[:, None].expand(-1, length, -1)  # (R, L, 4)
    each = (slopes[:, :, :, None] * groups[:, :, None, :]).flatten(2)
    return torch.cat([slopes, each, torch.ones_like(scores)[:, :, None], groups], dim=2)


def top_places(found: CrossFit, ks: Sequence[int] = KNOTS) -> TopPlaces:
    """P(top k) from the lists of a cross-fit that were compared.

    :param found: of :func:`~mvgp.prioritise.trust.cross_fit.cross_fit` with ``complete``.
    :param ks: those that are fitted, beside 1, 20 and the largest one: the places that were compared.

    Example:
        >>> import mvgp, torch
        >>> from mvgp.prioritise.baselines import Popularity
        >>> from mvgp.prioritise.trust import cross_fit, top_places
        >>> links = mvgp.PositiveUnlabelled(torch.arange(400) % 200, torch.arange(400) % 17 % 6, (200, 30))
        >>> found = cross_fit(Popularity().fit, links, complete=Popularity().fit(links))
        >>> chances = top_places(found).chances(torch.tensor([9.0, 7.0, 1.0, 0.0]), num_known=1, k=2)
        >>> bool((chances.diff() <= 0).all())
        True

    """
    check_instance(found, "found", CrossFit, "mvgp.prioritise.trust.CrossFit")
    compared = (found.later > 0).any(1)
    some = found.inside & compared[:, None]
    most = min(found.scores.shape[1], int((found.candidates * compared).max()) - 1)
    if most < 1:
        raise InputError("found: expected lists that were compared (cross_fit with complete=), got none")
    spread = [line[own].std(unbiased=False) for line, own in zip(found.scores[compared], some[compared], strict=True)]
    unit = float(torch.stack(spread).mean()) or 1.0
    chosen, usual = [check_whole_number(k, "ks", 1) for k in ks], min(USUAL, most)
    knots, error = [], 0.0
    for k in sorted({1, usual, most, *(k for k in chosen if k < most)}):
        cells = _cells(found, compared & (found.candidates > k), k, unit)
        everything = torch.ones_like(cells.labels, dtype=torch.bool)
        knots.append(_knot(cells, everything, k))
        if k == usual:
            error = _crossed_error(cells, knots[-1])
    rows = [len(found.row[compared & (found.group == group)].unique()) for group in range(len(GROUPS))]
    return TopPlaces(tuple(knots), unit, torch.tensor(rows), error, usual)


def _cells(found: CrossFit, lists: Tensor, k: int, unit: float) -> Cells:
    """The candidates of some lists (R,), and which of them stay among the first k."""
    x = top_features(found.scores[lists], found.group[lists], k, unit)
    at, place = found.inside[lists].nonzero(as_tuple=True)
    weight = found.weight[lists] / found.weight[lists].mean()
    labels = (found.later[lists] <= k).double()[at, place]
    return Cells(x[at, place], labels, weight[at], place + 1, found.row[lists][at])


def _knot(cells: Cells, chosen: Tensor, k: int, start: Tensor | None = None) -> TopKnot:
    """The calibration by some of the candidates (I,)."""
    x, labels, counts = (part[chosen] for part in (cells.x, cells.labels, cells.counts))
    weights = logistic_weights(x, labels, counts, start, slopes=TOP_SLOPES, tolerance=1e-6)[0]
    grid, values = isotonic(cells, weights, chosen)[:2]
    return TopKnot(k, weights, grid, values)


def _crossed_error(cells: Cells, knot: TopKnot) -> float:
    """The calibration error over the first k places, of each part of the rows by the others."""
    crossed = torch.empty_like(cells.labels)
    for at in (parts := cells.part.unique().tolist()):
        own = cells.part == at
        part = _knot(cells, ~own, knot.k, knot.weights) if len(parts) > 1 else knot
        crossed[own] = part.chances(cells.x[own])
    top = cells.place <= knot.k
    return calibration_error(crossed[top], cells.labels[top], ERROR_BINS, weights=cells.counts[top], equal="widths")
