"""Words and numbers of the page. What is said follows from the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .measurement import LARGE, OVER, Outcome

HYPHEN = "\u2011"  # one at which a cell of a table does not break
ALIKE = 1.1  # a smaller ratio of times is no difference


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows) + "\n"


def seconds(value: float | None) -> str:
    """With two digits that matter."""
    if value is None:
        return ""
    if value < 0.1:
        return f"{1000 * value:.2g} ms" if value < 0.01 else f"{1000 * value:.0f} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"


def mib(outcome: Outcome) -> str:
    """Memory beyond that of the imports."""
    return "" if outcome.own_mib is None or not outcome.done else f"{outcome.own_mib:,.0f}"


def error(value: float | None) -> str:
    """A relative error."""
    if value is None:
        return ""
    return f"{value:.1e}".replace("-", HYPHEN) if value else "0"


def time_of(outcome: Outcome) -> str:
    """Seconds, or why there are none."""
    return seconds(outcome.seconds) if outcome.done else reason(outcome)


def reason(outcome: Outcome) -> str:
    """Why a measurement has no numbers, for a cell of a table."""
    if outcome.status in (OVER, LARGE):
        return outcome.message
    return f"failed: {outcome.message[:80]}".replace("|", "/").replace("\n", " ")


def missing_row(start: Sequence[str], outcome: Outcome | None, width: int) -> list[str]:
    """A line of a table for what has no numbers: ``start``, why, and empty cells up to ``width``."""
    why = "not measured" if outcome is None else reason(outcome)
    return [*start, why, *[""] * (width - len(start) - 1)]


def growth(what: str, size: str, sizes: Sequence[float], power: float | None) -> str:
    """A clause about an exponent; empty if there is none."""
    if power is None:
        return ""
    return f"{what} grows like ${size}^{{{power:.1f}}}$ from {sizes[0]:,.0f} to {sizes[-1]:,.0f}"


def joined(parts: Sequence[str]) -> str:
    """Paragraphs that are there."""
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def beside(ours: str, theirs: str, amounts: dict[str, tuple[float | None, float | None]]) -> str:
    """A sentence that compares what two need.

    :param amounts: ours and theirs, by what it is ("time", "memory"); those that are missing are left out.
    """
    known = {what: pair for what, pair in amounts.items() if all(one is not None and one > 0 for one in pair)}
    if not known:
        return ""
    return f"Beside {theirs}, {ours} needs {listed([_ratio(what, *pair) for what, pair in known.items()])}."


def _ratio(what: str, mine: float, other: float) -> str:
    if max(mine / other, other / mine) < ALIKE:
        return f"about the same {what}"
    return (
        f"{factor(other / mine)} times less {what}" if mine < other else f"{factor(mine / other)} times as much {what}"
    )


def listed(parts: Sequence[str]) -> str:
    """a, b and c"""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def factor(ratio: float) -> str:
    """A ratio with two digits that matter."""
    return f"{ratio:.1f}" if ratio < 10 else f"{float(f'{ratio:.2g}'):,.0f}"


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """The slope of log value over log size by least squares; None with fewer than three points."""
    if len(sizes) < 3:
        return None
    x, y = [math.log(one) for one in sizes], [math.log(one) for one in values]
    middle = sum(x) / len(x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


def sentence(*clauses: str) -> str:
    """Clauses that are there, as a sentence each, beginning with a capital unless it is a name."""
    given = [one[:1].upper() + one[1:] if one.startswith("the ") else one for one in clauses if one]
    return " ".join(f"{one}." for one in given)


def relative_error(found: Sequence[float], exact: Sequence[float]) -> float:
    """Norm of the difference, relative to that of the exact values."""
    return math.dist(found, exact) / math.sqrt(sum(one * one for one in exact))


def largest_error(found: Sequence[float], exact: Sequence[float]) -> float:
    """The largest relative difference of an entry."""
    return max(abs(a - b) / abs(b) for a, b in zip(found, exact, strict=True))


def paired(ours: str, mine: Sequence[float], theirs: str, other: Sequence[float]) -> str:
    """A sentence about the average difference over tasks, with its normal 95 % interval; tasks that one has no figure for are left out."""
    apart = [a - b for a, b in zip(mine, other, strict=True) if not (math.isnan(a) or math.isnan(b))]
    if len(apart) < 2:
        return f"There are too few tasks to compare {ours} and {theirs}."
    mean = sum(apart) / len(apart)
    half = 1.96 * math.sqrt(sum((one - mean) ** 2 for one in apart) / (len(apart) - 1) / len(apart))
    found = f"{mean:+.4f} (95 % interval {mean - half:+.4f} to {mean + half:+.4f}) over {len(apart):,} tasks"
    if mean - half <= 0 <= mean + half:
        return f"{ours} and {theirs} cannot be told apart: {found}."
    return f"{ours} is {'ahead of' if mean > 0 else 'behind'} {theirs}: {found}."


def times_as_long(found: Outcome | None, other: Outcome | None) -> str:
    """Seconds of one beside those of another, as a ratio; empty if one of them was not done."""
    if found is None or other is None or not (found.done and other.done and found.seconds and other.seconds):
        return ""
    return f"{factor(found.seconds / other.seconds)}" if found is not other else ""


def bars(aims: Sequence[tuple[str, float | None, str, float]]) -> str:
    """A table of what has to be reached.

    :param aims: name, what was found (None: not measured), "at least" or "at most", and the number.
    """
    lines = []
    for name, found, how, wanted in aims:
        cleared = found is not None and (found >= wanted if how == "at least" else found <= wanted)
        verdict = "not measured" if found is None else "yes" if cleared else "**no**"
        lines.append([name, "" if found is None else f"{found:.3g}", f"{how} {wanted:g}", verdict])
    return table(["bar", "found", "aim", "cleared"], lines)
