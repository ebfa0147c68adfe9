"""Variances: how they grow with the number of cells, and whole rows."""

from __future__ import annotations

from ..chapter import Chapter, Section
from ..figures import Figure, Panel
from ..measurement import Measurement, Outcome
from ..sweep import Contestant, Size, Sweep, name_of, total_seconds, up_to
from ..text import beside, error, joined, largest_error, mib, missing_row, seconds, table

FULL = Contestant("mvgp FullGP", "variance:full_gp", limit=up_to(20, at=2_000))
BOTORCH = Contestant("BoTorch LatentKroneckerGP", "variance:botorch", limit=up_to(60, at=500))
EXACT = Contestant("GPyTorch ExactGP", "variance:exact_gp", {"fast": False}, limit=up_to(60, at=2_000))
FAST = Contestant("GPyTorch, fast_pred_var", "variance:exact_gp", {"fast": True}, limit=lambda _: 20.0)
# what errors are taken against
TIGHT = Contestant("mvgp FullGP to 1e-10", "variance:full_gp", {"tolerance": 1e-10}, limit=up_to(20, at=2_000))
SHAPE, BLOCKS = [120, 150], [[2, 2], [4, 5], [10, 10], [20, 25], [40, 50]]
TINY_SHAPE, TINY_BLOCKS = [12, 15], [[2, 2], [4, 5]]
ROW_SHAPES, ROW_COUNT, ROW_RANK = [[1000, 500], [1000, 1000], [1000, 2000], [1000, 4000]], 20_000, 10
TINY_ROWS, TINY_ROW_COUNT = [[30, 40]], 200
ROW = Contestant("mvgp FullGP", "variance:whole_row", limit=up_to(60, at=2_000))
INTRO = """The grid of chapter 1 with {m} x {n} cells, 30 % observed. Asked: the variances of a block of cells from a fresh model, fit included. Errors are the largest relative difference from `FullGP` with a residual of 1e-10. `fast_pred_var` is
GPyTorch's LOVE."""
ROWS = """**Whole rows.** Smooth matrices on random graphs, {count:,} cells observed. Asked: the variances of every cell of one row by `posterior.variances`, after a fit of `FullGP`.
The covariance of `TraceGP` is the same. No peer takes part. The standard error is what mvgp says of its own estimate, the largest of the row; 0 is exact."""


def blocks(quick: bool) -> Sweep:
    shape, every = (TINY_SHAPE, TINY_BLOCKS) if quick else (SHAPE, BLOCKS)
    sizes = [Size(m * n, f"{m * n:,} cells", {"shape": shape, "block": [m, n]}) for m, n in every]
    return Sweep([FULL, BOTORCH, EXACT, FAST, TIGHT], sizes)


def rows(quick: bool) -> Sweep:
    shapes, count = (TINY_ROWS, TINY_ROW_COUNT) if quick else (ROW_SHAPES, ROW_COUNT)
    sizes = [Size(n, f"row of {n:,}", {"shape": [m, n], "observed": count, "rank": ROW_RANK}) for m, n in shapes]
    return Sweep([ROW], sizes)


def plan(quick: bool) -> list[Measurement]:
    return [*blocks(quick).plan(), *rows(quick).plan()]


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    every, whole = blocks(quick), rows(quick)
    shown = Sweep(every.contestants[:-1], every.sizes)
    m, n = TINY_SHAPE if quick else SHAPE
    lines = [_line(outcomes, size, one) for size in shown.sizes for one in shown.contestants]
    row_lines = [_row_line(outcomes, size, one) for size in whole.sizes for one in whole.contestants]
    panels = [
        Panel("A block of cells", "cells asked for", "seconds", shown.lines(outcomes, total_seconds)),
        Panel("A whole row, after the fit", "cells of the row", "seconds", whole.lines(outcomes, total_seconds)),
    ]
    text = [
        INTRO.format(m=m, n=n),
        "{growth}",
        table(["asked", "", "time", "largest error", "MiB"], lines),
        *(_compared(outcomes, every, other) for other in (BOTORCH, EXACT, FAST)),
        shown.stopped(outcomes),
        ROWS.format(count=TINY_ROW_COUNT if quick else ROW_COUNT),
        table(["asked", "", "time", "largest standard error", "random vectors", "MiB"], row_lines),
        whole.stopped(outcomes),
    ]
    return Section(
        joined(text),
        {"growth": Figure("Seconds for variances against the number of cells, of a block and of a whole row", panels)},
    )


def _error(outcomes: dict[str, Outcome], size: Size, one: Contestant) -> float | None:
    """The largest relative difference from the reference."""
    found, exact = (outcomes.get(name_of(contestant, size)) for contestant in (one, TIGHT))
    if found is None or exact is None or not (found.done and exact.done):
        return None
    return largest_error(found.values["variance"], exact.values["variance"])


def _line(outcomes: dict[str, Outcome], size: Size, one: Contestant) -> list[str]:
    found = outcomes.get(name_of(one, size))
    if found is None or not found.done:
        return missing_row([size.text, one.name], found, 5)
    return [size.text, one.name, seconds(found.seconds), error(_error(outcomes, size, one)), mib(found)]


def _row_line(outcomes: dict[str, Outcome], size: Size, one: Contestant) -> list[str]:
    found = outcomes.get(name_of(one, size))
    if found is None or not found.done:
        return missing_row([size.text, one.name], found, 6)
    got = found.values
    deviation = f"{got['largest_standard_error']:.1e}" if got["largest_standard_error"] else "0"
    return [size.text, one.name, seconds(found.seconds), deviation, str(got["probes"] or ""), mib(found)]


def _compared(outcomes: dict[str, Outcome], every: Sweep, other: Contestant) -> str:
    size = every.largest(outcomes, FULL, other)
    if size is None:
        return ""
    ours, theirs = (outcomes[name_of(one, size)] for one in (FULL, other))
    text = f"**{size.text}.** " + beside(
        FULL.name, other.name, {"time": (ours.seconds, theirs.seconds), "memory": (ours.own_mib, theirs.own_mib)}
    )
    errors = [_error(outcomes, size, one) for one in (FULL, other)]
    return text if None in errors else f"{text} The largest errors are {error(errors[0])} and {error(errors[1])}."


CHAPTER = Chapter("variance", "Variances of blocks and of whole rows", plan, tell)
