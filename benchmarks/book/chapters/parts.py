"""The parts: products with kernels, solves, projections, each beside a peer or a floor; and the rates of the machine."""

from __future__ import annotations

from dataclasses import dataclass

from ..chapter import Chapter, Section
from ..measurement import Measurement, Outcome
from ..sweep import Contestant, Size, Sweep, name_of
from ..text import bars, error, factor, joined, mib, missing_row, relative_error, seconds, table, times_as_long

SINGLE, DOUBLE = "single precision", "double precision"
CHEBYSHEV, DENSE = "mvgp, Chebyshev polynomial", "dense kernel"
PAIRS, MASKED = "mvgp PairLinearOperator", "MaskedLinearOperator of a Kronecker product"
FULL, MINRES = "mvgp FullGP", "scipy MINRES"
COLD, WARM, SORT, LOOP = "mvgp, cold", "mvgp, warm", "one sort of all scores", "scipy, list by list"
GRIDS = [  # rows, columns, observed, the least ratio to the masked operator
    (2000, 300, 1_000, 5.0),
    (2000, 300, 5_000, 1 / 1.1),
    (6000, 1000, 2_000, 5.0),
    (2000, 300, 60_000, 1 / 1.1),
    (2000, 300, 300_000, 1 / 1.1),
    (2000, 300, 600_000, 1 / 1.1),
    (400, 500, 60_000, 1 / 1.1),
    (6000, 1000, 60_000, 1 / 1.1),
]
RATES = {"size": 2000, "nodes": 13_614, "links": 433_224, "shape": [1000, 6000], "observed": 60_000, "rank": 512}
TINY_RATES = {"size": 100, "nodes": 50, "links": 100, "shape": [20, 30], "observed": 100, "rank": 16}
RATE = Measurement("rates", "products:rates", RATES, limit=60.0)
TINY_RATE = Measurement("rates", "products:rates", TINY_RATES)


@dataclass(frozen=True)
class Part:
    """Contestants at some sizes, ours first.

    :param intro: what is asked.
    :param sweep: who and how large.
    :param key: of the numbers that are compared with those of ``exact``.
    :param exact: whose numbers are right.
    """

    intro: str
    sweep: Sweep
    key: str
    exact: str


def parts(quick: bool) -> list[Part]:
    nodes, links = (60, 200) if quick else (13_614, 433_224)
    kernels = [
        Size(x, text, {"nodes": nodes, "links": links, "columns": 64, "precision": precision})
        for x, (text, precision) in enumerate([(SINGLE, "float32"), (DOUBLE, "float64")])
    ]
    grids = [(20, 30, 100, 1.0)] if quick else GRIDS
    pairs = [Size(t, f"{m} x {n}, {t:,}", {"shape": [m, n], "observed": t}) for m, n, t, _ in grids]
    shape = [12, 15] if quick else [400, 500]
    scales = [Size(x, f"lengthscale {x:g}", {"shape": shape, "lengthscale": x, "residual": 1e-8}) for x in (0.2, 0.05)]
    count, lists = (500, 20) if quick else (450_000, 4_500)
    shares = [Size(x, f"{x:.0%} positive", {"scores": count, "lists": lists, "positive": x}) for x in (0.5, 0.1)]
    return [
        Part(
            f"**A graph kernel.** $e^{{-L}} + I$ on {nodes:,} nodes with {links:,} links, times 64 columns. The dense kernel is formed before the clock starts.",
            Sweep([_of(CHEBYSHEV, "products:chebyshev", 40), _of(DENSE, "products:dense_kernel", 120)], kernels, False),
            "entries",
            DENSE,
        ),
        Part(
            "**The covariance of observed pairs**, times one vector, double precision: rows x columns, and how many pairs.",
            Sweep(
                [_of(PAIRS, "products:pair_operator", 30), _of(MASKED, "products:masked_kronecker", 30)], pairs, False
            ),
            "entries",
            MASKED,
        ),
        Part(
            f"**A solve.** The grid of chapter 1 with {shape[0]} x {shape[1]} cells, 30 % observed: the mean of 100 cells from a relative residual of 1e-8. MINRES has the same product and no preconditioner.",
            Sweep([_of(FULL, "products:full_gp_mean", 30), _of(MINRES, "products:minres_mean", 120)], scales, False),
            "entries",
            FULL,
        ),
        Part(
            f"**The projection of a ranking.** {count:,} scores in {lists:,} lists whose sizes follow a power law: every positive above every negative by a margin. *Warm* starts from the thresholds of scores nearby, as in a solver.",
            Sweep(
                [
                    _of(COLD, "projection:order_projection", 20, warm=False),
                    _of(WARM, "projection:order_projection", 20, warm=True),
                    _of(SORT, "projection:sort", 20),
                    _of(LOOP, "projection:isotonic_loop", 20),
                ],
                shares,
                False,
            ),
            "scores",
            LOOP,
        ),
    ]


