"""Figures as SVG: panels inside the page, which follow its colours, and files with colours for white paper."""

from __future__ import annotations

from collections.abc import Sequence

from .figure import Figure, Panel, Series
from .layout import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, LegendEntry, legend
from .markup import text
from .palette import colour, dash, fixed

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
