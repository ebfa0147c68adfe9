"""Large axes: a fit with a hundred thousand rows, growth with T, a grid with a million and a half cells, and the command line's start."""

from __future__ import annotations

from ..chapter import Chapter, Section
from ..measurement import Measurement, Outcome
from ..sweep import Contestant, Size, Sweep, total_seconds
from ..text import bars, error, exponent, joined, largest_error, missing_row, seconds, table

FIT = {"shape": [100_000, 50_000], "observed": 5_000_000, "rank": 10, "held_out": 20_000}
TINY_FIT = {"shape": [40, 50], "observed": 500, "rank": 2, "held_out": 50}
STRENGTH, TOLERANCE = 0.6, 1e-3
PRECISIONS = {"single precision": "float32", "double precision": "float64"}
STEP_SHAPE, STEP_RANK = [50_000, 50_000], 32
PAIRS, TINY_PAIRS = [1_000_000, 5_000_000, 25_000_000], [300, 600]
STEP = Contestant("steps", "large:step", limit=lambda _: 400.0)
GRID, SMALLER, TINY_GRID = [5000, 1000], [800, 1000], [12, 15]
CELLS, ACCURACY = 100, 1e-3
OURS, BOTORCH = "mvgp FullGP", "BoTorch LatentKroneckerGP"
INTRO = """**Fit.** {shape} with {observed:,} cells, random graphs of average degree 6 on both axes, planted rank {rank} plus noise of half the signal's size, trace norm alone, strength {strength:g}, from cold to a certificate of {tolerance:g}. The rank is the
solver's. Errors are against the planted matrix, whose entries have standard deviation 1, at {held_out:,} other cells."""
STEPS_INTRO = (
    """**Growth.** Four conjugate-gradient steps on the factors, {shape}, rank {rank}, single precision, as T grows."""
)
GRID_INTRO = """**A large grid.** RBF kernels of lengthscale 0.2, 30 % observed, double precision: the mean of all cells with the fit, and {cells} variances within {accuracy:g}, which is proved for each. BoTorch under `use_iterative_methods()`."""
START = """**The command line.** `mvgp --help` and a mistyped option, beside `python -c "import typer, rich"`; the best of three."""


def sweep(quick: bool) -> Sweep:
    shape, rank = ([60, 60], 2) if quick else (STEP_SHAPE, STEP_RANK)
    sizes = [
        Size(count, f"T = {count:,}", {"shape": shape, "observed": count, "rank": rank})
        for count in (TINY_PAIRS if quick else PAIRS)
    ]
    return Sweep([STEP], sizes)


def plan(quick: bool) -> list[Measurement]:
    settings = {**(TINY_FIT if quick else FIT), "strength": STRENGTH, "tolerance": TOLERANCE}
    fits = [
        Measurement(name, "large:trace_fit", {**settings, "precision": precision}, limit=1500.0)
        for name, precision in PRECISIONS.items()
    ]
    small, large = (TINY_GRID, TINY_GRID) if quick else (SMALLER, GRID)
    cells = 4 if quick else CELLS
    grids = [
        Measurement(_grid(OURS, "small"), "large:grid_full", {"shape": small, "count": cells, "accuracy": ACCURACY}),
        Measurement(_grid(BOTORCH, "small"), "large:grid_botorch", {"shape": small, "count": cells}, limit=600.0),
        Measurement(
            _grid(OURS, "large"), "large:grid_full", {"shape": large, "count": cells, "accuracy": ACCURACY}, limit=900.0
        ),
        Measurement(_grid(BOTORCH, "large"), "large:grid_botorch", {"shape": large, "count": cells}, limit=1800.0),
    ]
    start = Measurement("start", "large:start_up", {"rounds": 1 if quick else 3}, limit=120.0)
    return [*fits, *sweep(quick).plan(), *grids, start]


