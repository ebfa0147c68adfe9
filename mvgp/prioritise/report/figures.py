"""Figures of a report: matplotlib draws each of them once, for the page, for SVG files and for PNG files.

The page shows the panels of the SVG drawing one by one, so that they flow on a narrow screen. There, each colour is
replaced by a CSS variable, so that the drawing follows the theme of the page.
"""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.text import Text

# characters that no page or SVG may hold: control characters, halves of surrogate pairs, non-characters
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Colours of series, each at least 3 : 1 against its background. After eight series, dashes tell them apart.
LIGHT = ("#0a63b4", "#c4510b", "#08806a", "#9a3a8c", "#7d6a00", "#2f8fc9", "#b3233e", "#565d67")
DARK = ("#5eb0ff", "#ff9a57", "#3fd0ae", "#e68fd8", "#d9c24a", "#9bd7ff", "#ff8095", "#b3bac4")
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3))
INK, MUTED, GRID, PAPER = "#1b1f24", "#5b636d", "#e3e6ea", "#ffffff"
VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"} | {c: f"series-{n}" for n, c in enumerate(LIGHT)}

# Layout in units of the SVG, which are CSS pixels in the page.
WIDTH, HEIGHT = 380, 280  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 32, 42  # margins of a panel
LEGEND_ROW, LEGEND_CHARACTER = 20, 7.2
PNG_DPI = 144  # two pixels for each unit

FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
STYLE = Path(__file__).parent / "assets" / "figure.mplstyle"
MUTED_PARTS = ("axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")


@dataclass(frozen=True)
class Series:
    """Points of one model or setting in one panel, perhaps with a band from ``low`` to ``high``."""

    index: int  # of its name in the legend, which gives colour and dashes
    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    line: bool = True  # whether points are joined
    marks: str = ""  # of points: "", "dot" or "ring" (for what was chosen)
    thin: bool = False  # whether the line is faint, for one of many folds
    tips: Sequence[str] | None = None  # text of each marked point


@dataclass(frozen=True)
class Panel:
    """One pair of axes, which hold all points; those of a logarithmic axis are positive."""

    title: str
    x_label: str
    series: Sequence[Series]
    x_log: bool = False
    y_log: bool = False
    x_range: tuple[float, float] | None = None  # that of the points when left out
    y_range: tuple[float, float] | None = None
    from_zero: bool = False  # whether the vertical axis begins at zero or below
    diagonal: bool = False  # whether y = x is drawn


def clean(value: object) -> str:
    """Text without the characters that no page may hold."""
    return FORBIDDEN.sub("\ufffd", str(value))


