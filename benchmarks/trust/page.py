"""The notes of finished units as numbers (``docs/figures/trust.json``), and these as a part of ``docs/trust.md``."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.book.machine import ROOT
from benchmarks.trust.plan import NAMED, Line

NUMBERS, PAGE = ROOT / "docs/figures/trust.json", ROOT / "docs/trust.md"
MARKS = ("<!-- trust: written by benchmarks/trust -->", "<!-- trust: end -->")
SECTIONS = {
    "files": "Files given to `mvgp.load`",
    "numerics": "Numbers beside long arithmetic and an independent solver",
    "calls": "Wrong calls",
    "commands": "Mistakes on the command line",
    "names": "Hostile names",
    "faults": "Studies that are disturbed",
    "load": "Load",
    "calibration": "Calibration",
    "platforms": "Stand-ins for other machines",
}
SOURCES = (
    "tests/storage/*.py",
    "tests/prioritise/**/*.py",
    "tests/oracles.py",
    "benchmarks/*.py",
    "benchmarks/trust/**/*.py",
)


def inputs_digest() -> str:
    """Equal as long as what makes the inputs is: nothing is downloaded, all of them are made from seeds."""
    found = hashlib.sha256()
    for path in sorted({path for pattern in SOURCES for path in ROOT.glob(pattern)}):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\1")
    return found.hexdigest()[:16]


def summarise(lines: Sequence[Line], notes: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Sums over the units of each line; what they ran on."""
    from benchmarks.trust import lines_run, mutation
    from benchmarks.trust.sections import calibration

    known, units = {line.name: line for line in lines}, list(notes)
    found: dict[str, Any] = {}
    for line in lines:
        own = [one for one in units if one["line"] == line.name]
        counts: Counter[str] = Counter()
        most: dict[str, float] = {}
        for one in own:
            counts.update(one["counts"])
            for word, value in one["most"].items():
                most[word] = max(value, most.get(word, value))
        found[line.name] = {
            "title": line.title,
            "planned": line.planned,
            "tried": sum(one["tried"] for one in own),
            "failed": sum(one["failed"] for one in own),
            "failures": [failure for one in own for failure in one["failures"]][:NAMED],
            "counts": {} if line.section == "calibration" else dict(sorted(counts.items())),
            "most": {word: float(f"{value:.3g}") for word, value in sorted(most.items())},
            "processor_seconds": round(sum(one["processor_seconds"] for one in own)),
        }
        if line.section == "calibration":
            found[line.name]["judged"] = calibration.judged(counts)
    here = [one for one in units if one["line"] in known]
    numbers: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "commits": dict(Counter(one["commit"] for one in here)),
        "seeds": sorted({one["seed"] for one in here}),
        "machines": sorted({", ".join(one["machine"].values()) for one in here}),
        "versions": sorted(
            {", ".join(f"{name} {version}" for name, version in one["versions"].items()) for one in here}
        ),
        "inputs": inputs_digest(),
        "lines": found,
    }
    numbers["mutation"] = mutation.summarise()
    has_run = lines_run.SUMMARY.exists()
    numbers["coverage"] = json.loads(lines_run.SUMMARY.read_text()) if has_run else None
    return numbers


def spoken(numbers: dict[str, Any], names: Sequence[str]) -> list[str]:
    """A line for each, for the screen."""
    found = []
    for name in names:
        one = numbers["lines"][name]
        found.append(f"{name:24} {one['tried']:>9,} of {one['planned']:>9,} tried, {one['failed']} failed")
    return found


