"""Calibration: do intervals and probabilities keep their promise, over all, in each group, and in the worst one?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..checks import (
    check_choice,
    check_instance,
    check_not_negative,
    check_number,
    check_part,
    check_seed,
    check_whole_number,
    without_gradient,
)
from ..data.observed import ObservedMatrix
from ..errors import InputError
from ..tensor_checks import as_reals, as_tensor, check_list, check_values, refuse_where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = tuple(place / 20 for place in range(1, 20))  # 0.05, 0.10, ..., 0.95


@without_gradient
def coverage(predicted: Any, held_out: Any, *, noise: float | None = None, levels: Any = LEVELS) -> CoverageCurve:
    r"""The share of held-out values in the central interval of each level: :math:`|y - \mu| \le z \sqrt{\sigma^2 + s}`.

    A posterior is about the noise-free entries. Held-out values are taken to be measured like the training data, with
    the likelihood's noise on top, divided by their weight if they have one.

    :param predicted: a posterior (anything with ``mean(rows, cols)`` and ``variance(rows, cols)``), or a pair
        (mean, std) of vectors (Q,).
    :param held_out: for a posterior, an ``ObservedMatrix``; for a pair, (Q,) values.
    :param noise: variance s of the noise of a held-out value with weight 1; 0 for noise-free ones. When left out, that
        of the likelihood for a posterior, and 0 for a pair, whose std is that of the values.
    :param levels: (L,) probabilities between 0 and 1.

    Example:
        >>> import mvgp.metrics.calibration as calibration
        >>> found = calibration.coverage(([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]), [0.1, -1.0, 2.5], levels=[0.5, 0.9])
        >>> print(found)
        3 held-out values
        level  inside
        50.0%   33.3%
        90.0%   66.7%

    """
    noise = None if noise is None else check_not_negative(noise, "noise")
    checked = check_values(levels, None, "levels", torch.float64).cpu()
    bad = checked[(checked <= 0) | (checked >= 1)]
    if len(checked) == 0 or len(bad):
        came = bad[0].item() if len(bad) else "none"
        raise InputError(f"levels: expected numbers between 0 and 1, got {came}")
    values, mean, variance = _predictions(predicted, held_out, noise)
    distance, std = (values - mean).abs(), variance.sqrt()
    width = torch.special.ndtri((1 + checked) / 2)  # (L,) half widths in standard deviations
    inside = torch.stack([(distance <= z * std).double().mean() for z in width])
    return CoverageCurve(checked, inside, len(values))


@dataclass(frozen=True, eq=False, repr=False)
class CoverageCurve:
    """The share of held-out values inside central intervals, for each level.

    :param levels: (L,) probability of the interval.
    :param covered: (L,) share of the values inside.
    :param num_values: how many values there were.
    """

    levels: Tensor
    covered: Tensor
    num_values: int

    @property
    def worst(self) -> float:
        """The largest distance between promise and share."""
        return float((self.covered - self.levels).abs().max())

    def at(self, level: float) -> float:
        """The share at one of the levels."""
        distance = (self.levels - check_number(level, "level")).abs()
        if not bool((distance < 1e-6).any()):  # levels may have come in single precision
            raise InputError(f"level: expected one of {[round(x, 6) for x in self.levels.tolist()]}, got {level!r}")
        return float(self.covered[distance.argmin()])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw promise against share; the diagonal is perfect, below it a posterior is too certain.

        :param ax: matplotlib axes; new ones when left out.
        """
        if ax is None:
            from matplotlib import pyplot as plt

            ax = plt.subplots(figsize=(4, 4))[1]
        ax.plot([0, 1], [0, 1], color="0.7", linewidth=1, label="perfect")
        ax.plot(self.levels.tolist(), self.covered.tolist(), marker=".", label=f"{self.num_values:,} held-out values")
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="level of the interval", ylabel="share inside")
        ax.legend(loc="upper left", frameon=False)
        return ax

    def __str__(self) -> str:
        pairs = zip(self.levels.tolist(), self.covered.tolist(), strict=True)
        return "\n".join(
            [f"{self.num_values} held-out values", "level  inside", *(f"{a:5.1%}  {b:6.1%}" for a, b in pairs)]
        )

    def __repr__(self) -> str:
        return f"CoverageCurve({self.num_values} values, at most {self.worst:.3f} off)"


