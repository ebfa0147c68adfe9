"""Figures as descriptions: what is drawn, whatever draws it (SVG for the page, matplotlib for PNG)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

# each at least 3 : 1 against its background
LIGHT = ("#0a63b4", "#c4510b", "#08806a", "#9a3a8c", "#7d6a00", "#2f8fc9", "#b3233e", "#565d67")
DARK = ("#5eb0ff", "#ff9a57", "#3fd0ae", "#e68fd8", "#d9c24a", "#9bd7ff", "#ff8095", "#b3bac4")
DASHES = ("", "7 3", "2 3", "9 3 2 3")  # the second eight series are dashed, and so on

PAPER = {"ink": "#1b1f24", "muted": "#5b636d", "grid": "#e3e6ea", "paper": "#ffffff"}


def colour(place: int) -> str:
    """The colour of a series, as a variable that the page sets for light and dark."""
    return f"var(--series-{place % len(LIGHT)})"


def dash(place: int) -> str:
    """The dashes of a series, as in ``stroke-dasharray``; empty for a solid line."""
    return DASHES[place // len(LIGHT) % len(DASHES)]


def variables(colours: tuple[str, ...]) -> str:
    """Declarations of the colours for a style sheet."""
    return " ".join(f"--series-{place}: {value};" for place, value in enumerate(colours))


def fixed(markup: str) -> str:
    """A drawing with the variables replaced by the colours for white paper.

    Example:
        >>> fixed('<path stroke="var(--series-0)"/>')
        '<path stroke="#0a63b4"/>'

    """
    known = {**PAPER, **{f"series-{place}": value for place, value in enumerate(LIGHT)}}
    return re.sub(r"var\(--([a-z0-9-]+)\)", lambda found: known[found[1]], markup)


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


WIDTH, HEIGHT = 380, 280  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 32, 42  # margins of a panel
LEGEND_ROW = 20
CHARACTER = 6.6  # rough width in the legend


@dataclass(frozen=True)
class LegendEntry:
    """A name in the legend below the panels: where its line begins, and the middle of its height."""

    place: int
    name: str
    x: float
    y: float


def legend(names: Sequence[str], num_panels: int) -> tuple[list[LegendEntry], int]:
    """Entries from left to right in as many lines as they need, and the height of a figure with them.

    :param names: in the order of their places.
    :param num_panels: of the figure, which give its width.
    """
    entries: list[LegendEntry] = []
    x, row = float(LEFT), 0
    for place, name in enumerate(names):
        room = 46 + CHARACTER * len(name)
        if x > LEFT and x + room > WIDTH * num_panels:
            x, row = LEFT, row + 1
        entries.append(LegendEntry(place, name, round(x, 1), HEIGHT + LEGEND_ROW * row + 10))
        x += room
    return entries, HEIGHT + (LEGEND_ROW * (row + 1) + 10 if names else 0)


@dataclass(frozen=True)
class Series:
    """Points of one thing in one panel.

    :param place: of the thing in the legend, which gives colour and dashes.
    :param label: its name.
    :param x: of each point.
    :param y: of each point.
    :param low: lower edge of a band, or None.
    :param high: upper edge of a band, or None.
    :param line: whether points are joined.
    :param marks: whether points are marked: ``""``, ``"dot"`` or ``"ring"`` (for what was chosen).
    :param thin: whether the line is faint, for one of many folds.
    :param tips: text of each marked point, or None.
    """

    place: int
    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    line: bool = True
    marks: str = ""
    thin: bool = False
    tips: Sequence[str] | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    :param title: above it.
    :param x_label: below it.
    :param series: drawn in this order.
    :param x: the horizontal axis.
    :param y: the vertical axis.
    :param diagonal: whether y = x is drawn.
    """

    title: str
    x_label: str
    series: tuple[Series, ...]
    x: Axis
    y: Axis
    diagonal: bool = False


@dataclass(frozen=True)
class Figure:
    """Panels side by side that share a legend.

    :param name: of its files.
    :param title: what it shows.
    :param panels: from left to right.
    :param legend: names, in the order of their places.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    legend: tuple[str, ...] = field(default=())


def panel(
    title: str,
    x_label: str,
    series: Sequence[Series],
    *,
    x_log: bool = False,
    y_log: bool = False,
    x_range: tuple[float, float] | None = None,
    y_from: float | None = None,
    y_range: tuple[float, float] | None = None,
    diagonal: bool = False,
) -> Panel:
    """A panel whose axes hold all of its points.

    :param title: above it.
    :param x_label: below it.
    :param series: what is drawn; points of a logarithmic axis are positive.
    :param x_log: whether the horizontal axis is logarithmic.
    :param y_log: whether the vertical axis is logarithmic.
    :param x_range: of the horizontal axis; that of the points when left out.
    :param y_from: where the vertical axis begins at the latest.
    :param y_range: of the vertical axis; that of the points when left out.
    :param diagonal: whether y = x is drawn.
    """
    xs = [value for one in series for value in one.x] if x_range is None else list(x_range)
    ys = [value for one in series for part in (one.y, one.low or (), one.high or ()) for value in part]
    if y_range is not None:
        ys = list(y_range)
    if y_from is not None:
        ys.append(y_from)
    x = log_axis(xs) if x_log else linear_axis(xs, tight=True)
    y = log_axis(ys) if y_log else linear_axis(ys, tight=y_range is not None)
    return Panel(title, x_label, tuple(series), x, y, diagonal)
