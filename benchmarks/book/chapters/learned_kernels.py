"""Learned kernels: whether they rank better than time 1 and shift 1, with few links and with many."""

from __future__ import annotations

import math

from ..chapter import Chapter, Section
from ..measurement import Measurement, Outcome
from ..text import bars, joined, missing_row, paired, seconds, table

PLAIN, LEARNED, CHOSEN = "time 1, shift 1", "learned", "chosen by validation"
FOLDS = (0, 1)
STRENGTHS, TINY_STRENGTHS = [0.7, 0.5, 0.35, 0.25, 0.18, 0.125], [0.7, 0.4]
SEARCHED, OFFERED = [0.2, 0.08], [0.2, 0.08, 0.05, 0.035]
METRICS = ("AUC", "MAP@100")
FEW = """**Few links.** 5 % of the links of DisGeNET genes of MeSH diseases (`../shared/data/mesh_disgenet`, not part of the repository), two folds of five. *Learned*: times, shifts, scale and noise by the exact marginal likelihood of the training links, 1 among 0 in all
cells (`learn_grid`); the scale is then that of the default. `TraceGP` on whole lists, trace share 0.9, strength chosen on validation links for each kernel."""
MANY = """**Many links.** All of them, one fold of five. Each time and shift is tried at a half and at twice its value, and taken where validation MAP@100 gains more than its standard error (`choose_kernels`); then both kernels get a strength of their own."""


def plan(quick: bool) -> list[Measurement]:
    source, share = ("synthetic", 1.0) if quick else ("mesh", 0.05)
    settings = {"source": source, "share": share, "strengths": TINY_STRENGTHS if quick else STRENGTHS}
    folds = [
        Measurement(
            f"{name}, fold {fold}",
            "learned:fold",
            {**settings, "fold": fold, "learned": name == LEARNED, "steps": 5 if quick else 40},
            limit=3600.0,
        )
        for fold in FOLDS
        for name in (PLAIN, LEARNED)
    ]
    strengths = (
        {"strengths": TINY_STRENGTHS, "offered": TINY_STRENGTHS}
        if quick
        else {"strengths": SEARCHED, "offered": OFFERED}
    )
    return [*folds, Measurement(CHOSEN, "learned:by_validation", {"source": source, **strengths}, limit=7200.0)]


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    lines = [_line(f"{name}, fold {fold}", outcomes) for name in (PLAIN, LEARNED) for fold in FOLDS]
    compared, gain = [], None
    both = {name: [outcomes.get(f"{name}, fold {fold}") for fold in FOLDS] for name in (PLAIN, LEARNED)}
    if all(one is not None and one.done for part in both.values() for one in part):
        for metric in METRICS:
            mine, other = (
                [x for one in both[name] for x in one.values["per_task"][metric]] for name in (LEARNED, PLAIN)
            )
            compared.append(f"**{metric}.** " + paired("The learned kernel", mine, "the plain one", other))
            gain = _mean(mine) - _mean(other)
    head = ["kernels", *METRICS, "strength", "learned in", "parameters"]
    aims = [("few links: MAP@100, learned less plain", gain, "at least", 0.0)]
    many, more = _many(outcomes.get(CHOSEN))
    aims.append(("many links: MAP@100, chosen less plain", more, "at least", 0.0))
    return Section(joined([FEW, table(head, lines), *compared, MANY, many, "" if quick else bars(aims)]), {})


def _line(name: str, outcomes: dict[str, Outcome]) -> list[str]:
    found = outcomes.get(name)
    if found is None or not found.done:
        return missing_row([name], found, 6)
    got = found.values
    shown = ", ".join(f"{key} {value:.3g}" for key, value in got["parameters"].items())
    merits = [f"{_mean(got['per_task'][metric]):.4f}" for metric in METRICS]
    return [name, *merits, f"{got['strength']:g}", seconds(got["learn_seconds"]) if shown else "", shown]


def _many(found: Outcome | None) -> tuple[str, float | None]:
    """What is said, and the gain."""
    head = ["kernels", *METRICS, "strength"]
    if found is None or not found.done:
        return table(head, [missing_row([CHOSEN], found, 4)]), None
    got = found.values
    means = {
        name: [_mean(got[key]["per_task"][metric]) for metric in METRICS]
        for name, key in ((PLAIN, "plain"), (CHOSEN, "chosen"))
    }
    lines = [
        [name, *(f"{value:.4f}" for value in means[name]), f"{got[key]['strength']:g}"]
        for name, key in ((PLAIN, "plain"), (CHOSEN, "chosen"))
    ]
    same = "No kernel has gained more than its standard error: both are the same." if got["same"] else ""
    text = [
        table(head, lines),
        f"The search took {seconds(got['search_seconds'])}. {same}",
        f"```text\n{got['candidates']}\n```",
    ]
    return joined(text), means[CHOSEN][1] - means[PLAIN][1]


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


CHAPTER = Chapter("learned_kernels", "Learned kernels", plan, tell, slow=True)
