"""Classification on a partly observed grid: mvgp's FullGP beside GPyTorch's ApproximateGP, to the same evidence bound."""

from __future__ import annotations

from ..chapter import Chapter, Section
from ..figures import Figure, Panel
from ..measurement import Measurement, Outcome
from ..sweep import Contestant, Size, Sweep, name_of
from ..text import error, factor, joined, mib, missing_row, relative_error, seconds, table

SHAPES, TINY = [[30, 40], [60, 80]], [[8, 10], [10, 12]]
OURS = Contestant("mvgp FullGP", "pointwise:full_gp", limit=lambda _: 30.0)
INTRO = """RBF kernels of lengthscale 0.2 on both axes, labels drawn through a probit link at 40 % of the cells (T of them), double precision; kernels are given, nothing is learned. The posterior is the Gaussian of largest evidence bound, its covariance unrestricted.
GPyTorch's `ApproximateGP` has every observation as an inducing point, so that its optimum is the same. It runs until it is within {near} of the bound that `FullGP` reaches (an equation residual of 1e-8), or for {budget:g} s; its bound is computed outside the clock. *NGD, rate 0.1* is the setting of GPyTorch's tutorial on natural gradients, *Adam, rate 0.1* that of its
classification example, and *NGD, rate 1* the fastest we found."""


def peers(budget: float) -> list[Contestant]:
    def peer(text: str, natural: bool, rate: float) -> Contestant:
        settings = {"natural": natural, "rate": rate, "budget": budget}
        return Contestant(f"GPyTorch, {text}", "pointwise:approximate_gp", settings, limit=lambda _: 20 + 4 * budget)

    return [peer("NGD, rate 1", True, 1.0), peer("NGD, rate 0.1", True, 0.1), peer("Adam, rate 0.1", False, 0.1)]


def sweep(quick: bool) -> Sweep:
    sizes = [Size(round(0.4 * m * n), f"{m} x {n}", {"shape": [m, n]}) for m, n in (TINY if quick else SHAPES)]
    return Sweep([OURS, *peers(2.0 if quick else 40.0)], sizes, chained=False)


def plan(quick: bool) -> list[Measurement]:
    return sweep(quick).plan()


def spent(outcome: Outcome) -> float | None:
    """Seconds inside the clock."""
    return outcome.values.get("spent", outcome.seconds)


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    found = sweep(quick)
    head = ["grid", "T", "", "time", "times as long", "steps", "bound below ours", "means apart", "MiB"]
    lines = [line for size in found.sizes for line in _lines(outcomes, found, size)]
    panel = Panel("Time to the same bound", "observed cells T", "seconds", found.lines(outcomes, spent))
    text = [
        INTRO.format(near=0.1, budget=2.0 if quick else 40.0),
        "{growth}",
        table(head, lines),
        found.stopped(outcomes),
    ]
    return Section(
        joined(text), {"growth": Figure("Seconds to the same evidence bound against observed cells", [panel])}
    )


def _lines(outcomes: dict[str, Outcome], found: Sweep, size: Size) -> list[list[str]]:
    ours, lines = outcomes.get(name_of(OURS, size)), []
    for one in found.contestants:
        outcome = outcomes.get(name_of(one, size))
        start = [size.text, f"{size.x:,.0f}", one.name]
        if outcome is None or not outcome.done:
            lines.append(missing_row(start, outcome, 9))
            continue
        got, took = outcome.values, spent(outcome)
        compared = ["", "", ""]
        if one is not OURS and ours is not None and ours.done and ours.seconds:
            more = "" if got["reached"] else "more than "
            apart = error(relative_error(got["mean"], ours.values["mean"]))
            below = ours.values["bound"] - got["bound"]
            compared = [f"{more}{factor((took or 0.0) / ours.seconds)}", f"{below:.2g}", apart]
        lines.append([*start, seconds(took), compared[0], str(got["steps"]), compared[1], compared[2], mib(outcome)])
    return lines


CHAPTER = Chapter("pointwise", "Labels on a grid: variational inference to the same bound", plan, tell, slow=True)
