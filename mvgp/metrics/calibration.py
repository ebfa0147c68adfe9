"""coverage: do the intervals of a posterior hold as many held-out values as they promise?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..checks import check_instance, check_not_negative, check_number, without_gradient
from ..data.observed import ObservedMatrix
from ..errors import InputError
from ..tensor_checks import as_reals, as_tensor, check_values, refuse_where

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
