"""Growth in T, M, N and rank, one at a time."""

from __future__ import annotations

from ..chapter import Chapter, Section
from ..figures import Figure, Panel
from ..measurement import Measurement, Outcome
from ..sweep import Contestant, Size, Sweep, own_mib, total_seconds, up_to
from ..text import exponent, joined, mib, missing_row, seconds, table

FULL, TRACE, FACTOR, SOFT = "mvgp FullGP", "mvgp TraceGP", "mvgp FactorGP, 50 steps", "plain soft-impute"
BASES = {
    "T": {"M": 1_200, "N": 1_600, "rank": 10},
    "M": {"N": 400, "T": 12_000, "rank": 10},
    "N": {"M": 300, "T": 12_000, "rank": 10},
    "rank": {"M": 1_200, "N": 1_600, "T": 200_000},
}
VALUES = {
    "T": [24_000, 48_000, 96_000, 192_000, 384_000, 768_000, 1_536_000],
    "M": [300, 600, 1_200, 2_400, 4_800, 9_600],
    "N": [400, 800, 1_600, 3_200, 6_400],
    "rank": [5, 10, 20, 40, 80],
}
TINY_BASE = {"M": 40, "N": 50, "T": 400, "rank": 2}
TINY = {"T": [200, 400], "M": [30, 40], "N": [40, 50], "rank": [1, 2]}
AXES = {"T": "observed cells T", "M": "rows M", "N": "columns N", "rank": "planted rank"}
LIMIT, SOFT_LIMIT = 30.0, 30.0
FIT = 3  # exponents are over the largest sizes, so many of them
INTRO = """One fit from cold. One size grows, the others stay: {base}. The matrix is smooth and of low rank, on random graphs of average degree 6 with diffusion kernels. The noise has half the signal's size.

- `TraceGP` has the trace norm alone, with strength 0.3, and finds its rank.
- `FullGP` gives the means of all cells, too.
- `FactorGP` is told the rank and makes 50 steps from one start.
- Soft-impute has no kernels. It takes dense singular value decompositions, and the strength 0.3 of its own scale. It takes part where the sides are not too large for it from the start.

They do not solve the same problem: compare how they grow rather than how long they take."""


def sweeps(quick: bool) -> dict[str, Sweep]:
    found = {}
    for axis, values in (TINY if quick else VALUES).items():
        base = TINY_BASE if quick else BASES[axis]
        found[axis] = Sweep(contestants(axis, values[-1]), [_size(axis, one, {**base, axis: one}) for one in values])
    return found


def contestants(axis: str, largest: int) -> list[Contestant]:
    """Without soft-impute where both sides are too large for its decompositions."""
    limit = up_to(LIMIT, at=largest)
    every = [
        Contestant(FULL, "scaling:full_gp", limit=limit),
        Contestant(TRACE, "scaling:trace_gp", limit=limit),
        Contestant(FACTOR, "scaling:factor_gp", {"steps": 50}, limit=limit),
    ]
    if axis in ("T", "rank"):
        return every
    return [*every, Contestant(SOFT, "scaling:plain_soft_impute", limit=lambda _: SOFT_LIMIT)]


def _size(axis: str, x: int, at: dict[str, int]) -> Size:
    return Size(x, f"{axis} = {x:,}", {"shape": [at["M"], at["N"]], "observed": at["T"], "rank": at["rank"]})


def plan(quick: bool) -> list[Measurement]:
    return [one for sweep in sweeps(quick).values() for one in sweep.plan()]


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    found = sweeps(quick)
    base = "; ".join(f"with {axis}, {_text(TINY_BASE if quick else BASES[axis], axis)}" for axis in found)
    head = ["grows", "", "from", "to", "exponent of time", "time at the end", "MiB at the end", "rank found"]
    lines = [_line(outcomes, axis, sweep, one) for axis, sweep in found.items() for one in sweep.contestants]
    figures = {
        name: Figure(
            f"Seconds of one fit against {' and '.join(AXES[axis] for axis in axes)}",
            [
                Panel(
                    AXES[axis][0].upper() + AXES[axis][1:],
                    AXES[axis],
                    "seconds",
                    found[axis].lines(outcomes, total_seconds),
                )
                for axis in axes
            ],
        )
        for name, axes in (("pairs", ("T", "rank")), ("sides", ("M", "N")))
    }
    figures["memory"] = Figure(
        "Memory of one fit against T, M and N",
        [Panel(f"{axis} grows", AXES[axis], "MiB", found[axis].lines(outcomes, own_mib)) for axis in ("T", "M", "N")],
    )
    stops = [sweep.stopped(outcomes) for sweep in found.values()]
    about = f"Exponents are slopes over the {FIT} largest sizes that were done; 1 is proportional, 0 does not grow."
    return Section(
        joined([INTRO.format(base=base), "{pairs}", "{sides}", "{memory}", table(head, lines), about, *stops]), figures
    )


def _text(base: dict[str, int], axis: str) -> str:
    return ", ".join(f"{name} = {value:,}" for name, value in base.items() if name != axis)


def _line(outcomes: dict[str, Outcome], axis: str, sweep: Sweep, one: Contestant) -> list[str]:
    line = sweep.line(outcomes, one, total_seconds)
    if not line.x:
        return missing_row([axis, one.name], next((found for _, found in sweep.found(outcomes, one)), None), 8)
    x, y = line.x[-FIT:], line.y[-FIT:]
    power, last = exponent(x, y), [found for _, found in sweep.found(outcomes, one) if found.done][-1]
    rank = str(last.values["rank"]) if "rank" in last.values and one.name != FACTOR else ""
    slope = "" if power is None else f"{round(power, 1) + 0.0:.1f}"  # no -0.0
    return [axis, one.name, f"{x[0]:,.0f}", f"{x[-1]:,.0f}", slope, seconds(y[-1]), mib(last), rank]


CHAPTER = Chapter("scaling", "Growth with T, M, N and rank", plan, tell)
