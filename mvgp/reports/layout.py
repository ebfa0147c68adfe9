"""Where things are in a figure, in hundredths of an inch: the same in SVG and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
