r"""calibrate: the probability of a candidate, from where hidden links landed in :class:`~.cross_fit.CrossFit`.

A candidate with score s at place l of a row with k known links has features that keep the order inside a row: s as a
normal quantile among the first scores of all lists of its group under the same fit, since each fit has a scale of its
own, with two slopes, and :math:`-\log l`, for all rows and for each group of rows, with weights that are not
negative; and :math:`\log(1 + k)` and the group, which are the same for the whole row. A penalised logistic regression
gives a number :math:`\eta`. The probability is the isotonic regression of the labels on :math:`\eta`, in bins that
expect equally many hidden links, each with half a link more at what the logistic regression says; between the bins
straight lines in log odds, moved so that they add up to the hidden links. Intervals are those of the Bayesian bootstrap
over rows: a row counts with all its candidates.

Candidates beyond the first K places have the share of hidden links there, by group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import brentq, isotonic_regression
from torch import Tensor

from ...checks import check_instance, check_seed, check_whole_number
from ...errors import InputError
from ...metrics.calibration import calibration_error
from ...tensor_checks import as_tensor
from ..auto.blend import GROUPS, group_of
from .cross_fit import CrossFit, standardised

CLASSES = {"A": 0.2, "B": 0.05, "C": 0.01, "D": 0.0}  # smallest probability of each class
LEVEL = 0.9  # of intervals
REPLICATES = 200  # of the Bayesian bootstrap
MOST_BINS, BIN_LINKS = 200, 10  # bins, and hidden links that each expects at least
PSEUDO_LINKS = 0.5  # that a bin has more, at the share of the logistic regression
RIDGE = 1.0  # precision of the weights of the logistic regression, of features on the scale of 1
EDGE = 1e-12  # probabilities nearer to 0 or 1 have the log odds of this one
ROUNDING = 1e-14  # share of its objective that a Newton step may seem to raise it by
SHOWN = 20  # places that the calibration error is about
THINNED = 0.25  # part of the candidates beyond them that is used, with a larger weight
CROSSED = 5  # parts of the rows that are calibrated by the others
SLOPES = 15  # features whose weights are not negative: two of the score and one of the place, for all and each group
FEATURES = SLOPES + 2 + len(GROUPS)


@dataclass(frozen=True, eq=False)
class Probabilities:
    """(I,) each: a probability and its 90 % interval."""

    value: Tensor
    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class ClassYield:
    """What came of a class in cross-fitting: weighted counts of lists in the proportions of the data."""

    name: str
    at_least: float
    candidates: float
    links: float
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class CurvePoint:
    """Candidates of nearby probability, and the share of hidden links among them."""

    low: float
    high: float
    mean_probability: float
    share: float
    share_low: float
    share_high: float
    count: float


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """From the score, the place and the known links of a candidate to its probability.

    :param quantiles: (4, Q) of the first scores of lists of the ranker that is used, by group.
    :param highest: (4,) the largest of them.
    :param weights: (F,) of the logistic regression.
    :param grid: (B,) linear predictors, ascending.
    :param values: (B,) probability at each, not descending.
    :param low: (B,) lower end of its interval.
    :param high: (B,) upper end.
    :param tail: (4, 3) share of hidden links beyond the first K places, by group, with its interval.
    :param kept: K.
    :param error: expected calibration error over the first 20 places, cross-fitted.
    :param classes: what came of each class, cross-fitted.
    :param curve: the calibration curve over the first 20 places, cross-fitted.
    :param residual: largest projected gradient of the logistic regression, relative to the number of candidates.
    """

    quantiles: Tensor
    highest: Tensor
    weights: Tensor
    grid: Tensor
    values: Tensor
    low: Tensor
    high: Tensor
    tail: Tensor
    kept: int
    error: float
    classes: tuple[ClassYield, ...]
    curve: tuple[CurvePoint, ...]
    residual: float

    def probabilities(self, scores: Tensor, num_known: int, places: Tensor | None = None) -> Probabilities:
        """Of candidates of one row.

        :param scores: (I,) descending.
        :param num_known: known links of the row.
        :param places: (I,) from 1, ascending; 1 to I when left out.
        """
        scores = as_tensor(scores, "scores").double()
        places = torch.arange(1, len(scores) + 1) if places is None else as_tensor(places, "places")
        known = torch.full((len(scores),), check_whole_number(num_known, "num_known", 0))
        eta = features(standardised(scores, group_of(known), self.quantiles), places, known) @ self.weights
        found = [between(eta, self.grid, line).cummin(0).values for line in (self.values, self.low, self.high)]
        beyond = self.tail[group_of(known)]  # (I, 3)
        last = [line[places <= self.kept].min() if bool((places <= self.kept).any()) else torch.inf for line in found]
        parts = (
            torch.where(places <= self.kept, line, beyond[:, at].clamp(max=float(last[at])))
            for at, line in enumerate(found)
        )
        return Probabilities(*parts)

    def classes_of(self, probability: Tensor) -> tuple[str, ...]:
        """A to D, for each probability."""
        return tuple(next(name for name, least in CLASSES.items() if p >= least) for p in probability.tolist())

    def in_words(self) -> list[str]:
        """What was measured, in sentences."""
        lines = []
        for each in self.classes:
            if each.candidates > 0:
                lines.append(
                    f"class {each.name}: of 100 candidates, {100 * each.share:.3g} were hidden links "
                    f"(90 % interval {100 * each.low:.3g} to {100 * each.high:.3g})"
                )
        lines.append(f"calibration error over the first {SHOWN} places: {self.error:.4f}")
        return lines

    def __repr__(self) -> str:
        return f"Calibration({len(self.grid)} bins, error {self.error:.4f})"


def features(score: Tensor, places: Tensor, known: Tensor) -> Tensor:
    """(I, F), given standardised scores; the first ``SLOPES`` do not fall with the score, nor rise with the place."""
    slopes = torch.stack([score.clamp(max=0), score.clamp(min=0), -places.double().log()], dim=1)  # (I, 3)
    groups = torch.nn.functional.one_hot(group_of(known), len(GROUPS)).double()  # (I, 4)
    each = (slopes[:, :, None] * groups[:, None, :]).flatten(1)  # (I, 12)
    whole = torch.stack([torch.ones_like(score), torch.log1p(known.double())], dim=1)
    return torch.cat([slopes, each, whole, groups], dim=1)


def logistic_weights(
    x: Tensor,
    labels: Tensor,
    counts: Tensor,
    start: Tensor | None = None,
    *,
    slopes: int = SLOPES,
    tolerance: float = 1e-7,
) -> tuple[Tensor, float]:
    r"""(F,) weights of the penalised logistic regression, and the largest projected gradient per candidate.

    Minimises :math:`\sum_i c_i (\log(1 + e^{\eta_i}) - y_i \eta_i) + \frac r2 \sum_{f \ne 1} b_f^2` with
    :math:`\eta = X b` and :math:`b_f \ge 0` for the first ``slopes``: convex, by projected Newton steps.

    :param x: (I, F).
    :param labels: (I,) 0 or 1.
    :param counts: (I,) weights of the candidates.
    :param slopes: how many weights are not negative; the intercept is next.
    """
    ridge = torch.full((x.shape[1],), RIDGE, dtype=torch.float64)
    ridge[slopes] = 1e-9  # the intercept
    signed = torch.arange(x.shape[1]) < slopes
    b = torch.zeros(x.shape[1], dtype=torch.float64) if start is None else start.clone()
    if start is None:
        share = min(max(float((counts * labels).sum() / counts.sum()), 1e-9), 1 - 1e-9)
        b[slopes] = np.log(share / (1 - share))
    total = float(counts.sum())

    def objective(at: Tensor) -> float:
        eta = x @ at
        fit = counts @ (torch.nn.functional.softplus(eta) - labels * eta)
        return float(fit + (ridge * at.square()).sum() / 2)

    value, residual = objective(b), float("inf")
    for _ in range(100):
        chance = torch.sigmoid(x @ b)
        gradient = x.mT @ (counts * (chance - labels)) + ridge * b
        held = signed & (b <= 0) & (gradient > 0)
        residual = float(torch.where(held, 0.0, gradient).abs().max()) / total
        if residual <= tolerance:
            break
        curvature = x.mT @ ((counts * chance * (1 - chance))[:, None] * x) + ridge.diag()
        free = ~held
        step = torch.zeros_like(b)
        step[free] = torch.linalg.solve(curvature[free][:, free], gradient[free])
        size = 1.0
        while size > 1e-6:
            tried = b - size * step
            tried = torch.where(signed, tried.clamp(min=0), tried)
            reached = objective(tried)
            if reached <= value - 1e-4 * float(gradient @ (b - tried)) + ROUNDING * abs(value):
                break
            size /= 2
        else:
            break
        b, value = tried, reached
    return b, residual


@dataclass(frozen=True, eq=False)
class Cells:
    """Candidates within the first K places of all lists, flat: (I,) each, and (I, F) features."""

    x: Tensor
    labels: Tensor
    counts: Tensor
    place: Tensor
    unit: Tensor  # number of the row among the U rows of the data

    @property
    def part(self) -> Tensor:
        """(I,) one of five, the same for all candidates of a row: each is judged by the calibration of the others."""
        return self.unit % CROSSED


def calibrate(found: CrossFit, *, seed: int = 0) -> Calibration:
    """Probabilities from cross-fitting.

    :param found: of :func:`~mvgp.prioritise.trust.cross_fit.cross_fit`.
    :param seed: of the Bayesian bootstrap.

    Example:
        >>> import mvgp, torch
        >>> from mvgp.prioritise.baselines import Popularity
        >>> from mvgp.prioritise.trust import calibrate, cross_fit
        >>> links = mvgp.PositiveUnlabelled(torch.arange(200), torch.arange(200) % 17 % 3, (200, 30))
        >>> calibration = calibrate(cross_fit(Popularity().fit, links))
        >>> found = calibration.probabilities(torch.tensor([90.0, 50.0, 0.0]), num_known=0)
        >>> bool((found.value.diff() <= 0).all()), bool((found.low <= found.value).all())
        (True, True)

    """
    check_instance(found, "found", CrossFit, "mvgp.prioritise.trust.CrossFit")
    generator = torch.Generator().manual_seed(check_seed(seed))
    if not bool(found.labels.any()):
        raise InputError(f"found: expected hidden links among the first places, got {found.nothing()}")
    inside = found.inside
    quantiles = found.quantiles()
    score = standardised(found.scores, found.group[:, None], quantiles)
    weight = found.weight / found.weight.mean()
    unit = found.row.unique(return_inverse=True)[1]
    # beyond the places that are shown, a part of the candidates that are no links stands for all of them
    drawn = torch.rand(inside.shape, generator=generator) < THINNED
    sure = found.labels | (torch.arange(inside.shape[1]) < SHOWN)
    list_at, place = (inside & (sure | drawn)).nonzero(as_tuple=True)
    cells = Cells(
        features(score[list_at, place], place + 1, found.known[list_at]),
        found.labels[list_at, place].double(),
        weight[list_at] / torch.where(sure[list_at, place], 1.0, THINNED),
        place + 1,
        unit[list_at],
    )
    draws = torch.empty(REPLICATES, int(unit.max()) + 1, dtype=torch.float64).exponential_(generator=generator)
    weights, residual = logistic_weights(cells.x, cells.labels, cells.counts)
    grid, values, low, high = isotonic(cells, weights, torch.ones_like(cells.unit, dtype=torch.bool), draws, generator)
    crossed = torch.empty_like(cells.labels)  # probabilities by the other parts of the rows
    for at in cells.part.unique().tolist():
        own, rest = cells.part == at, cells.part != at
        if not bool((cells.labels[rest] > 0).any()):
            crossed[own] = between(cells.x[own] @ weights, grid, values)
            continue
        part = logistic_weights(cells.x[rest], cells.labels[rest], cells.counts[rest], weights, tolerance=1e-6)[0]
        steps = isotonic(cells, part, rest)
        crossed[own] = between(cells.x[own] @ part, steps[0], steps[1])
    top = cells.place <= SHOWN
    tail = _tail(found, weight, draws, unit)
    return Calibration(
        quantiles=quantiles,
        highest=found.highest(),
        weights=weights,
        grid=grid,
        values=values,
        low=low,
        high=high,
        tail=tail,
        kept=found.labels.shape[1],
        error=calibration_error(crossed[top], cells.labels[top], weights=cells.counts[top]),
        classes=_classes(cells, crossed, found, weight, unit, draws),
        curve=_curve(cells, crossed, top, draws),
        residual=residual,
    )


def isotonic(
    cells: Cells,
    weights: Tensor,
    chosen: Tensor,
    draws: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, ...]:
    """(B,) linear predictors and probabilities; with ``draws`` (S, U) of the rows, also both ends of the interval."""
    eta, labels, counts = (part[chosen] for part in (cells.x @ weights, cells.labels, cells.counts))
    order = eta.argsort()
    expected = (counts * torch.sigmoid(eta))[order].cumsum(0)
    number = int(min(MOST_BINS, max(1, float(labels.sum()) // BIN_LINKS)))
    cuts = torch.searchsorted(expected, expected[-1] * torch.arange(1, number) / number)
    bins = torch.bucketize(eta, eta[order][cuts].unique())
    bins = bins.unique(return_inverse=True)[1]
    size = int(bins.max()) + 1
    total, links, centre, predicted = (
        torch.zeros(size, dtype=torch.float64).index_add_(0, bins, part)
        for part in (counts, counts * labels, counts * eta, counts * torch.sigmoid(eta))
    )
    share = predicted / total
    extra = PSEUDO_LINKS / share  # candidates that half a link stands for
    values = _monotone((links + PSEUDO_LINKS) / (total + extra), total + extra)
    grid = centre / total
    values, offset = _with_total(eta, labels, counts, grid, values)
    if draws is None or generator is None:
        return grid, values
    unit = cells.unit[chosen]
    by_row = torch.zeros(2, draws.shape[1] * size, dtype=torch.float64)
    by_row[0].index_add_(0, unit * size + bins, counts)
    by_row[1].index_add_(0, unit * size + bins, counts * labels)
    drawn_total, drawn_links = (draws @ part.view(-1, size) for part in by_row)  # (S, B)
    half = torch.full_like(drawn_links, PSEUDO_LINKS)
    prior = torch._standard_gamma(half, generator=generator)
    mass = drawn_total + extra
    lines = [_monotone(*pair) for pair in zip((drawn_links + prior) / mass, mass, strict=True)]
    ends = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64)
    low, high = _moved(torch.stack(lines), offset).quantile(ends, dim=0).cummax(1).values
    return grid, values, torch.minimum(low, values), torch.maximum(high, values)


def _with_total(eta: Tensor, labels: Tensor, counts: Tensor, grid: Tensor, values: Tensor) -> tuple[Tensor, float]:
    """(B,) the values moved by one number in log odds, so that they add up to the links over all candidates; and it."""
    links = float(counts @ labels)
    if not 0 < links < float(counts.sum()):
        return values, 0.0
    offset = brentq(lambda at: float(counts @ between(eta, grid, _moved(values, at))) - links, -40.0, 40.0, xtol=1e-10)
    return _moved(values, offset), offset


def _moved(chances: Tensor, offset: float) -> Tensor:
    """(..., B) probabilities that do not fall, and whose log odds are larger by ``offset``."""
    moved = torch.sigmoid(chances.clamp(EDGE, 1 - EDGE).logit() + offset)
    return moved.cummax(-1).values  # equal numbers differ in the last digit where instructions for vectors end


def _monotone(shares: Tensor, mass: Tensor) -> Tensor:
    """(B,) the isotonic regression, at most 1."""
    line = isotonic_regression(shares.numpy(), weights=mass.numpy()).x
    return torch.from_numpy(np.asarray(line, dtype=np.float64)).clamp(max=1)


def between(eta: Tensor, grid: Tensor, line: Tensor) -> Tensor:
    """(I,) straight lines between the points, in log odds; beyond them the slope is that of the logistic."""
    odds = line.clamp(EDGE, 1 - EDGE).logit()
    inside = torch.from_numpy(np.interp(eta.numpy(), grid.numpy(), odds.numpy()))
    return torch.sigmoid(inside + eta - eta.clamp(grid[0], grid[-1]))


def _by_row(unit: Tensor, values: Tensor, draws: Tensor) -> Tensor:
    """(U,) sums of the values of each row."""
    return torch.zeros(draws.shape[1], dtype=torch.float64).index_add_(0, unit, values)


def _share(links: Tensor, total: Tensor, draws: Tensor) -> tuple[float, float, float]:
    """Share of links, and its interval, from (U,) links and candidates of each row."""
    if float(total.sum()) == 0:
        return 0.0, 0.0, 1.0
    value = float(links.sum() / total.sum())
    each = (draws @ links) / (draws @ total).clamp(min=1e-300)
    low, high = each.quantile(torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64)).tolist()
    if float(links.sum()) == 0:  # the rule of three, at this level
        high = min(1.0, -float(np.log(1 - LEVEL)) / float(total.sum()))
    return value, min(low, value), max(high, value)


def _tail(found: CrossFit, weight: Tensor, draws: Tensor, unit: Tensor) -> Tensor:
    """(4, 3) share of hidden links beyond the first K places of each group, and its interval."""
    kept = found.labels.shape[1]
    far = torch.bincount(found.link_list[found.link_rank > kept], minlength=len(found.row)).double()
    room = (found.candidates - kept).clamp(min=0).double()
    lines = []
    for group in range(len(GROUPS)):
        own = weight * (found.group == group)
        if float((own * room).sum()) == 0:  # no such row, or no such place: that of all rows
            own = weight
        links, total = (_by_row(unit, own * part, draws) for part in (far, room))
        lines.append(_share(links, total, draws))
    return torch.tensor(lines, dtype=torch.float64)


def _classes(
    cells: Cells, crossed: Tensor, found: CrossFit, weight: Tensor, unit: Tensor, draws: Tensor
) -> tuple[ClassYield, ...]:
    """Yields of the classes, those of places beyond K in the last one."""
    kept = found.labels.shape[1]
    bounds = [*CLASSES.values()]
    classes = []
    for at, (name, least) in enumerate(CLASSES.items()):
        most = bounds[at - 1] if at else torch.inf
        own = (crossed >= least) & (crossed < most)
        links, total = (
            _by_row(cells.unit[own], part[own], draws) for part in (cells.counts * cells.labels, cells.counts)
        )
        if at == len(bounds) - 1:
            far = torch.bincount(found.link_list[found.link_rank > kept], minlength=len(found.row)).double()
            links.index_add_(0, unit, weight * far)
            total.index_add_(0, unit, weight * (found.candidates - kept).clamp(min=0).double())
        value, low, high = _share(links, total, draws)
        classes.append(ClassYield(name, least, float(total.sum()), float(links.sum()), value, low, high))
    return tuple(classes)


def _curve(cells: Cells, crossed: Tensor, chosen: Tensor, draws: Tensor, points: int = 10) -> tuple[CurvePoint, ...]:
    """Shares of hidden links in bins of probability that hold equally many links."""
    p, labels, counts, unit = (part[chosen] for part in (crossed, cells.labels, cells.counts, cells.unit))
    line = []
    for own in mass_bins(p, counts * p, points):
        links, total = (_by_row(unit[own], part[own], draws) for part in (counts * labels, counts))
        mean = float((counts[own] * p[own]).sum() / counts[own].sum())
        share = _share(links, total, draws)
        line.append(CurvePoint(float(p[own].min()), float(p[own].max()), mean, *share, float(counts[own].sum())))
    return tuple(line)


def mass_bins(values: Tensor, mass: Tensor, number: int) -> list[Tensor]:
    """Places (I,) of up to ``number`` bins of ascending values with equal mass; equal values stay together."""
    order = values.argsort(stable=True)
    total = mass[order].cumsum(0)
    cuts = torch.searchsorted(total, total[-1] * torch.arange(1, number) / number).clamp(max=len(values) - 1)
    edges = values[order][cuts].unique()
    bins = torch.bucketize(values, edges)
    return [own for at in range(len(edges) + 1) if len(own := (bins == at).nonzero().squeeze(1))]
