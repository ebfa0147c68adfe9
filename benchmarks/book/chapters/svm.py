"""Support vector machines on pairs: mvgp's PairwiseSVM beside scikit-learn's SVC."""

from __future__ import annotations

from ..chapter import Chapter, Section
from ..figures import Figure, Panel
from ..measurement import Measurement, Outcome
from ..sweep import Contestant, Size, Sweep, name_of, own_mib, total_seconds, up_to
from ..text import beside, error, exponent, growth, joined, mib, missing_row, relative_error, seconds, sentence, table


def _kernel_gib(count: float) -> float:
    """The kernel, what it is built from, and what SVC copies."""
    return 2.5 * 8 * count**2 / 2**30


OURS = Contestant("mvgp PairwiseSVM", "svm:pairwise_svm", limit=up_to(50, at=144_000))
SAME = Contestant("scikit-learn SVC, squared hinge", "svm:svc_squared", limit=up_to(60, at=16_000), gib=_kernel_gib)
HINGE = Contestant("scikit-learn SVC, hinge", "svm:svc_hinge", limit=up_to(60, at=16_000), gib=_kernel_gib)
SHAPE, COUNTS = [600, 800], [500, 1_000, 2_000, 4_000, 8_000, 16_000, 48_000, 144_000]
TINY_SHAPE, TINY_COUNTS = [30, 40], [200, 400]
INTRO = """T pairs of a {m} x {n} matrix, labelled by the sign of a smooth matrix of low rank plus noise. The kernel of two pairs is the product of two diffusion kernels on random graphs. The cost is 1, and both classes have the same weight.

- `PairwiseSVM` has the squared hinge loss and no offset, and stops at a relative duality gap of 1e-5.
- *SVC, squared hinge* is the same machine in scikit-learn, plus an offset: a hard margin on the kernel with 1 / cost added to its diagonal.
- *SVC, hinge* is SVC as one would use it. It has another loss, so its scores are different ones.

SVC is given the kernel of all pairs; building it is timed."""


def sweep(quick: bool) -> Sweep:
    shape, counts = (TINY_SHAPE, TINY_COUNTS) if quick else (SHAPE, COUNTS)
    return Sweep(
        [OURS, SAME, HINGE], [Size(count, f"T = {count:,}", {"shape": shape, "observed": count}) for count in counts]
    )


def plan(quick: bool) -> list[Measurement]:
    return sweep(quick).plan()


def tell(outcomes: dict[str, Outcome], quick: bool) -> Section:
    found = sweep(quick)
    m, n = TINY_SHAPE if quick else SHAPE
    head = ["pairs", "", "time", "MiB", "objective over ours", "scores apart from ours"]
    lines = [line for size in found.sizes for line in _lines(outcomes, found, size)]
    panels = [
        Panel("Time", "pairs T", "seconds", found.lines(outcomes, total_seconds)),
        Panel("Memory", "pairs T", "MiB", found.lines(outcomes, own_mib)),
    ]
    text = [
        INTRO.format(m=m, n=n),
        "{growth}",
        table(head, lines),
        *(_compared(outcomes, found, other) for other in (SAME, HINGE)),
        sentence(*(_grown(outcomes, found, one) for one in found.contestants)),
        found.stopped(outcomes),
    ]
    return Section(
        joined(text),
        {"growth": Figure("Seconds and memory of three support vector machines against the number of pairs", panels)},
    )


def _lines(outcomes: dict[str, Outcome], found: Sweep, size: Size) -> list[list[str]]:
    ours, lines = outcomes.get(name_of(OURS, size)), []
    for one in found.contestants:
        outcome = outcomes.get(name_of(one, size))
        if outcome is None or not outcome.done:
            lines.append(missing_row([size.text, one.name], outcome, 6))
            continue
        apart = ["", ""]
        if one is SAME and ours is not None and ours.done:
            apart[0] = f"{outcome.values['objective'] / ours.values['objective'] - 1:+.1e}"
        if one is not OURS and ours is not None and ours.done:
            apart[1] = error(relative_error(outcome.values["scores"], ours.values["scores"]))
        lines.append([size.text, one.name, seconds(outcome.seconds), mib(outcome), *apart])
    return lines


def _compared(outcomes: dict[str, Outcome], found: Sweep, other: Contestant) -> str:
    size = found.largest(outcomes, OURS, other)
    if size is None:
        return ""
    ours, theirs = (outcomes[name_of(one, size)] for one in (OURS, other))
    amounts = {"time": (ours.seconds, theirs.seconds), "memory": (ours.own_mib, theirs.own_mib)}
    return f"**{size.text}**, the largest that both have done. " + beside(OURS.name, other.name, amounts)


def _grown(outcomes: dict[str, Outcome], found: Sweep, one: Contestant) -> str:
    line = found.line(outcomes, one, total_seconds)
    x, y = line.x[-3:], line.y[-3:]
    return growth(f"the time of {one.name}", "T", x, exponent(x, y))


CHAPTER = Chapter("svm", "Support vector machines on pairs", plan, tell)
