"""The path at the paper's scale: thirty strengths, each certified, beside the time of the products alone."""

from __future__ import annotations

from ..chapter import Chapter, Section
from ..measurement import Measurement, Outcome
from ..text import bars, error, factor, joined, listed, missing_row, reason, seconds, table

PROBLEM = {"shape": [4495, 13_614], "observed": 448_000, "links": [13_922, 433_224], "rank": 40, "precision": "float32"}
TINY = {"shape": [30, 40], "observed": 300, "links": [60, 80], "rank": 2, "precision": "float32"}
POINTS, TINY_POINTS, STRENGTH = 30, 4, 0.5
SECONDS = 1200.0  # a path that takes longer ends
PATHS = {  # trace share, and the rank after which a path ends
    "ranking, trace share 1": ("ranking", 1.0, 10**9),
    "ranking, trace share 0.8": ("ranking", 0.8, 500),
    "regression, trace share 1": ("regression", 1.0, 300),
}
SOLVERS = ("proximal", "hybrid")
INTRO = """{shape} with {observed:,} pairs, single precision, graphs with {links} links. *Ranking*, the paper's problem: lists of power-law length whose upper halves, by planted scores of rank {rank} plus noise, are positive, equation (9).
*Regression*: squared loss on the same scores plus noise. Strengths go from 1 to 1e-3 in {points} steps, each from the last one's mean and certified to 1e-3; a path ends early at rank 500 with trace share 0.8, at rank 300 with regression,
and after {seconds}. The *floor* is the time inside kernel products, sampled products and sparse products, which no method of this kind can do without."""
COLD = "**From cold**, ranking, strength {strength:g}, trace norm alone, to 1e-3:"


def plan(quick: bool) -> list[Measurement]:
    problem, points = (TINY, TINY_POINTS) if quick else (PROBLEM, POINTS)
    paths = [
        Measurement(
            name,
            "mean:path",
            {"kind": kind, "share": share, "points": points, "max_rank": rank, "seconds": SECONDS, "problem": problem},
            limit=2 * SECONDS,
        )
        for name, (kind, share, rank) in PATHS.items()
    ]
    cold = [
        Measurement(
            solver,
            "mean:cold",
            {"solver": solver, "kind": "ranking", "strength": STRENGTH, "problem": problem},
            limit=300.0,
        )
        for solver in SOLVERS
    ]
    return [*cold, *paths]


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    problem = TINY if quick else PROBLEM
    intro = INTRO.format(
        shape=" x ".join(f"{size:,}" for size in problem["shape"]),
        observed=problem["observed"],
        links=" and ".join(f"{count:,}" for count in problem["links"]),
        rank=problem["rank"],
        points=TINY_POINTS if quick else POINTS,
        seconds=seconds(SECONDS),
    )
    head = ["path", "strengths done", "time", "times the floor", "largest rank", "largest gap", "GiB"]
    lines = [_line(name, outcomes.get(name)) for name in PATHS]
    cold = [_cold(solver, outcomes.get(solver)) for solver in SOLVERS]
    text = [intro, table(head, lines), *(_steps(name, outcomes.get(name)) for name in PATHS)]
    text += [COLD.format(strength=STRENGTH), table(["solver", "time", "gap", "rank"], cold)]
    return Section(joined([*text, "" if quick else bars(_aims(outcomes))]), {})


def _line(name: str, found: Outcome | None) -> list[str]:
    if found is None or not found.done:
        return missing_row([name], found, 7)
    points, last = found.values["points"], found.values["points"][-1]
    ranks, gaps = [one["rank"] for one in points], [one["gap"] for one in points]
    floor = factor(last["seconds"] / last["floor"])
    return [
        name,
        str(len(points)),
        seconds(last["seconds"]),
        floor,
        str(max(ranks)),
        error(max(gaps)),
        f"{found.values['peak_gib']:.1f}",
    ]


def _steps(name: str, found: Outcome | None) -> str:
    if found is None or not found.done:
        return ""
    shown = [f"{one['strength']:.3g} (rank {one['rank']}, {seconds(one['seconds'])})" for one in found.values["points"]]
    return f"{name[0].upper()}{name[1:]}, strength with its rank and the time until then: {listed(shown)}."


def _cold(name: str, found: Outcome | None) -> list[str]:
    if found is None:
        return [name, "not measured", "", ""]
    if not found.done:
        return [name, reason(found), "", ""]
    return [name, seconds(found.seconds), error(found.values["gap"]), str(found.values["rank"])]


def _aims(outcomes: dict[str, Outcome]) -> list[tuple[str, float | None, str, float]]:
    aims = []
    for name in PATHS:
        found = outcomes.get(name)
        done = found is not None and found.done
        points = found.values["points"] if done else []
        proved = sum(one["certified"] for one in points) / len(points) if points else None
        aims.append((f"{name}: share of points certified to 1e-3", proved, "at least", 1.0))
        aims.append((f"{name}: GiB", found.values["peak_gib"] if done else None, "at most", 4.0))
    first = outcomes.get(next(iter(PATHS)))
    last = first.values["points"][-1] if first is not None and first.done else None
    whole = last if last is not None and len(first.values["points"]) == POINTS else None
    aims.append(("all thirty strengths, ranking, trace share 1: seconds", whole and whole["seconds"], "at most", 300.0))
    aims.append(("the same: times the floor", whole and whole["seconds"] / whole["floor"], "at most", 1.4))
    return aims


CHAPTER = Chapter("trace_path", "The path at the paper's scale", plan, tell, slow=True)