def _of(name: str, function: str, limit: float, **settings: object) -> Contestant:
    return Contestant(name, function, settings, limit=lambda _: limit)


def plan(quick: bool) -> list[Measurement]:
    return [*(one for part in parts(quick) for one in part.sweep.plan()), TINY_RATE if quick else RATE]


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    text = []
    for part in parts(quick):
        head = ["", "", "time", "times as long as ours", "error", "MiB"]
        lines = [_line(outcomes, part, size, one) for size in part.sweep.sizes for one in part.sweep.contestants]
        text += [part.intro, table(head, lines), part.sweep.stopped(outcomes)]
    text += [_rates(outcomes), "" if quick else bars(_aims(outcomes))]
    return Section(joined(text), {})


def _line(outcomes: dict[str, Outcome], part: Part, size: Size, one: Contestant) -> list[str]:
    found = outcomes.get(name_of(one, size))
    if found is None or not found.done:
        return missing_row([size.text, one.name], found, 6)
    ours = outcomes.get(name_of(part.sweep.contestants[0], size))
    exact = outcomes.get(f"{part.exact}, {size.text}")
    off = ""
    if exact is not None and exact.done and exact is not found and part.key in found.values:
        off = error(relative_error(found.values[part.key], exact.values[part.key]))
    return [size.text, one.name, seconds(found.seconds), times_as_long(found, ours), off, mib(found)]


def _rates(outcomes: dict[str, Outcome]) -> str:
    intro = "**The rates of this machine**, multiply-adds a second, beside those that the cost model has (`mvgp.linalg.cost`), from which plans are chosen."
    found = outcomes.get(RATE.name)
    head = ["operation", "this machine", "the model", "ratio"]
    if found is None or not found.done:
        return joined([intro, table(head, [missing_row(["all"], found, 4)])])
    lines = [
        [name, f"{one['found'] / 1e9:.2f} G", f"{one['assumed'] / 1e9:.2f} G", factor(one["found"] / one["assumed"])]
        for name, one in found.values.items()
    ]
    return joined([intro, table(head, lines)])


def _aims(outcomes: dict[str, Outcome]) -> list[tuple[str, float | None, str, float]]:
    def ratio(theirs: str, ours: str, where: str) -> float | None:
        pair = [outcomes.get(f"{name}, {where}") for name in (theirs, ours)]
        if any(one is None or not one.done or not one.seconds for one in pair):
            return None
        return pair[0].seconds / pair[1].seconds

    aims = [
        ("graph kernel, single precision: times faster than dense", ratio(DENSE, CHEBYSHEV, SINGLE), "at least", 4.0)
    ]
    for m, n, t, least in GRIDS:
        where = f"{m} x {n}, {t:,}"
        aims.append((f"pairs, {where}: times faster than masked", ratio(MASKED, PAIRS, where), "at least", least))
    for scale in ("0.2", "0.05"):
        where = f"lengthscale {scale}"
        aims.append((f"solve, {where}: times faster than MINRES", ratio(MINRES, FULL, where), "at least", 5.0))
    for share in ("50%", "10%"):
        for start in (COLD, WARM):
            where = f"{share} positive"
            aims.append(
                (f"projection, {where}, {start[6:]}: part of a sort", ratio(start, SORT, where), "at most", 0.6)
            )
            aims.append(
                (
                    f"projection, {where}, {start[6:]}: times faster than scipy",
                    ratio(LOOP, start, where),
                    "at least",
                    3.0,
                )
            )
    return aims


CHAPTER = Chapter("parts", "The parts: products, solves, projections", plan, tell)
