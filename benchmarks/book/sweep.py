"""Sweep: several contestants at growing sizes, as measurements, lines of a figure and rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .figures import Line
from .measurement import LARGE, OVER, Measurement, Outcome
from .text import reason

Value = Callable[[Outcome], float | None]
LEAST = 8.0  # seconds: setting up a small problem on a busy machine


@dataclass(frozen=True)
class Contestant:
    """Who takes part.

    :param name: for tables and legends.
    :param function: ``module:function`` below ``contestants``.
    :param settings: beside those of the size.
    :param limit: seconds for each process, given the x of a size.
    :param gib: memory known to be needed at a size, given its x.
    """

    name: str
    function: str
    settings: dict[str, Any] = field(default_factory=dict)
    limit: Callable[[float], float] = lambda _: 60.0
    gib: Callable[[float], float] = lambda _: 0.0


@dataclass(frozen=True)
class Size:
    """How large.

    :param x: on the axis.
    :param text: in names and tables.
    :param settings: of every contestant at this size.
    """

    x: float
    text: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """Every contestant at every size, size by size.

    :param contestants: in the order of tables and colours.
    :param sizes: growing.
    :param chained: whether who was stopped at a size is not tried at larger ones.
    """

    contestants: Sequence[Contestant]
    sizes: Sequence[Size]
    chained: bool = True

    def plan(self) -> list[Measurement]:
        """The measurements, in turns."""
        return [
            Measurement(
                name_of(one, size),
                one.function,
                {**size.settings, **one.settings},
                one.limit(size.x),
                one.gib(size.x),
                after=name_of(one, self.sizes[place - 1]) if place and self.chained else None,
            )
            for place, size in enumerate(self.sizes)
            for one in self.contestants
        ]

    def found(self, outcomes: dict[str, Outcome], one: Contestant) -> Iterator[tuple[Size, Outcome]]:
        """Sizes that were measured, with the outcome."""
        for size in self.sizes:
            if name_of(one, size) in outcomes:
                yield size, outcomes[name_of(one, size)]

    def line(self, outcomes: dict[str, Outcome], one: Contestant, value: Value) -> Line:
        """What one contestant needed, where it was done."""
        points = [(size.x, value(found)) for size, found in self.found(outcomes, one) if found.done]
        points = [(x, y) for x, y in points if y is not None and y > 0]
        return Line(one.name, [x for x, _ in points], [y for _, y in points])

    def lines(self, outcomes: dict[str, Outcome], value: Value) -> list[Line]:
        """Those of all contestants."""
        return [self.line(outcomes, one, value) for one in self.contestants]

    def largest(self, outcomes: dict[str, Outcome], *ones: Contestant) -> Size | None:
        """The largest size at which all of ``ones`` were done."""
        done = [{size.x for size, found in self.found(outcomes, one) if found.done} for one in ones]
        return next((size for size in reversed(self.sizes) if all(size.x in sizes for sizes in done)), None)

    def stopped(self, outcomes: dict[str, Outcome]) -> str:
        """One sentence about who was stopped, where and why; empty if nobody was. (The page itself lists who failed.)"""
        parts = []
        for one in self.contestants:
            missing = [(size, found) for size, found in self.found(outcomes, one) if found.status in (OVER, LARGE)]
            for size, found in missing[:1] if self.chained else missing:
                parts.append(f"{one.name} at {size.text} ({reason(found)})")
        start = "Stopped, and not tried at larger sizes" if self.chained else "Stopped"
        return f"{start}: {'; '.join(parts)}." if parts else ""


def up_to(seconds: float, at: float) -> Callable[[float], float]:
    """A limit in proportion to the size, ``seconds`` from size ``at`` on; LEAST at small ones."""
    return lambda x: min(seconds, max(LEAST, seconds * x / at))


def name_of(one: Contestant, size: Size) -> str:
    """Of the measurement."""
    return f"{one.name}, {size.text}"


def total_seconds(outcome: Outcome) -> float | None:
    """Of the answer."""
    return outcome.seconds


def own_mib(outcome: Outcome) -> float | None:
    """Memory beyond that of the imports."""
    return outcome.own_mib


def value(name: str) -> Value:
    """A number that the contestant returned."""
    return lambda outcome: outcome.values.get(name)