def _grid(name: str, size: str) -> str:
    return f"{name}, {size} grid"


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    size = TINY_FIT if quick else FIT
    shape = " x ".join(f"{n:,}" for n in size["shape"])
    fits = [_fit(name, outcomes.get(name)) for name in PRECISIONS]
    line = sweep(quick).line(outcomes, STEP, total_seconds)
    slope = exponent(line.x, line.y)
    grown = [[f"{x:,.0f}", seconds(y)] for x, y in zip(line.x, line.y, strict=True)]
    text = [
        INTRO.format(
            shape=shape,
            observed=size["observed"],
            rank=size["rank"],
            strength=STRENGTH,
            tolerance=TOLERANCE,
            held_out=size["held_out"],
        ),
        table(["", "fit", "gap", "rank", "steps", "error", "GiB before", "GiB"], fits),
        STEPS_INTRO.format(shape=" x ".join(f"{n:,}" for n in STEP_SHAPE), rank=STEP_RANK),
        table(["T", "four steps"], grown or [["", "why: not measured"]]),
        GRID_INTRO.format(cells=CELLS, accuracy=ACCURACY),
        table(["grid", "", "mean of all cells", "variances", "largest difference", "GiB"], _grids(outcomes, quick)),
        START,
        table(["`mvgp --help`", "a mistake", "the imports"], [_start(outcomes.get("start"))]),
    ]
    return Section(joined([*text, "" if quick else bars(_aims(outcomes, slope))]), {})


def _fit(name: str, found: Outcome | None) -> list[str]:
    if found is None or not found.done:
        return missing_row([name], found, 8)
    got = found.values
    sizes = [str(got["rank"]), str(got["steps"]), f"{got['rmse']:.3f}", f"{got['before_gib']:.1f}"]
    return [name, seconds(got["fit"]), error(got["gap"]), *sizes, f"{got['peak_gib']:.1f}"]


def _grids(outcomes: dict[str, Outcome], quick: bool) -> list[list[str]]:
    lines = []
    for size, shape in (("small", SMALLER), ("large", GRID)):
        ours = outcomes.get(_grid(OURS, size))
        for name in (OURS, BOTORCH):
            found, label = (
                outcomes.get(_grid(name, size)),
                " x ".join(f"{n:,}" for n in (TINY_GRID if quick else shape)),
            )
            if found is None or not found.done:
                lines.append(missing_row([label, name], found, 6))
                continue
            got, off = found.values, ""
            if name == BOTORCH and ours is not None and ours.done:
                off = error(largest_error(got["variance"], ours.values["variance"]))
            times = [seconds(got["mean_seconds"]), seconds(got["variance_seconds"])]
            lines.append([label, name, *times, off, f"{got['peak_gib']:.1f}"])
    return lines


def _start(found: Outcome | None) -> list[str]:
    if found is None or not found.done:
        return missing_row([], found, 3)
    return [seconds(found.values[name]) for name in ("help", "mistake", "imports")]


def _aims(outcomes: dict[str, Outcome], slope: float | None) -> list[tuple[str, float | None, str, float]]:
    def of(name: str, key: str) -> float | None:
        found = outcomes.get(name)
        return found.values[key] if found is not None and found.done else None

    def ratio(above: float | None, below: float | None) -> float | None:
        return above / below if above is not None and below else None

    first = next(iter(PRECISIONS))
    aims = [
        ("100,000 x 50,000: seconds", of(first, "fit"), "at most", 600.0),
        ("100,000 x 50,000: GiB", of(first, "peak_gib"), "at most", 8.0),
        ("100,000 x 50,000: gap", of(first, "gap"), "at most", TOLERANCE),
        ("exponent of a step's time in T", slope, "at most", 1.1),
        ("`mvgp --help`: times the imports", ratio(of("start", "help"), of("start", "imports")), "at most", 2.0),
    ]
    for size in ("small", "large"):
        for what, key, least in (("means", "mean_seconds", 10.0), ("variances", "variance_seconds", 20.0)):
            times = ratio(of(_grid(BOTORCH, size), key), of(_grid(OURS, size), key))
            aims.append((f"{size} grid, {what}: times faster than BoTorch", times, "at least", least))
    return aims


CHAPTER = Chapter("large_axes", "Large axes", plan, tell, slow=True)
