"""The size of real problems: fits of `FullGP` at the paper's scale, and variances at the size of OMIM and of the paper."""

from __future__ import annotations

from ..chapter import Chapter, Section
from ..measurement import Measurement, Outcome
from ..text import bars, error, factor, joined, missing_row, seconds, table

SCALE = {"shape": [4495, 13_614], "links": [13_922, 433_224]}
TINY = {"shape": [30, 40], "links": [60, 80]}
OBSERVED, TINY_OBSERVED = 448_000, 200
FITS = {"double precision": "float64", "single precision": "float32"}
ROW, EVERY, TOP = "OMIM: one disease", "OMIM: every cell", "OMIM: top 20 with P(top 20)"
BEST, WHOLE = "paper's size: 100 best of a row", "paper's size, whole lists: 100 of a row"
INTRO = """**Fits.** `FullGP` on {shape} cells with {observed:,} observed, diffusion kernels on graphs with {links} links, noise variance 0.1, relative residual 1e-5. The *floor* is the time of the products with the covariance that the fit's steps need; what is
above it is the preparation that makes each of them cheap. *Sample* is an exact sample of the prior on all cells."""
VARIANCES = """**Variances.** OMIM: 3,051 x 12,331, 7,344 pairs, half of them random negatives, double precision (`../shared/data`, not part of the repository). Paper's size: as above, to 1 %; with whole lists every cell of 4,000 rows is observed, with one of two weights,
in single precision. Errors are the largest relative difference from conjugate gradients at some of the cells; for every cell of OMIM, what 95 % of 500 random cells are within, standard deviations, and the same right beside observed cells.
The last column is what one variance takes by conjugate gradients, as a multiple of what it took here."""


def plan(quick: bool) -> list[Measurement]:
    size, observed = (TINY, TINY_OBSERVED) if quick else (SCALE, OBSERVED)
    fits = [
        Measurement(
            name,
            "scale:full_gp",
            {**size, "observed": observed, "precision": precision, "asked": 100 if quick else 20_000},
            limit=600.0,
        )
        for name, precision in FITS.items()
    ]
    asked = 20 if quick else 100
    lists = {"listed": 20 if quick else 4_000, "observed": observed // 2, "asked": asked}
    return [
        *fits,
        Measurement(ROW, "scale:one_row", {"quick": quick}, limit=900.0),
        Measurement(EVERY, "scale:every_cell", {"quick": quick, "checked": 20 if quick else 500}, limit=1800.0),
        Measurement(TOP, "scale:top", {"quick": quick}, limit=600.0),
        Measurement(BEST, "scale:best_of_a_row", {**size, "observed": observed, "asked": asked}, limit=1800.0),
        Measurement(WHOLE, "scale:whole_lists", {**size, **lists}, limit=1800.0),
    ]


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    size, observed = (TINY, TINY_OBSERVED) if quick else (SCALE, OBSERVED)
    shape, links = (" x ".join(f"{n:,}" for n in size["shape"]), " and ".join(f"{n:,}" for n in size["links"]))
    head = [
        "",
        "sample",
        "fit",
        "times the floor",
        "steps",
        "residual",
        "one row",
        "4 variances",
        "relative RMSE",
        "GiB",
    ]
    variances = [_variance(name, outcomes.get(name)) for name in (ROW, EVERY, TOP, BEST, WHOLE)]
    text = [
        INTRO.format(shape=shape, observed=observed, links=links),
        table(head, [_fit(name, outcomes.get(name)) for name in FITS]),
        VARIANCES,
        table(["asked", "cells", "time", "error", "GiB", "conjugate gradients"], variances),
    ]
    return Section(joined([*text, "" if quick else bars(_aims(outcomes))]), {})


def _fit(name: str, found: Outcome | None) -> list[str]:
    if found is None or not found.done:
        return missing_row([name], found, 10)
    got = found.values
    times = [seconds(got["sample"]), seconds(got["fit"]), factor(got["fit"] / got["floor"])]
    rest = [str(got["iterations"]), error(got["residual"]), seconds(got["scores"]), seconds(got["variances"])]
    return [name, *times, *rest, f"{got['relative_rmse']:.3f}", f"{got['peak_gib']:.1f}"]


def _variance(name: str, found: Outcome | None) -> list[str]:
    if found is None or not found.done:
        return missing_row([name], found, 6)
    got = found.values
    off = error(got.get("off")) + (f", {error(got['off_near'])}" if "off_near" in got else "")
    peer = factor(got["peer_seconds"] * got["cells"] / got["seconds"]) if "peer_seconds" in got else ""
    return [name, f"{got['cells']:,}", seconds(got["seconds"]), off, f"{got['peak_gib']:.1f}", peer]


def _aims(outcomes: dict[str, Outcome]) -> list[tuple[str, float | None, str, float]]:
    def of(name: str, key: str) -> float | None:
        found = outcomes.get(name)
        return found.values[key] if found is not None and found.done else None

    aims = []
    for name in FITS:
        aims.append((f"fit, {name}: residual", of(name, "residual"), "at most", 1e-5))
        aims.append((f"fit, {name}: GiB", of(name, "peak_gib"), "at most", 6.0))
    return [
        *aims,
        ("OMIM, one disease: seconds", of(ROW, "seconds"), "at most", 60.0),
        ("OMIM, every cell: share of 500 cells within 5 %", of(EVERY, "within"), "at least", 0.95),
        ("OMIM, every cell: seconds", of(EVERY, "seconds"), "at most", 600.0),
        ("OMIM, every cell: GiB", of(EVERY, "peak_gib"), "at most", 4.0),
        ("paper's size, 100 best: seconds", of(BEST, "seconds"), "at most", 180.0),
        ("paper's size, 100 best: error", of(BEST, "off"), "at most", 0.01),
        ("paper's size, whole lists: error", of(WHOLE, "off"), "at most", 0.01),
    ]


CHAPTER = Chapter("paper_scale", "Fits and variances at the size of real problems", plan, tell, slow=True)
