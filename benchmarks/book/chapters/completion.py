"""Completing a smooth matrix of low rank: mvgp's models beside plain soft-impute."""

from __future__ import annotations

from ..chapter import Chapter, Section
from ..measurement import Measurement, Outcome
from ..sweep import Contestant, Size, Sweep, name_of
from ..text import beside, joined, listed, mib, missing_row, seconds, table

STRENGTHS = [0.7, 0.5, 0.35, 0.25, 0.18, 0.125, 0.09, 0.06, 0.045, 0.03, 0.02, 0.01, 0.005, 0.0025]
FULL_NOISES, FACTOR_NOISES = [1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0], [0.3, 1.0, 3.0, 10.0, 30.0]
TRACE = Contestant(
    "mvgp TraceGP", "completion:trace_gp", {"shares": [1.0, 0.8], "strengths": STRENGTHS}, limit=lambda _: 60.0
)
FACTOR = Contestant(
    "mvgp FactorGP",
    "completion:factor_gp",
    {"ranks": [2, 5, 10, 20], "noises": FACTOR_NOISES, "steps": 100},
    limit=lambda _: 60.0,
)
FULL = Contestant("mvgp FullGP", "completion:full_gp", {"noises": FULL_NOISES}, limit=lambda _: 30.0)
SOFT = Contestant("plain soft-impute", "completion:plain_soft_impute", {"strengths": STRENGTHS}, limit=lambda _: 60.0)
EVERY = [TRACE, FACTOR, FULL, SOFT]
SHAPE, RANK, COUNTS = [200, 300], 5, {"curves": [750, 1_500, 3_000], "graphs": [3_000, 6_000, 12_000]}
TINY_SHAPE, TINY_COUNTS = [60, 80], {"curves": [600], "graphs": [600]}
ALIKE = 0.01  # of the error; differences below this are not told
INTRO = """A {m} x {n} matrix of rank {rank}, T of its cells observed with noise of half the signal's size. On *curves*, its factors are smooth along an interval (RBF kernels, lengthscale 0.1). On *graphs*, they are smooth along
random graphs of average degree 6 (diffusion kernels). Soft-impute knows neither. Every contestant chooses its settings on the same tenth of the observed cells and is refitted to all of them. They are strength and share of the trace norm for `TraceGP`, rank and noise for `FactorGP`, noise for `FullGP`, and strength for soft-impute.

The error is the root of the mean squared error at 2,000 other cells, divided by the size of the noise, which these cells have, too. **1 is as good as it can be**, and {zero:.2f} is the error of a mean of zero. Seconds include the choice. Graphs came first; curves were added when graphs had shown that there smoothness says little."""


def sweep(quick: bool) -> Sweep:
    """Growing T. Fewer cells may take longer, so nobody's end at one T says anything about the next."""
    shape, counts = (TINY_SHAPE, TINY_COUNTS) if quick else (SHAPE, COUNTS)
    cells = shape[0] * shape[1]
    return Sweep(
        EVERY,
        [
            Size(
                count,
                f"{on}, T = {count:,} ({count / cells:.1%})",
                {"shape": shape, "observed": count, "rank": RANK, "on": on},
            )
            for on, sizes in counts.items()
            for count in sizes
        ],
        chained=False,
    )


def plan(quick: bool) -> list[Measurement]:
    return sweep(quick).plan()


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    found = sweep(quick)
    shape = TINY_SHAPE if quick else SHAPE
    head = ["observed", "", "error", "rank", "seconds", "MiB", "chosen"]
    lines = [_line(size, one, outcomes.get(name_of(one, size))) for size in found.sizes for one in EVERY]
    intro = INTRO.format(m=shape[0], n=shape[1], rank=RANK, zero=5**0.5)
    told = [_told(outcomes, found, size) for size in found.sizes]
    return Section(joined([intro, table(head, lines), *told, found.stopped(outcomes)]), {})


def _line(size: Size, one: Contestant, outcome: Outcome | None) -> list[str]:
    if outcome is None or not outcome.done:
        return missing_row([size.text, one.name], outcome, 7)
    got = outcome.values
    return [
        size.text,
        one.name,
        f"{got['error']:.3f}",
        str(got["rank"]),
        seconds(outcome.seconds),
        mib(outcome),
        got["setting"],
    ]


def _told(outcomes: dict[str, Outcome], found: Sweep, size: Size) -> str:
    """Who is nearest, by how much, and what that took."""
    done = {one.name: outcomes[name_of(one, size)] for one in EVERY if name_of(one, size) in outcomes}
    ranked = sorted((outcome.values["error"], name) for name, outcome in done.items() if outcome.done)
    if len(ranked) < 2:
        return ""
    least = ranked[0][0]
    best = [name for error, name in ranked if error - least < ALIKE]
    rest = [f"{name} {error - least:.3f} more" for error, name in ranked if error - least >= ALIKE]
    text = f"**{size.text}.** {listed(best)} {'has' if len(best) == 1 else 'have'} the least error."
    text += f" Others: {', '.join(rest)}." if rest else ""
    if all(one.name in done and done[one.name].done for one in (TRACE, SOFT)):
        told = beside(TRACE.name, SOFT.name, {"time": (done[TRACE.name].seconds, done[SOFT.name].seconds)})
        text += f" {told}"
    return text


CHAPTER = Chapter("completion", "Completing a matrix of low rank", plan, tell)
