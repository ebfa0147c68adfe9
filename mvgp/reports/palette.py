"""Colours of the figures: eight that are told apart with any kind of colour vision, on white and on black."""

from __future__ import annotations

import re

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
