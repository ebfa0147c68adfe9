"""Means and variances on a partly observed grid, beside BoTorch, GPyTorch and a dense Cholesky factor."""

from __future__ import annotations

from ..chapter import Chapter, Section
from ..figures import Figure, Panel
from ..measurement import Measurement, Outcome
from ..sweep import Contestant, Size, Sweep, name_of, own_mib, up_to, value
from ..text import (
    beside,
    error,
    exponent,
    growth,
    joined,
    largest_error,
    mib,
    missing_row,
    relative_error,
    seconds,
    sentence,
    table,
)

SHAPES = [[20, 25], [40, 50], [80, 100], [160, 200], [240, 300], [400, 500], [800, 1000]]
TINY = [[12, 15], [16, 20]]
BLOCK, SHARE = [4, 5], 0.3
FULL = Contestant("mvgp FullGP", "grid:full_gp", limit=up_to(30, at=240_000))
BOTORCH = Contestant("BoTorch LatentKroneckerGP", "grid:botorch", limit=up_to(100, at=240_000))
DENSE = Contestant(
    "dense Cholesky", "grid:dense", limit=up_to(40, at=9_600), gib=lambda count: 3.1 * 8 * count**2 / 2**30
)
EXACT = Contestant(
    "GPyTorch ExactGP", "grid:exact_gp", limit=up_to(60, at=9_600), gib=lambda count: 4.2 * 8 * count**2 / 2**30
)
# what errors are taken against
TIGHT = Contestant("mvgp FullGP to 1e-10", "grid:full_gp", {"tolerance": 1e-10}, limit=up_to(30, at=240_000))
INTRO = """RBF kernels of lengthscale 0.2 on both axes, 30 % of the cells observed (T of them), noise variance 0.1, double precision. Asked: the mean of all cells, fit included, then the variances of
{count} cells. Kernels and noise are given; nothing is learned. BoTorch runs under `use_iterative_methods()`, GPyTorch with its defaults (conjugate gradients above 800 observations).

Errors are taken against dense Cholesky where it was done, and against `FullGP` with a residual of 1e-10 at larger sizes. The error of the mean is the relative norm of the difference over 100 cells. That of variances is the largest relative difference."""


def sweep(quick: bool) -> Sweep:
    sizes = [
        Size(round(SHARE * m * n), f"{m} x {n}", {"shape": [m, n], "block": BLOCK})
        for m, n in (TINY if quick else SHAPES)
    ]
    return Sweep([FULL, BOTORCH, DENSE, EXACT, TIGHT], sizes)


def plan(quick: bool) -> list[Measurement]:
    return sweep(quick).plan()


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    every = sweep(quick)
    shown = Sweep(every.contestants[:-1], every.sizes)
    lines = [line for size in every.sizes for line in _lines(outcomes, shown, size)]
    head = ["grid", "T", "", "mean", "error", f"{BLOCK[0] * BLOCK[1]} variances", "largest error", "MiB"]
    panels = [
        Panel("Mean of all cells", "observed cells T", "seconds", shown.lines(outcomes, value("mean_seconds"))),
        Panel(
            f"{BLOCK[0] * BLOCK[1]} variances",
            "observed cells T",
            "seconds",
            shown.lines(outcomes, value("variance_seconds")),
        ),
        Panel("Memory", "observed cells T", "MiB", shown.lines(outcomes, own_mib)),
    ]
    parts = [
        INTRO.format(count=BLOCK[0] * BLOCK[1]),
        "{growth}",
        table(head, lines),
        *(_compared(outcomes, every, other) for other in (BOTORCH, DENSE, EXACT)),
        sentence(*(_grown(outcomes, every, one) for one in shown.contestants)),
        _agreement(outcomes, every),
        shown.stopped(outcomes),
    ]
    alt = "Seconds for means and for variances, and memory, against the number of observed cells, for four programs"
    return Section(joined(parts), {"growth": Figure(alt, panels)})


def _exact(outcomes: dict[str, Outcome], size: Size) -> Outcome | None:
    """What errors are taken against."""
    found = [outcomes.get(name_of(one, size)) for one in (DENSE, TIGHT)]
    return next((one for one in found if one is not None and one.done), None)


def _lines(outcomes: dict[str, Outcome], shown: Sweep, size: Size) -> list[list[str]]:
    exact, lines = _exact(outcomes, size), []
    for one in shown.contestants:
        found = outcomes.get(name_of(one, size))
        start = [size.text, f"{size.x:,.0f}", one.name]
        if found is None or not found.done:
            lines.append(missing_row(start, found, 8))
            continue
        got = found.values
        errors = ["", ""]
        if exact is not None and exact is not found:
            errors = [
                error(relative_error(got["mean"], exact.values["mean"])),
                error(largest_error(got["variance"], exact.values["variance"])),
            ]
        lines.append(
            [*start, seconds(got["mean_seconds"]), errors[0], seconds(got["variance_seconds"]), errors[1], mib(found)]
        )
    return lines


def _compared(outcomes: dict[str, Outcome], every: Sweep, other: Contestant) -> str:
    """At the largest size that both have done."""
    size = every.largest(outcomes, FULL, other)
    if size is None:
        return ""
    ours, theirs = (outcomes[name_of(one, size)] for one in (FULL, other))
    amounts = {
        "time for the mean": (ours.values["mean_seconds"], theirs.values["mean_seconds"]),
        "time for the variances": (ours.values["variance_seconds"], theirs.values["variance_seconds"]),
        "memory": (ours.own_mib, theirs.own_mib),
    }
    return f"**T = {size.x:,.0f}**, the largest that both have done. " + beside(FULL.name, other.name, amounts)


def _grown(outcomes: dict[str, Outcome], every: Sweep, one: Contestant) -> str:
    line = every.line(outcomes, one, value("mean_seconds"))
    x, y = line.x[-3:], line.y[-3:]
    return growth(f"the mean by {one.name}", "T", x, exponent(x, y))


def _agreement(outcomes: dict[str, Outcome], every: Sweep) -> str:
    size = every.largest(outcomes, TIGHT, DENSE)
    if size is None:
        return ""
    ours, dense = (outcomes[name_of(one, size)].values for one in (TIGHT, DENSE))
    means, variances = relative_error(ours["mean"], dense["mean"]), largest_error(ours["variance"], dense["variance"])
    return f"At the largest size that has both references, their means are {means:.1e} apart and their variances {variances:.1e}."


CHAPTER = Chapter("grid", "A partly observed grid: means and variances", plan, tell)