def dashes(index: int) -> tuple[int, ...]:
    """Lengths of the dashes and gaps of a series; none for a solid line."""
    return DASHES[index // len(LIGHT) % len(DASHES)]


class Figure:
    """Panels side by side above a legend, which has names in the order of the series' indices."""

    def __init__(self, name: str, title: str, panels: Sequence[Panel], legend: Sequence[str] = ()) -> None:
        self.name, self.title, self.panels, self.legend = name, title, tuple(panels), tuple(legend)
        self._labels: list[str] = []  # texts and series of the drawing, in the order of the ids of their elements
        self._series: list[Series] = []
        file = io.BytesIO()
        with _style():
            self.canvas = self._draw()
            self.canvas.savefig(file, format="svg", metadata={"Date": None})
        self._svg = self._tidy(ElementTree.fromstring(file.getvalue()))

    def png(self) -> bytes:
        """The figure as a PNG file."""
        file = io.BytesIO()
        with _style():
            self.canvas.savefig(file, format="png", dpi=PNG_DPI, metadata={"Software": None})
        return file.getvalue()

    def svg(self) -> bytes:
        """The figure as an SVG file, with the colours for white paper."""
        declaration = '<?xml version="1.0" encoding="UTF-8"?>\n'
        return (declaration + ElementTree.tostring(self._svg, encoding="unicode") + "\n").encode()

    def inline_panels(self) -> list[str]:
        """Each panel as an SVG element of the page, with variables for colours."""
        elements = []
        for index, panel in enumerate(self.panels):
            identity = f"{self.name}-{index}-title"
            root = ElementTree.Element("svg", {"class": "panel", "viewBox": f"{WIDTH * index} 0 {WIDTH} {HEIGHT}"})
            root.attrib |= {"role": "img", "aria-labelledby": identity}
            root.attrib |= {name: self._svg.attrib[name] for name in ("font-family", "stroke-linejoin")}
            root.append(_title(f"{panel.title} against {panel.x_label}", id=identity))
            root.append(deepcopy(next(group for group in self._svg.iter("g") if group.get("data-panel") == str(index))))
            for element in root.iter():
                if "style" in element.attrib:
                    coloured = re.sub(
                        "#[0-9a-f]{6}", lambda match: f"var(--{VARIABLES[match[0]]})", element.attrib["style"]
                    )
                    element.set("style", coloured)
            elements.append(ElementTree.tostring(root, encoding="unicode"))
        return elements

    def _draw(self) -> Canvas:
        from matplotlib.figure import Figure as Canvas
        from matplotlib.lines import Line2D

        width = WIDTH * len(self.panels)
        room = max((46 + LEGEND_CHARACTER * len(name) for name in self.legend), default=1.0)
        columns = max(1, int((width - LEFT) / room))
        rows = math.ceil(len(self.legend) / columns)
        height = HEIGHT + (LEGEND_ROW * rows + 10 if rows else 0)
        canvas = Canvas(figsize=(width / 72, height / 72), facecolor=PAPER)
        size = ((WIDTH - LEFT - RIGHT) / width, (HEIGHT - TOP - BOTTOM) / height)
        for index, panel in enumerate(self.panels):
            corner = ((WIDTH * index + LEFT) / width, 1 - (HEIGHT - BOTTOM) / height)
            self._draw_panel(canvas.add_axes((*corner, *size), gid=f"panel-{index}"), panel)
        if self.legend:
            legend = canvas.legend(
                [Line2D([], [], **_line_style(index)) for index in range(len(self.legend))],
                ["name"] * len(self.legend),  # the real ones follow: matplotlib leaves out those that begin with _
                loc="upper left",
                bbox_to_anchor=(LEFT / width, 1 - (HEIGHT + 5) / height),
                ncols=columns,
                frameon=False,
                borderpad=0,
                borderaxespad=0,
                labelspacing=0.6,
            )
            for artist, name in zip(legend.get_texts(), self.legend, strict=True):
                self._label(artist, name)
        return canvas

    def _draw_panel(self, axes: Axes, panel: Panel) -> None:
        axes.patch.set_visible(False)
        self._label(axes.set_title(""), panel.title)
        self._label(axes.set_xlabel(""), panel.x_label)
        axes.xaxis.set_label_coords(0.5, -(BOTTOM - 5) / (HEIGHT - TOP - BOTTOM))
        axes.xaxis.label.set_verticalalignment("bottom")
        axes.set(xscale="log" if panel.x_log else "linear", yscale="log" if panel.y_log else "linear")
        if panel.diagonal:
            through = {"xy1": (1, 1), "xy2": (0.1, 0.1)} if panel.x_log else {"xy1": (0, 0), "slope": 1}
            axes.axline(**through, color=MUTED, linewidth=1, linestyle=(0, (4, 4)), clip_on=False)
        for series in panel.series:
            self._draw_series(axes, series)
        _set_axes(axes, panel)
        axes.grid(axis="y", clip_on=False)

    def _draw_series(self, axes: Axes, series: Series) -> None:
        """Draw a band, a line and marks; their ids lead back to the series."""
        number, style = len(self._series), _line_style(series.index)
        colour = style["color"]
        self._series.append(series)
        if series.low is not None and series.high is not None and len(series.x) > 1:
            edges = [*series.x, *reversed(series.x)], [*series.high, *reversed(series.low)]
            axes.fill(*edges, color=colour, alpha=0.14, linewidth=0, clip_on=False, gid=f"band-{number}")
        if series.line and len(series.x) > 1:
            strength = {"linewidth": 1, "alpha": 0.35} if series.thin else {}
            axes.plot(series.x, series.y, **{**style, **strength}, clip_on=False, gid=f"line-{number}")
        if not series.marks and len(series.x) != 1:
            return
        dot = {"color": colour, "marker": "o", "markersize": 6, "markeredgewidth": 0, "clip_on": False, "zorder": 3}
        ring = {"markersize": 12, "markerfacecolor": PAPER, "markeredgecolor": colour, "markeredgewidth": 2.2}
        for point, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            gid = f"mark-{number}-{point}"
            if series.marks == "ring":
                axes.plot(x, y, **{**dot, **ring}, gid=gid)
                axes.plot(x, y, **{**dot, "markersize": 4.8}, gid=gid)
            else:
                axes.plot(x, y, **dot, gid=gid)

    def _label(self, artist: Text, label: str) -> None:
        """Set a text, and remember it whole: matplotlib's font may lack some of its letters."""
        artist.set_text(_printable(label))
        artist.set_gid(f"label-{len(self._labels)}")
        self._labels.append(label)

    def _tidy(self, root: ElementTree.Element) -> ElementTree.Element:
        """Keep the shapes of matplotlib's SVG; add names, values and tips; leave out ids, which a page has once."""
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
        markers = {element.get("id"): element for element in root.iter("path") if element.get("id")}
        for element in root.iter():
            for child in [*element.findall("defs"), *element.findall("metadata")]:
                element.remove(child)
            if element.tag == "use":  # a marker or a tick
                marker = markers[element.attrib.pop("{http://www.w3.org/1999/xlink}href")[1:]]
                position = f"translate({_rounded(element.attrib.pop('x'))} {_rounded(element.attrib.pop('y'))})"
                style = f"{element.get('style')}; {marker.get('style')}"
                element.tag, element.attrib = "path", {"d": marker.attrib["d"], "transform": position, "style": style}
            if "d" in element.attrib:
                element.set("d", " ".join(_rounded(element.attrib["d"]).split()))
            if element.tag == "text":
                element.attrib.pop("transform", None)
                element.set("style", re.sub("font-family: [^;]*; ", "", element.attrib["style"]))
            element.text, element.tail = (element.text if element.tag == "text" else None), None
        for group in root.iter("g"):
            self._annotate(group, *group.attrib.pop("id", "").split("-"))
        width, height = root.attrib["viewBox"].split()[2:]
        root.attrib = {"xmlns": "http://www.w3.org/2000/svg", "width": width, "height": height, "role": "img"}
        root.attrib |= {"viewBox": f"0 0 {width} {height}", "font-family": FONT, "stroke-linejoin": "round"}
        root.insert(0, _title(self.title))
        return root

    def _annotate(self, group: ElementTree.Element, kind: str, number: str = "", point: str = "") -> None:
        """Write what a group shows into the SVG, by the id that it was drawn with."""
        if kind == "panel":
            group.set("data-panel", number)
        elif kind == "label":
            for element in group.iter("text"):
                element.text = clean(self._labels[int(number)])
        elif kind in ("band", "line", "mark"):
            series = self._series[int(number)]
            group.attrib |= {"class": "series", "data-place": str(series.index), "data-label": clean(series.label)}
            for path in group.iter("path"):
                path.set("class", kind)
            if kind == "line" and not series.thin:
                points = zip(series.x, series.y, strict=True)
                group.set("data-points", " ".join(f"{x:.6g},{y:.6g}" for x, y in points))
            if kind == "mark" and series.tips:
                group.insert(0, _title(series.tips[int(point)]))


def _style() -> AbstractContextManager[None]:
    """Give the settings of matplotlib for a report, whatever the user's own are."""
    try:
        from matplotlib.style import context
    except ImportError as error:
        raise InputError("figures: expected matplotlib, got none; pip install 'mvgp[cli]'") from error
    colours: dict[Any, Any] = {"text.color": INK, "grid.color": GRID, **dict.fromkeys(MUTED_PARTS, MUTED)}
    return context(["default", STYLE, colours])


def _set_axes(axes: Axes, panel: Panel) -> None:
    """Let the axes end at round numbers, the horizontal one at the first and the last point."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, ScalarFormatter

    logs = ((axes.xaxis, panel.x_log), (axes.yaxis, panel.y_log))
    for axis in (axis for axis, log in logs if not log):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(ScalarFormatter(useOffset=False))
    xs = [x for series in panel.series for x in series.x]
    if panel.x_range is not None:
        axes.set_xlim(*panel.x_range)
    elif max(xs) > (10 * min(xs) if panel.x_log else min(xs)):
        axes.set_xlim(min(xs), max(xs))
    if panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    elif panel.from_zero:
        axes.update_datalim([(xs[0], 0.0)])
        axes.autoscale_view(scalex=False)
    for axis in (axis for axis, log in logs if log):
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1,) if high >= 100 * low else (1, 2, 5), numticks=8))
        axis.set_major_formatter(FuncFormatter(_power))
    axes.minorticks_off()


def _power(value: float, position: int | None = None) -> str:
    """Write a tick of a logarithmic axis; a power of ten is raised by letters, since labels are no formulas."""
    power = math.floor(math.log10(value) + 1e-9)
    if -3 <= power <= 4:
        return f"{value:,.{max(0, -power)}f}"
    lead = round(value / 10.0**power)
    raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return ("" if lead == 1 else f"{lead}·") + "10" + raised


def _line_style(index: int) -> dict[str, Any]:
    pattern = (0, dashes(index)) if dashes(index) else "-"
    return {"color": LIGHT[index % len(LIGHT)], "linestyle": pattern, "linewidth": 2}


def _printable(label: str) -> str:
    """Replace the characters that matplotlib's font lacks or a line cannot hold."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    known = get_font(findfont(FontProperties())).get_charmap()
    return "".join(letter if ord(letter) in known else "?" for letter in label)


def _title(content: str, **attributes: str) -> ElementTree.Element:
    element = ElementTree.Element("title", attributes)
    element.text = clean(content)
    return element


def _rounded(numbers: str) -> str:
    return re.sub(r"\d+\.\d+", lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), numbers)
