"""Figures with logarithmic axes: numbers in a file, from which they are drawn once for light and once for dark pages."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

# Okabe and Ito's colours, which colour-blind readers can tell apart; on dark pages the dark ones are lighter
COLOURS = {
    "light": ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#8C6D00", "#444444"),
    "dark": ("#56B4E9", "#FF8C42", "#3DDC9B", "#E39AD0", "#F0E442", "#CCCCCC"),
}
INK = {"light": "#222222", "dark": "#dddddd"}
LONG = 100_000  # from here on labels of sizes need more room
MARKERS, DASHES = "osD^vP", ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (1, 2)))


@dataclass(frozen=True)
class Line:
    """One contestant.

    :param name: for the legend.
    :param x: sizes.
    :param y: what was measured there.
    """

    name: str
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Panel:
    """One pair of axes, both logarithmic.

    :param title: above it.
    :param x: label of the axis, with its unit.
    :param y: label of the axis, with its unit.
    :param lines: those without points are left out.
    """

    title: str
    x: str
    y: str
    lines: list[Line]

    @property
    def empty(self) -> bool:
        """Whether there is not a single point."""
        return not any(line.x for line in self.lines)


@dataclass(frozen=True)
class Figure:
    """Panels side by side.

    :param alt: what it shows, for those who cannot see it.
    :param panels: one to three; contestants keep their colour over all of them. Empty ones are left out.
    """

    alt: str
    panels: list[Panel]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return all(panel.empty for panel in self.panels)


def save_figures(figures: dict[str, Figure], path: Path) -> None:
    """The numbers of all figures, by the names of their files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({stem: asdict(figure) for stem, figure in figures.items()}, indent=1) + "\n")


def load_figures(path: Path) -> dict[str, Figure]:
    """What :func:`save_figures` has written."""
    return {
        stem: Figure(
            one["alt"],
            [Panel(**{**panel, "lines": [Line(**line) for line in panel["lines"]]}) for panel in one["panels"]],
        )
        for stem, one in json.loads(path.read_text()).items()
    }


def draw_figures(path: Path) -> list[Path]:
    """Every figure of a file that :func:`save_figures` has written, beside it."""
    return [drawn for stem, figure in load_figures(path).items() for drawn in write_figure(figure, path.parent, stem)]


def write_figure(figure: Figure, folder: Path, stem: str) -> list[Path]:
    """``stem-light.svg`` and ``stem-dark.svg``."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    return [_drawn(figure, folder / f"{stem}-{page}.svg", page) for page in ("light", "dark")]


def _drawn(figure: Figure, path: Path, page: str) -> Path:
    import matplotlib.pyplot as plt

    ink = INK[page]
    colours = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), ink)
    style = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "mvgp", "axes.facecolor": "none", **colours}
    names = list(dict.fromkeys(line.name for panel in figure.panels for line in panel.lines))
    panels = [panel for panel in figure.panels if not panel.empty]
    with plt.rc_context(style):
        drawn, axes = plt.subplots(
            1,
            len(panels),
            figsize=(7.6 if len(panels) > 1 else 5.0, 3.4),
            layout="constrained",
            squeeze=False,
        )
        handles = {}
        for axis, panel in zip(axes.flat, panels, strict=True):
            for line in panel.lines:
                if not line.x:
                    continue
                place = names.index(line.name) % len(MARKERS)
                look = {"color": COLOURS[page][place], "marker": MARKERS[place], "linestyle": DASHES[place]}
                handles[line.name] = axis.plot(line.x, line.y, markersize=4.5, linewidth=1.6, **look)[0]
            axis.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
            axis.loglog()
            _ticks(axis, panel, most=3 if len(panels) > 2 else 6)
            axis.grid(color=ink, alpha=0.15, linewidth=0.6)
            axis.spines[["top", "right"]].set_visible(False)
        shown = [name for name in names if name in handles]
        drawn.legend(
            [handles[name] for name in shown],
            shown,
            loc="outside lower center",
            ncols=min(4, len(shown)),
            frameon=False,
        )
        drawn.savefig(path, transparent=True, metadata={"Date": None})
        plt.close(drawn)
    return path


def _ticks(axis, panel: Panel, most: int) -> None:
    """Across, the sizes that were measured, as far as there is room; up, numbers as one writes them."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

    sizes = sorted({x for line in panel.lines for x in line.x})
    most = 2 * most // 3 if sizes[-1] >= LONG else most
    axis.xaxis.set_major_locator(FixedLocator(spread(sizes, most)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    heights = [y for line in panel.lines for y in line.y]
    if max(heights) < 100 * min(heights):
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def spread(sizes: list[float], most: int) -> list[float]:
    """The first and the last of ``sizes``, and those between that are a ``most``-th of the axis away from all others."""
    if len(sizes) < 3:
        return sizes
    gap, kept = math.log(sizes[-1] / sizes[0]) / most, [sizes[0]]
    for one in sizes[1:-1]:
        if math.log(one / kept[-1]) >= gap * 0.99 and math.log(sizes[-1] / one) >= gap * 0.99:
            kept.append(one)
    return [*kept, sizes[-1]]
