"""Simulation-based calibration (``benchmarks.sbc``): ranks of truths among posteriors, fitted to data of the prior."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.sbc import Simulator, make_cases
from benchmarks.sbc_page import QUANTITIES, SAMPLES
from benchmarks.trust.plan import Found, Line
from mvgp.metrics import uniformity

CASES, DRAWS, UNIT = make_cases(), 1_000, 280


def draws(first: int, count: int, seed: int) -> Found:
    """Draws of all cases in turn. Counts are of ranks, which the page judges."""
    found, names, simulators = Found(), list(CASES), dict[str, Simulator]()
    for number in range(first, first + count):
        draw, at = divmod(number, len(names))
        name = names[at]
        if name not in simulators:
            simulators[name] = Simulator(name, CASES[name], seed)
        try:
            ranks = simulators[name].ranks(draw)
        except Exception as error:
            found.add("failed", f"{number} {name}: {type(error).__name__}: {str(error)[:200]}")
            continue
        found.add("drawn")
        for quantity, rank in zip(simulators[name].quantities, ranks, strict=True):
            found.counts[f"{name}|{quantity}|{rank}"] += 1
    return found


def judged(counts: dict[str, int]) -> dict[str, Any]:
    """Every curve: deviation, p-value, coverage; those of exact posteriors apart from approximations."""
    ranks: dict[tuple[str, str], np.ndarray] = {}
    for word, count in counts.items():
        name, quantity, rank = [*word.split("|"), "", ""][:3]
        if quantity in QUANTITIES and name in CASES:
            ranks.setdefault((name, quantity), np.zeros(SAMPLES + 1, dtype=int))[int(rank)] += count
    curves = []
    for (name, quantity), found in sorted(ranks.items()):
        values = np.repeat(np.arange(SAMPLES + 1), found)
        test = uniformity((values + 0.5) / (SAMPLES + 1), SAMPLES + 1)
        curves.append(
            {
                "case": CASES[name].title,
                "exact": CASES[name].exact,
                "quantity": quantity,
                "draws": int(found.sum()),
                "p_value": float(f"{test.p_value:.3g}"),
                "covered_90": round(float(((values >= 5) & (values < 95)).mean()), 4),
            }
        )
    exact = [one for one in curves if one["exact"]]
    smallest = min((one["p_value"] for one in exact), default=1.0)
    return {"curves": curves, "joint_p_value": min(1.0, smallest * max(1, len(exact)))}


LINES = [Line("calibration/draws", "draws of simulation-based calibration", DRAWS * len(CASES), UNIT, draws)]
