"""Figures as PNG on white, drawn by matplotlib."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .figure import Figure, Panel, Series
from .layout import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, legend
from .palette import LIGHT, PAPER, dash

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 200


def png_file(figure: Figure) -> bytes:
    """A figure as a PNG file: panels side by side above the legend."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
        from matplotlib.lines import Line2D
    except ImportError as error:
        raise InputError("figures as PNG: expected matplotlib, got none; pip install 'mvgp[cli]'") from error
    width = WIDTH * len(figure.panels)
    entries, height = legend(figure.legend, len(figure.panels))
    with rc_context({"font.size": 8, "axes.titlesize": 9, "text.parse_math": False}):
        canvas = Canvas(figsize=(width / 100, height / 100), dpi=DPI, facecolor=PAPER["paper"])
        FigureCanvasAgg(canvas)
        inner = ((WIDTH - LEFT - RIGHT) / width, (HEIGHT - TOP - BOTTOM) / height)
        for place, panel in enumerate(figure.panels):
            _draw(canvas.add_axes(((WIDTH * place + LEFT) / width, 1 - (HEIGHT - BOTTOM) / height, *inner)), panel)
        for entry in entries:
            x, y = entry.x / width, 1 - entry.y / height
            canvas.add_artist(Line2D([x, x + 22 / width], [y, y], **_style(entry.place)))
            canvas.text(x + 28 / width, y, _printable(entry.name), va="center_baseline")
        file = io.BytesIO()
        canvas.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _draw(axes: Axes, panel: Panel) -> None:
    if panel.diagonal:
        ends = (panel.x.low, panel.x.high)
        axes.plot(ends, ends, color=PAPER["muted"], linewidth=0.8, linestyle=(0, (4, 4)))
    for one in panel.series:
        _series(axes, one)
    axes.set_title(_printable(panel.title), loc="left", fontweight="bold")
    axes.set_xlabel(_printable(panel.x_label))
    if panel.x.log:
        axes.set_xscale("log")
    if panel.y.log:
        axes.set_yscale("log")
    axes.set_xlim(panel.x.low, panel.x.high)
    axes.set_ylim(panel.y.low, panel.y.high)
    axes.set_xticks(panel.x.ticks, panel.x.labels)
    axes.set_yticks(panel.y.ticks, panel.y.labels)
    axes.minorticks_off()
    axes.grid(axis="y", color=PAPER["grid"], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=PAPER["muted"], length=3)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _series(axes: Axes, one: Series) -> None:
    style = _style(one.place)
    if one.low is not None and one.high is not None:
        axes.fill_between(one.x, one.low, one.high, color=style["color"], alpha=0.14, linewidth=0)
    if one.line:
        axes.plot(one.x, one.y, **{**style, "linewidth": 0.6 if one.thin else 1.5, "alpha": 0.35 if one.thin else 1})
    if one.marks or len(one.x) == 1:
        ring = one.marks == "ring"
        face = PAPER["paper"] if ring else style["color"]
        axes.scatter(one.x, one.y, s=32 if ring else 10, color=face, edgecolors=style["color"], zorder=3, clip_on=False)


def _style(place: int) -> dict[str, Any]:
    dashes = tuple(float(part) / 2 for part in dash(place).split())
    return {"color": LIGHT[place % len(LIGHT)], "linestyle": (0, dashes) if dashes else "-", "linewidth": 1.5}


def _printable(label: str) -> str:
    """A label without the characters that the font of matplotlib lacks or a line cannot hold."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    known = get_font(findfont(FontProperties())).get_charmap()
    return "".join(letter if ord(letter) in known else "?" for letter in label)
