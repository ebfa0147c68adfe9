"""Figures as descriptions: what is drawn, whatever draws it (SVG for the page, matplotlib for PNG)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .ticks import Axis, linear_axis, log_axis


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
