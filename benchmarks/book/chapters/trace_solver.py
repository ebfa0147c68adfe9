"""The solver of the mean with a trace norm: beside L-BFGS on factors of the right rank, a factored method with proximal
steps, and how one step grows.
"""

from __future__ import annotations

import math

from ..chapter import Chapter, Section
from ..measurement import Measurement, Outcome
from ..sweep import Contestant, Size, Sweep, name_of, total_seconds
from ..text import bars, error, exponent, joined, missing_row, seconds, table

PROXIMAL, LBFGS, GLOBAL = "mvgp proximal", "factored L-BFGS", "factors with proximal steps"
PROBLEM = {"shape": [1500, 3000], "observed": 225_000, "links": [6_000, 30_000], "rank": 20, "precision": "float64"}
TINY = {"shape": [30, 40], "observed": 300, "links": [60, 80], "rank": 2, "precision": "float64"}
RANKS = {0.1: 203, 0.03: 253}  # what the proximal solver finds at these strengths
NEAR = 1e-4
LEAST = {LBFGS: {0.1: 10.0, 0.03: 8.0}, GLOBAL: {0.1: 3.0, 0.03: 3.0}}  # times faster
BASE = {"pairs": 300_000, "rows": 4_000, "columns": 8_000, "rank": 100}
FACTORS = {"pairs": (1, 2, 4, 8), "rows": (1, 2, 4), "columns": (1, 2, 4), "rank": (0.5, 1, 2, 4)}
TINY_BASE, TINY_FACTORS = {"pairs": 300, "rows": 30, "columns": 40, "rank": 4}, {"pairs": (1, 2), "rank": (1, 2)}
STEP = Contestant("one step", "mean:one_step", limit=lambda _: 240.0)
INTRO = """{shape} with {observed:,} pairs, planted rank {rank} plus noise of half the signal's size, trace norm alone, double precision. L-BFGS works on $B = X Z^T$ and is told the rank that the proximal solver finds by itself. *Factors with proximal steps* is the idea of BM-Global (Lee, Liang, Tang and Toh, 2024) in plain torch: conjugate gradients on the factors, and now and then a proximal gradient step, which finds the rank. Asked: how long until
the objective is within {near:g} of the best that either has seen, and which gap each can prove in the end."""
GROWTH = """**One step on the factors**, four of them timed, single precision, from {base}; one size grows, and the links of a side grow along with it."""


def plan(quick: bool) -> list[Measurement]:
    found = []
    for strength, rank in RANKS.items():
        settings = {"strength": strength, "problem": TINY if quick else PROBLEM}
        found.append(Measurement(f"{PROXIMAL}, {strength:g}", "mean:proximal", settings, limit=240.0))
        factored = {**settings, "rank": 4 if quick else rank, "steps": 20 if quick else 300}
        found.append(Measurement(f"{LBFGS}, {strength:g}", "mean:factored_lbfgs", factored, limit=480.0))
        until = {**settings, "goal": 1e-4, "seconds": 5.0 if quick else 200.0}
        found.append(Measurement(f"{GLOBAL}, {strength:g}", "burer_monteiro:bm_global", until, limit=480.0))
    return [*found, *(one for sweep in sweeps(quick).values() for one in sweep.plan())]


def sweeps(quick: bool) -> dict[str, Sweep]:
    base, factors = (TINY_BASE, TINY_FACTORS) if quick else (BASE, FACTORS)
    return {name: Sweep([STEP], [_size(base, name, by) for by in steps]) for name, steps in factors.items()}


def _size(base: dict[str, int], name: str, by: float) -> Size:
    at = {**base, name: round(base[name] * by)}
    settings = {"shape": [at["rows"], at["columns"]], "observed": at["pairs"], "rank": at["rank"]}
    return Size(at[name], f"{name} {at[name]:,}", settings)


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    problem, base = (TINY, TINY_BASE) if quick else (PROBLEM, BASE)
    shape = " x ".join(f"{size:,}" for size in problem["shape"])
    aims, lines = [], []
    for strength in RANKS:
        names = (PROXIMAL, LBFGS, GLOBAL)
        every = [outcomes.get(f"{name}, {strength:g}") for name in names]
        reached = _reached(every)
        for name, found, at in zip(names, every, reached, strict=True):
            lines.append(_line(strength, name, found, at))
        for name, at in zip(names[1:], reached[1:], strict=True):
            ratio = at / reached[0] if None not in (at, reached[0]) and reached[0] < math.inf else None
            aims.append((f"strength {strength:g}: times faster than {name}", ratio, "at least", LEAST[name][strength]))
    head = ["strength", "", f"within {NEAR:g} after", "ended after", "gap", "rank", "steps"]
    grown = [[name, *_growth(outcomes, sweep)] for name, sweep in sweeps(quick).items()]
    text = [
        INTRO.format(shape=shape, observed=problem["observed"], rank=problem["rank"], near=NEAR),
        table(head, lines),
        GROWTH.format(
            base=", ".join(f"{value:,} {name}" if name != "rank" else f"rank {value}" for name, value in base.items())
        ),
        table(["grows", "seconds at each size", "exponent"], grown),
    ]
    for name, sweep in sweeps(quick).items():
        line = sweep.line(outcomes, STEP, total_seconds)
        slope = exponent(line.x, line.y)
        aims.append((f"exponent of a step's time in {name}", slope, "at most", 1.3))
    return Section(joined([*text, "" if quick else bars(aims)]), {})


def _reached(every: list[Outcome | None]) -> list[float | None]:
    """Seconds of each until it was near the best objective of both."""
    best = [one.values["best"] for one in every if one is not None and one.done]
    if not best:
        return [None] * len(every)
    level = (1 + NEAR) * min(best)
    return [
        None
        if one is None or not one.done
        else next((at for at, value in one.values["seen"] if value <= level), math.inf)
        for one in every
    ]


def _line(strength: float, name: str, found: Outcome | None, reached: float | None) -> list[str]:
    if found is None or not found.done:
        return missing_row([f"{strength:g}", name], found, 7)
    got = found.values
    near = "never" if reached is None or reached == math.inf else seconds(reached)
    return [f"{strength:g}", name, near, seconds(found.seconds), error(got["gap"]), str(got["rank"]), str(got["steps"])]


def _growth(outcomes: dict[str, Outcome], sweep: Sweep) -> list[str]:
    line = sweep.line(outcomes, STEP, total_seconds)
    if not line.x:
        return missing_row([], outcomes.get(name_of(STEP, sweep.sizes[0])), 2)
    slope = exponent(line.x, line.y)
    cells = ", ".join(f"{x:,.0f}: {seconds(y)}" for x, y in zip(line.x, line.y, strict=True))
    return [cells, "" if slope is None else f"{slope:.2f}"]


CHAPTER = Chapter("trace_solver", "The trace norm's solver beside L-BFGS", plan, tell, slow=True)
