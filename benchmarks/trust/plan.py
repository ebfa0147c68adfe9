"""What is tried: lines of the page, cut into units, and the notes of finished units."""

from __future__ import annotations

import json
import math
import platform
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.book.machine import ROOT, commit, machine, versions

NOTES = ROOT / "benchmarks/results/trust/units.jsonl"
NAMED = 50  # failures of a unit that are noted with their names; all are counted
PACKAGES = ("python", "torch", "gpytorch", "linear_operator", "numpy", "scipy")


@dataclass
class Found:
    """What came of some tries.

    :param tried: how many.
    :param failures: each in a line.
    :param counts: of outcomes, by word.
    :param most: largest values, by word.
    """

    tried: int = 0
    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    most: dict[str, float] = field(default_factory=dict)

    def add(self, outcome: str, failure: str = "") -> None:
        """One try."""
        self.tried += 1
        self.counts[outcome] += 1
        if failure:
            self.failures.append(failure)

    def reached(self, word: str, value: float) -> None:
        """The largest value so far."""
        if not value <= self.most.get(word, -math.inf):
            self.most[word] = float(value)

    def to_json(self) -> dict[str, Any]:
        """For the notes."""
        return {
            "tried": self.tried,
            "failed": len(self.failures),
            "failures": [one[:500] for one in self.failures[:NAMED]],
            "counts": dict(self.counts),
            "most": self.most,
        }


@dataclass(frozen=True)
class Line:
    """A line of the page.

    :param name: section and line, such as ``files/bytes``.
    :param title: what is tried, for the page.
    :param planned: how many.
    :param size: of a unit.
    :param run: number of the first try, how many, and the seed, to what came of them. Tries are numbered, and each depends
        on its number and the seed alone.
    :param limit: seconds a unit may take.
    """

    name: str
    title: str
    planned: int
    size: int
    run: Callable[[int, int, int], Found]
    limit: float = 900.0

    @property
    def section(self) -> str:
        """The first part of the name."""
        return self.name.split("/")[0]


@dataclass(frozen=True)
class Unit:
    """Some tries of a line, done at once."""

    line: Line
    first: int
    count: int
    seed: int

    @property
    def key(self) -> tuple[str, int, int]:
        """What makes it different from the others of a plan."""
        return self.line.name, self.first, self.seed


def generator(line: str, number: int, seed: int) -> np.random.Generator:
    """The random numbers of a try."""
    return np.random.default_rng((seed, zlib.crc32(line.encode()), number))


def units(lines: Iterable[Line], share: float, seed: int) -> list[Unit]:
    """All units of a plan; those of all lines side by side, so that a run that is stopped has some of each."""
    found = []
    for line in lines:
        wanted = max(1, math.ceil(line.planned * share))
        for first in range(0, wanted, line.size):
            found.append((first / wanted, line.name, Unit(line, first, min(line.size, wanted - first), seed)))
    return [unit for _, _, unit in sorted(found, key=lambda one: one[:2])]


def conditions() -> dict[str, Any]:
    """What a unit ran on."""
    found = versions()
    return {
        "commit": commit(),
        "machine": machine(),
        "versions": {name: found[name] for name in PACKAGES},
        "interpreter": platform.python_implementation(),
    }


class Notes:
    """Finished units in a file, a line of JSON for each."""

    def __init__(self, path: Path = NOTES) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """Every unit; of two that begin alike the longer one, or the later.

        Half a line, of a process that was killed, is left out.
        """
        found: dict[tuple[str, int, int], dict[str, Any]] = {}
        for text in self.path.read_text().splitlines() if self.path.exists() else []:
            try:
                one = json.loads(text)
            except json.JSONDecodeError:
                continue
            if one["count"] >= found.get(self.key(one), one)["count"]:
                found[self.key(one)] = one
        return list(found.values())

    @staticmethod
    def key(one: dict[str, Any]) -> tuple[str, int, int]:
        """As of :attr:`Unit.key`."""
        return one["line"], one["first"], one["seed"]

    def append(self, one: dict[str, Any]) -> None:
        """A finished unit."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = not self.path.exists() or not (text := self.path.read_bytes()) or text.endswith(b"\n")
        with open(self.path, "a") as file:
            file.write(("" if whole else "\n") + json.dumps(one) + "\n")

    def forget(self, lines: Iterable[str]) -> None:
        """Leave out all units of some lines."""
        names = set(lines)
        kept = [one for one in self.read() if one["line"] not in names]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(json.dumps(one) + "\n" for one in kept))
