"""A section of the report, and what sections have in common."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from .contents import Table
from .figures import (
    BOTTOM,
    HEIGHT,
    LEFT,
    LIGHT,
    PAPER,
    RIGHT,
    TOP,
    WIDTH,
    Figure,
    LegendEntry,
    Panel,
    Series,
    colour,
    dash,
    fixed,
    legend,
)
from .markup import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


def inline_svg(panel: Panel, identity: str) -> str:
    """A panel as an element of the page.

    :param panel: what is drawn.
    :param identity: prefix of the ids in it.
    """
    return (
        f'<svg class="panel" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{identity}-title" '
        f'font-family="{FONT}"><title id="{identity}-title">{text(panel.title)} against {text(panel.x_label)}</title>'
        f"{_draw(panel)}</svg>"
    )


def svg_file(figure: Figure) -> bytes:
    """A figure as a file of its own: panels side by side above the legend, colours for white paper."""
    width = WIDTH * len(figure.panels)
    entries, height = legend(figure.legend, len(figure.panels))
    panels = "".join(f'<g transform="translate({WIDTH * n} 0)">{_draw(p)}</g>' for n, p in enumerate(figure.panels))
    return fixed(
        f'<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" font-family="{FONT}"><title>{text(figure.title)}</title>'
        f'<rect width="{width}" height="{height}" fill="var(--paper)"/>{panels}{"".join(map(_entry, entries))}</svg>\n'
    ).encode()


def swatch(place: int) -> str:
    """A short piece of the line of a series, for a legend of the page."""
    return f'<svg class="swatch" viewBox="0 0 24 10" aria-hidden="true"><path d="M1 5H23"{_stroke(place, 2.4)}/></svg>'


def _draw(panel: Panel) -> str:
    parts = [_frame(panel)]
    if panel.diagonal:
        ends = _path(panel, [panel.x.low, panel.x.high], [panel.x.low, panel.x.high])
        parts.append(f'<path class="diagonal" d="{ends}" fill="none" stroke="var(--muted)" stroke-dasharray="4 4"/>')
    parts += [_series(panel, series) for series in panel.series]
    return "".join(parts)


def _frame(panel: Panel) -> str:
    parts = []
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    small = 'font-size="11" fill="var(--muted)"'
    for tick, label in zip(panel.y.ticks, panel.y.labels, strict=True):
        y = _y(panel, tick)
        parts.append(f'<path d="M{LEFT} {y}H{right}" stroke="var(--grid)"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y}" dy="0.35em" text-anchor="end" {small}>{label}</text>')
    for tick, label in zip(panel.x.ticks, panel.x.labels, strict=True):
        x = _x(panel, tick)
        parts.append(f'<path d="M{x} {bottom}v4" stroke="var(--muted)"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle" {small}>{label}</text>')
    parts.append(f'<path d="M{LEFT} {bottom}H{right}" stroke="var(--muted)"/>')
    middle = (LEFT + right) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle" {small}>{text(panel.x_label)}</text>')
    title = f'x="{LEFT}" y="16" font-size="13" font-weight="600" fill="var(--ink)"'
    parts.append(f"<text {title}>{text(panel.title)}</text>")
    return "".join(parts)


def _series(panel: Panel, one: Series) -> str:
    parts = []
    if one.low is not None and one.high is not None and len(one.x) > 1:
        edge = _path(panel, [*one.x, *reversed(one.x)], [*one.high, *reversed(one.low)])
        parts.append(f'<path class="band" d="{edge}Z" fill="{colour(one.place)}" fill-opacity="0.14"/>')
    if one.line and len(one.x) > 1:
        faint = ' stroke-opacity="0.35"' if one.thin else ""
        line = _path(panel, one.x, one.y)
        parts.append(f'<path class="line" d="{line}"{_stroke(one.place, 1 if one.thin else 2)}{faint}/>')
    if one.marks or len(one.x) == 1:
        parts += [_mark(panel, one, place) for place in range(len(one.x))]
    points = (
        " ".join(f"{x:.6g},{y:.6g}" for x, y in zip(one.x, one.y, strict=True)) if one.line and not one.thin else ""
    )
    data = f' data-points="{points}"' if points else ""
    return f'<g class="series" data-place="{one.place}" data-label="{text(one.label)}"{data}>{"".join(parts)}</g>'


def _mark(panel: Panel, one: Series, place: int) -> str:
    centre = f'cx="{_x(panel, one.x[place])}" cy="{_y(panel, one.y[place])}"'
    tip = f"<title>{text(one.tips[place])}</title>" if one.tips else ""
    if one.marks == "ring":
        ring = f'{centre} r="6" fill="var(--paper)" stroke="{colour(one.place)}" stroke-width="2.2"'
        return f'<circle {ring}>{tip}</circle><circle {centre} r="2.4" fill="{colour(one.place)}"/>'
    return f'<circle {centre} r="3" fill="{colour(one.place)}">{tip}</circle>'


def _stroke(place: int, width: float) -> str:
    dashes = f' stroke-dasharray="{dash(place)}"' if dash(place) else ""
    return f' fill="none" stroke="{colour(place)}" stroke-width="{width}" stroke-linejoin="round"{dashes}'


def _entry(entry: LegendEntry) -> str:
    words = f'x="{entry.x + 28}" y="{entry.y}" dy="0.35em" font-size="12" fill="var(--ink)"'
    return f'<path d="M{entry.x} {entry.y}h22"{_stroke(entry.place, 2)}/><text {words}>{text(entry.name)}</text>'


def _x(panel: Panel, value: float) -> float:
    return round(LEFT + panel.x.share(value) * (WIDTH - LEFT - RIGHT), 2)


def _y(panel: Panel, value: float) -> float:
    return round(HEIGHT - BOTTOM - panel.y.share(value) * (HEIGHT - TOP - BOTTOM), 2)


def _path(panel: Panel, xs: Sequence[float], ys: Sequence[float]) -> str:
    return "M" + "L".join(f"{_x(panel, x)} {_y(panel, y)}" for x, y in zip(xs, ys, strict=True))


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
            _draw_raster(
                canvas.add_axes(((WIDTH * place + LEFT) / width, 1 - (HEIGHT - BOTTOM) / height, *inner)), panel
            )
        for entry in entries:
            x, y = entry.x / width, 1 - entry.y / height
            canvas.add_artist(Line2D([x, x + 22 / width], [y, y], **_style(entry.place)))
            canvas.text(x + 28 / width, y, _printable(entry.name), va="center_baseline")
        file = io.BytesIO()
        canvas.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _draw_raster(axes: Axes, panel: Panel) -> None:
    if panel.diagonal:
        ends = (panel.x.low, panel.x.high)
        axes.plot(ends, ends, color=PAPER["muted"], linewidth=0.8, linestyle=(0, (4, 4)))
    for one in panel.series:
        _series_raster(axes, one)
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


def _series_raster(axes: Axes, one: Series) -> None:
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


LONGEST = 40  # characters of a name in a legend


@dataclass(frozen=True)
class Section:
    """A part of the page.

    :param identity: its id, for links.
    :param title: its heading.
    :param body: HTML.
    :param figures: that it shows, to be written as files too.
    """

    identity: str
    title: str
    body: str
    figures: tuple[Figure, ...] = ()

    def html(self) -> str:
        """The section as HTML."""
        return (
            f'<section id="{self.identity}" aria-labelledby="{self.identity}-heading">'
            f'<h2 id="{self.identity}-heading">{text(self.title)}</h2>\n{self.body}\n</section>'
        )


def left_out(identity: str, title: str, table: Table | None) -> Section:
    """The place of a section whose table is not there, or has no lines yet.

    :param identity: of the section.
    :param title: of the section.
    :param table: that is empty, or None.
    """
    file = f"<code>tables/{identity}.tsv</code>"
    why = f"{file} is not in the study directory" if table is None else f"{file} has a header and no lines"
    return Section(identity, title, f'<p class="missing">Left out: {why}.</p>')


def source(name: str) -> str:
    """A link to the file of a table, beside the page."""
    return f'<p class="source"><a href="tables/{name}.tsv" download>tables/{name}.tsv</a></p>'


def shortened(name: str) -> str:
    """A name that fits into a legend."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def figure_html(figure: Figure, caption: str, *, legend_title: str) -> str:
    """A figure of the page: a legend of buttons, panels side by side, a caption with links to its files.

    :param figure: what is drawn.
    :param caption: HTML.
    :param legend_title: what the legend tells apart.
    """
    panels = "".join(inline_svg(one, f"{figure.name}-{place}") for place, one in enumerate(figure.panels))
    files = " ".join(f'<a href="figures/{figure.name}.{kind}" download>{kind.upper()}</a>' for kind in ("svg", "png"))
    legend = legend_html(figure.legend, legend_title) if figure.legend else ""
    return (
        f'<figure id="figure-{figure.name}">{legend}<div class="panels panels-{len(figure.panels)}">{panels}</div>'
        f'<figcaption>{caption} <span class="files">{files}</span></figcaption></figure>'
    )


def legend_html(names: Sequence[str], title: str) -> str:
    """Names and their lines; with JavaScript each is a button that shows or hides them."""
    entries = "".join(
        f'<li data-place="{place}">{swatch(place)}<bdi>{text(name)}</bdi></li>' for place, name in enumerate(names)
    )
    return f'<ul class="legend" aria-label="{text(title)}">{entries}</ul>'