def _predictions(predicted: Any, held_out: Any, noise: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """(Q,) each: values, means, and variances of the values."""
    if callable(getattr(predicted, "mean", None)) and callable(getattr(predicted, "variance", None)):
        check_instance(held_out, "held_out", ObservedMatrix, "an ObservedMatrix with a posterior")
        if tuple(predicted.shape) != held_out.shape:
            raise InputError(f"held_out: expected shape {tuple(predicted.shape)}, got {held_out.shape}")
        if noise is None:
            noise = getattr(predicted, "noise", None)
        if noise is None:
            raise InputError("noise: this posterior does not say with which noise a value is measured; give noise=")
        mean = predicted.mean(held_out.rows, held_out.cols).double().cpu()
        variance = predicted.variance(held_out.rows, held_out.cols).double().cpu()
        extra = noise if held_out.weights is None else noise / held_out.weights.double().cpu()
        return held_out.values.double().cpu(), mean, variance + extra
    if not isinstance(predicted, tuple | list) or len(predicted) != 2:
        raise InputError(f"predicted: expected a posterior or a pair (mean, std), got {type(predicted).__name__}")
    values = check_values(held_out, None, "held_out", torch.float64).cpu()
    checked = []
    for vector, name in zip(predicted, ("predicted mean", "predicted std"), strict=True):
        tensor = as_tensor(vector, name)
        if tensor.shape != values.shape:
            raise InputError(f"{name}: expected shape ({len(values)},) as held_out has, got {tuple(tensor.shape)}")
        checked.append(as_reals(tensor, name, torch.float64).cpu())
    mean, std = checked
    if len(values) == 0:
        raise InputError("held_out: expected at least one value, got none")
    refuse_where(std < 0, std, "predicted std", "a finite number that is not negative")
    return values, mean, std.square() + (noise or 0.0)


# Probabilities of events --------------------------------------------------------------------------


@without_gradient
def calibration_error(
    probabilities: Any, outcomes: Any, bins: int = 20, *, weights: Any = None, equal: str = "counts"
) -> float:
    r"""The expected calibration error, :math:`\sum_b w_b |\bar p_b - \bar y_b| / \sum_b w_b`.

    By default bins b have the same total weight :math:`w_b`, as nearly as ties allow: of rare events most probabilities
    are small, and bins of equal width would put nearly all of them into one. Equal widths show what probabilities
    spread over the whole of [0, 1] are worth, such as P(in the top k).

    :param probabilities: (Q,) predicted probabilities.
    :param outcomes: (Q,) what happened: 0 or 1, or booleans; or the share of events among several of one probability.
    :param bins: how many.
    :param weights: (Q,) how often each counts, not negative; once when left out.
    :param equal: what bins have in common, "counts" or "widths".

    Example:
        >>> from mvgp.metrics import calibration_error
        >>> round(calibration_error([0.1, 0.1, 0.8, 0.8], [0, 0, 1, 1], bins=2), 3)
        0.15
        >>> round(calibration_error([0.1, 0.8], [0, 1], bins=2, weights=[3, 1]), 3)
        0.125

    """
    p, y = _events(probabilities, outcomes, shares=True)
    count = check_whole_number(bins, "bins")
    check_choice(equal, "equal", ("counts", "widths"))
    if weights is None:
        w = np.ones_like(p)
    else:
        given = check_values(weights, len(p), "weights", torch.float64).cpu()
        refuse_where(given < 0, given, "weights", "a number that is not negative")
        w = given.numpy()
        if w.sum() == 0:
            raise InputError("weights: expected some above 0, got none")
    place = _bins(p, count, w) if equal == "counts" else np.minimum((p * count).astype(int), count - 1)
    return float(_error(p, y[None], place, w)[0])


@without_gradient
def group_calibration(
    probabilities: Any, outcomes: Any, groups: Any, bins: int = 20, *, num_draws: int = 100, seed: int = 0
) -> GroupCalibration:
    """The calibration error within each group, such as rows with 0, 1, 2 to 5 and more known links.

    An error is never 0 on finite data, and the larger the smaller a group is. So each comes with the mean and the 95 %
    quantile of what it would be if the probabilities were right: outcomes are drawn from them ``num_draws`` times.

    :param probabilities: (Q,) predicted probabilities.
    :param outcomes: (Q,) what happened: 0 or 1, or booleans.
    :param groups: (Q,) the group of each, as whole numbers or names.
    :param bins: within each group, as for :func:`calibration_error`.
    :param num_draws: of outcomes.
    :param seed: of these.

    Example:
        >>> from mvgp.metrics import group_calibration
        >>> found = group_calibration([0.5] * 4 + [0.9] * 4, [0, 1, 0, 1, 0, 0, 1, 0], ["new"] * 4 + ["known"] * 4)
        >>> found.worst, [round(error, 3) for error in found.error.tolist()]
        ('known', [0.65, 0.0])

    """
    p, y = _events(probabilities, outcomes)
    count, draws = check_whole_number(bins, "bins"), check_whole_number(num_draws, "num_draws")
    named = np.asarray(groups.cpu() if isinstance(groups, Tensor) else groups)
    if named.shape != p.shape:
        raise InputError(f"groups: expected shape ({len(p)},) as probabilities have, got {named.shape}")
    labels, member = np.unique(named, return_inverse=True)
    rng = np.random.default_rng(check_seed(seed))
    table = []  # a line for each group
    for label in range(len(labels)):
        own = member == label
        part, place = p[own], _bins(p[own], count)
        drawn = np.concatenate([_error(part, rng.random((1, len(part))) < part, place) for _ in range(draws)])
        error = _error(part, y[None, own], place)[0]
        table.append((len(part), part.mean(), y[own].mean(), error, drawn.mean(), np.quantile(drawn, 0.95)))
    columns = torch.tensor(table, dtype=torch.float64).T
    return GroupCalibration(tuple(labels.tolist()), columns[0].long(), *columns[1:])


@dataclass(frozen=True, eq=False)
class GroupCalibration:
    """The calibration of probabilities within each of G groups.

    :param groups: their names, in order.
    :param counts: (G,) how many probabilities.
    :param predicted: (G,) mean probability.
    :param observed: (G,) share of events.
    :param error: (G,) expected calibration error.
    :param chance: (G,) its mean if the probabilities were right.
    :param limit: (G,) its 95 % quantile if they were right.
    """

    groups: tuple[Any, ...]
    counts: Tensor
    predicted: Tensor
    observed: Tensor
    error: Tensor
    chance: Tensor
    limit: Tensor

    @property
    def worst(self) -> Any:
        """The group with the largest error."""
        return self.groups[int(self.error.argmax())]

    def __str__(self) -> str:
        lines = [
            f"{'group':12} {'number':>9} {'predicted':>10} {'observed':>10} {'error':>8} {'chance':>8} {'limit':>8}"
        ]
        columns = (self.counts, self.predicted, self.observed, self.error, self.chance, self.limit)
        for name, *entries in zip(self.groups, *(column.tolist() for column in columns), strict=True):
            number, predicted, observed, *errors = entries
            lines.append(
                f"{name!s:12} {number:9,} {predicted:10.5f} {observed:10.5f} " + " ".join(f"{e:8.5f}" for e in errors)
            )
        return "\n".join(lines)


@without_gradient
def adversarial_calibration(
    probabilities: Any,
    outcomes: Any,
    shares: Sequence[float] = (0.05, 0.1, 0.2, 0.5, 1.0),
    bins: int = 10,
    *,
    num_groups: int = 20,
    trials: int = 10,
    seed: int = 0,
) -> AdversarialCalibration:
    """The worst calibration error over random groups, for each size of a group (adversarial group calibration).

    For each share of the data, ``num_groups`` groups of that size are drawn without replacement and the largest error
    is kept; this is done ``trials`` times. The same groups are given outcomes that are drawn from the probabilities: a
    right predictor has that error, which is far from 0 in small groups.

    :param probabilities: (Q,) predicted probabilities.
    :param outcomes: (Q,) what happened: 0 or 1, or booleans.
    :param shares: (S,) sizes of the groups, as shares of Q.
    :param bins: within each group, as for :func:`calibration_error`.
    :param num_groups: in each trial.
    :param trials: how often.
    :param seed: of groups and outcomes.

    Example:
        >>> from mvgp.metrics import adversarial_calibration
        >>> found = adversarial_calibration([0.2, 0.4] * 50, [0, 1] * 50, [0.1, 1.0], bins=2)
        >>> [round(error, 3) for error in found.worst.tolist()]
        [0.504, 0.4]

    """
    p, y = _events(probabilities, outcomes)
    sizes = [check_part(share, f"shares[{at}]") for at, share in enumerate(check_list(shares, "shares", "a list"))]
    count, draws = check_whole_number(bins, "bins"), check_whole_number(num_groups, "num_groups")
    repeats, rng = check_whole_number(trials, "trials"), np.random.default_rng(check_seed(seed))
    worst = np.zeros((len(sizes), repeats, 2))  # of the outcomes, and of drawn ones
    for at, share in enumerate(sizes):
        size = max(round(share * len(p)), 1)
        for trial in range(repeats):
            right = rng.random(len(p)) < p
            for _ in range(draws if size < len(p) else 1):
                group = rng.choice(len(p), size, replace=False, shuffle=False)
                both = np.stack([y[group], right[group]])
                errors = _error(p[group], both, _bins(p[group], count))
                np.maximum(worst[at, trial], errors, out=worst[at, trial])
    mean, spread = torch.from_numpy(worst.mean(1)), torch.from_numpy(worst.std(1)) / repeats**0.5
    return AdversarialCalibration(torch.tensor(sizes, dtype=torch.float64), mean[:, 0], spread[:, 0], mean[:, 1])


@dataclass(frozen=True, eq=False)
class AdversarialCalibration:
    """The worst calibration error of random groups of S sizes.

    :param shares: (S,) size of a group as a share of the data.
    :param worst: (S,) largest error over the groups of a trial, mean over trials.
    :param standard_error: (S,) of that mean.
    :param chance: (S,) the same for outcomes drawn from the probabilities.
    """

    shares: Tensor
    worst: Tensor
    standard_error: Tensor
    chance: Tensor

    def __str__(self) -> str:
        columns = (self.shares, self.worst, self.standard_error, self.chance)
        lines = zip(*(column.tolist() for column in columns), strict=True)
        shown = [f"{share:5.0%}  {worst:.5f} +- {error:.5f}  {chance:.5f}" for share, worst, error, chance in lines]
        return "\n".join(["share  worst error         chance", *shown])


def _events(probabilities: Any, outcomes: Any, shares: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(Q,) each, checked; with ``shares``, outcomes may be between 0 and 1."""
    p = check_values(probabilities, None, "probabilities", torch.float64).cpu()
    refuse_where((p < 0) | (p > 1), p, "probabilities", "a probability from 0 to 1")
    given = as_tensor(outcomes, "outcomes")
    y = check_values(given.double() if given.dtype == torch.bool else given, len(p), "outcomes", torch.float64).cpu()
    if shares:
        refuse_where((y < 0) | (y > 1), y, "outcomes", "0, 1 or a share of events")
    else:
        refuse_where((y != 0) & (y != 1), y, "outcomes", "0 or 1")
    if len(p) == 0:
        raise InputError("probabilities: expected at least one, got none")
    return p.numpy(), y.numpy()


def _bins(p: np.ndarray, count: int, weights: np.ndarray | None = None) -> np.ndarray:
    """(Q,) the bin of each probability: equal counts, or equal sums of weights; ties together."""
    order = np.argsort(p)
    total = np.arange(1, len(p) + 1) if weights is None else weights[order].cumsum()
    first = np.searchsorted(total, np.arange(1, count) * total[-1] / count, side="right").clip(1, len(p) - 1)
    cuts = np.unique(p[order][first])  # the first probability of each bin
    return np.searchsorted(cuts, p, side="right")


def _error(p: np.ndarray, outcomes: np.ndarray, bins: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """(K,) errors of K vectors of outcomes (K, Q)."""
    w = np.ones_like(p) if weights is None else weights
    return np.array([np.abs(np.bincount(bins, weights=w * (p - y))).sum() / w.sum() for y in outcomes])
