"""Chapter: what is asked, what is measured for it, and how it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .figures import Figure
from .measurement import Measurement, Outcome


@dataclass(frozen=True)
class Section:
    """What a chapter says.

    :param text: Markdown.
    :param figures: which ``text`` refers to as ``{name}``, a line of its own.
    """

    text: str
    figures: dict[str, Figure]


@dataclass(frozen=True)
class Chapter:
    """One chapter of the book.

    :param name: of its file and its figures.
    :param title: its heading.
    :param plan: the measurements, given whether they are to be tiny.
    :param tell: the section, given the outcomes by name and whether they are tiny.
    :param slow: whether it takes long, or needs data that not everybody has: measured only when it is named.
    """

    name: str
    title: str
    plan: Callable[[bool], list[Measurement]]
    tell: Callable[[dict[str, Outcome], bool], Section]
    slow: bool = False