def merged(numbers: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Mutants and lines run as published before, where this machine has no notes of them."""
    for part in ("mutation", "coverage"):
        empty = not numbers[part] or not numbers[part].get("packages")
        if empty and before.get(part):
            numbers[part] = before[part]
    return numbers


def publish(numbers: dict[str, Any], path: Path = NUMBERS, page: Path = PAGE) -> list[Path]:
    """Write the numbers and the page."""
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(merged(numbers, before), indent=1, ensure_ascii=True) + "\n")
    write_page(json.loads(path.read_text()), page)
    return [path, page]


def write_page(numbers: dict[str, Any], page: Path = PAGE) -> None:
    """Replace what is between the marks."""
    before, rest = page.read_text().split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    page.write_text(f"{before}{MARKS[0]}\n\n{body(numbers)}\n{MARKS[1]}{after}")


# ---------------------------------------------------------------------------------------------------------------- text


def body(numbers: dict[str, Any]) -> str:
    """Everything that follows from the numbers."""
    lines = numbers["lines"]
    tried, failed = (sum(one[part] for one in lines.values()) for part in ("tried", "failed"))
    planned = sum(one["planned"] for one in lines.values())
    text = ["## What was tried", ""]
    text.append(
        f"{tried:,} of {planned:,} planned tries were made. {failed:,} of them failed{'' if failed == 0 else ', each named below'}."
    )
    if tried < planned:
        text.append("This is a part of the plan, and the full run is still to be made.")
    text += ["", *conditions(numbers), ""]
    for section, title in SECTIONS.items():
        own = {name: one for name, one in lines.items() if name.split("/")[0] == section}
        if own:
            text += [f"### {title}", "", *table(own), *details(own), ""]
    text += mutation_text(numbers.get("mutation") or {})
    text += coverage_text(numbers.get("coverage"))
    return "\n".join(text)


def conditions(numbers: dict[str, Any]) -> list[str]:
    """Machine, versions, commits."""
    commits = numbers["commits"]
    told = ", ".join(f"`{commit}` ({many:,} units)" for commit, many in commits.items()) or "none"
    text = [
        f"- Date {numbers['date']}, seed {', '.join(map(str, numbers['seeds']))}.",
        f"- Commit {told}.",
        *(
            [f"- The code changed during the run: the units above belong to {len(commits)} commits."]
            if len(commits) > 1
            else []
        ),
        *(f"- Machine: {one}." for one in numbers["machines"]),
        *(f"- Versions: {one}." for one in numbers["versions"]),
        f"- Inputs are made from seeds. SHA-256 of what makes them: `{numbers['inputs']}`.",
    ]
    return text


def table(lines: dict[str, Any]) -> list[str]:
    """Tried of planned, and failed."""
    text = ["| what | tried | planned | failed | outcomes | processor time |", "|---|--:|--:|--:|---|--:|"]
    for one in lines.values():
        outcomes = ", ".join(f"{count:,} {word}" for word, count in one["counts"].items() if word != "failed")
        time = f"{one['processor_seconds'] / 60:.1f} min"
        failed = f"**{one['failed']:,}**" if one["failed"] else "0"
        text.append(
            f"| {one['title']} | {one['tried']:,} | {one['planned']:,} | {failed} | {safe(outcomes)} | {time} |"
        )
    return [*text, ""]


def details(lines: dict[str, Any]) -> list[str]:
    """Largest values, and failures by name."""
    text = []
    for name, one in lines.items():
        if one["most"]:
            most = "; ".join(f"{word} {value:g}" for word, value in one["most"].items())
            text.append(f"- `{name}`, the most: {most}.")
        if "judged" in one and one["judged"]["curves"]:
            text += calibration_text(one["judged"])
        text += [f"- **Failed**, `{name}`: `{safe(failure)}`" for failure in one["failures"]]
        if len(one["failures"]) < one["failed"]:
            text.append(f"- `{name}`: {one['failed'] - len(one['failures']):,} more failures are not listed here.")
    return text


def calibration_text(judged: dict[str, Any]) -> list[str]:
    """The worst curves."""
    exact = [one for one in judged["curves"] if one["exact"]]
    others = [one for one in judged["curves"] if not one["exact"]]
    text = [
        f"- {len(exact)} curves of exact posteriors: the smallest p-value after Bonferroni's correction is {judged['joint_p_value']:.2g}."
    ]
    for kind, curves in (("exact posteriors", exact), ("approximations and shrunk means", others)):
        if curves:
            worst = max(curves, key=lambda one: abs(one["covered_90"] - 0.9))
            text.append(
                f"- Worst group of {kind}: {worst['case']}, {worst['quantity']}, where 90 % intervals hold "
                f"{worst['covered_90']:.1%} of {worst['draws']:,} truths."
            )
    return text


def mutation_text(found: dict[str, Any]) -> list[str]:
    """Scores by package, and survivors."""
    text = ["## Would the tests notice a wrong line?", ""]
    if not found.get("packages"):
        return [*text, "Not measured yet.", ""]
    text += [
        "| package | mutants | tried | killed | explained | survived | killed or explained |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, one in found["packages"].items():
        explained, survived = len(one["explained"]), len(one["survivors"])
        share = (one["killed"] + explained) / one["tried"]
        text.append(
            f"| `{name}` | {one['mutants']:,} | {one['tried']:,} | {one['killed']:,} ({one['killed'] / one['tried']:.0%}) | "
            f"{explained} | {survived} | {share:.0%} |"
        )
    text += ["", "A random sample was tried of each package. These are the mutants that no test killed.", ""]
    for one in found["packages"].values():
        text += [f"- Explained: `{safe(name)}`. {reason}" for name, reason in one["explained"].items()]
        text += [f"- Survived: `{safe(name)}`." for name in one["survivors"]]
    return [*text, ""]


def coverage_text(found: dict[str, Any] | None) -> list[str]:
    """Lines and branches by package, slowest test files."""
    text = ["## Which lines do the tests run?", ""]
    if not found or found["files_run"] < found["files"]:
        return [*text, "Not measured yet: shares are shown when every test file has been run.", ""]
    text.append(
        f"{found['files_run']} of {found['files']} test files were run, and {found['failed']} tests failed in this run."
    )
    text += ["", "| package | lines | run | branches | taken |", "|---|--:|--:|--:|--:|"]
    total = [0, 0, 0, 0]
    for name, one in found["packages"].items():
        parts = [one["lines"], one["lines_missed"], one["branches"], one["branches_missed"]]
        if name != "prioritise":
            total = [first + second for first, second in zip(total, parts, strict=True)]
        text.append(coverage_row(f"`{name}`", parts))
    text.append(coverage_row("the toolkit: all but `prioritise`", total))
    slowest = sorted(found["seconds"].items(), key=lambda one: -one[1])[:12]
    text += [
        "",
        "The slowest test files, in seconds of processor time while lines are counted:",
        "",
        "| file | seconds |",
        "|---|--:|",
    ]
    text += [f"| `{name}` | {seconds:.0f} |" for name, seconds in slowest]
    return [*text, ""]


def coverage_row(name: str, parts: Sequence[int]) -> str:
    """Counts and shares."""
    lines, missed, branches, branches_missed = parts
    taken = f"{1 - branches_missed / branches:.1%}" if branches else ""
    return f"| {name} | {lines:,} | {1 - missed / max(lines, 1):.1%} | {branches:,} | {taken} |"


def safe(text: str) -> str:
    """Text in a cell of a table, or between back quotes."""
    return text.replace("`", "'").replace("|", "/").replace("\n", " ").encode("ascii", "backslashreplace").decode()
