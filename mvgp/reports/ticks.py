"""Axes: a range, and round numbers in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MOST_DECADES = 7  # labels on a logarithmic axis


@dataclass(frozen=True)
class Axis:
    """A range and its ticks.

    :param low: where it begins.
    :param high: where it ends.
    :param ticks: numbers with a label.
    :param labels: of the ticks.
    :param log: whether it is logarithmic.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    log: bool = False

    def share(self, value: float) -> float:
        """Where a number lies, from 0 at the beginning to 1 at the end."""
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)


def linear_axis(values: Sequence[float], *, tight: bool = False, most: int = 6) -> Axis:
    """An axis for some numbers with ticks at multiples of 1, 2 or 5 times a power of ten.

    :param values: that the axis holds.
    :param tight: whether it ends at the extremes, not at ticks.
    :param most: ticks at most.

    Example:
        >>> linear_axis([0.02, 0.31]).labels
        ('0', '0.1', '0.2', '0.3', '0.4')

    """
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-12):
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    step = _step((high - low) / (most - 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = [round(place * step, digits + 2) for place in range(first, last + 1)]
    if tight:
        ticks = [tick for tick in ticks if low <= tick <= high]
    else:
        low, high = ticks[0], ticks[-1]
    return Axis(low, high, tuple(ticks), tuple(_plain(tick, digits) for tick in ticks))


def log_axis(values: Sequence[float]) -> Axis:
    """A logarithmic axis for some positive numbers, with ticks at powers of ten.

    Example:
        >>> log_axis([0.002, 1.0]).labels
        ('0.01', '0.1', '1')
        >>> log_axis([3e-9, 1e-6]).labels
        ('10⁻⁸', '10⁻⁷', '10⁻⁶')

    """
    low, high = min(values), max(values)
    if high < 3 * low:  # room for a tick or two
        middle = math.sqrt(low * high)
        low, high = min(low, middle / 1.8), max(high, middle * 1.8)
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((last - first + 1) / MOST_DECADES))
    ticks = [10.0**power for power in range(first, last + 1, every)]
    if len(ticks) < 2:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [m * 10.0**power for power in powers for m in (1, 2, 5)]
        ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    return Axis(low, high, tuple(ticks), tuple(_power(tick) for tick in ticks), log=True)


def _step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))


def _plain(value: float, digits: int) -> str:
    if value != 0 and (abs(value) >= 1e5 or digits > 5):
        return f"{value:.3g}"
    return "0" if value == 0 else f"{value:,.{digits}f}".replace("-", "\u2212")


def _power(value: float) -> str:
    power = math.floor(math.log10(value) + 1e-9)
    if -3 <= power <= 4:
        return f"{value:.{max(0, -power)}f}" if value < 1000 else f"{value:,.0f}"
    lead = round(value / 10.0**power)
    return ("" if lead == 1 else f"{lead}·") + "10" + str(power).translate(RAISED)
