"""The page: heading with machine and versions, chapters, and which of them failed."""

from __future__ import annotations

import traceback
from pathlib import Path

from .chapter import Chapter
from .figures import draw_figures, save_figures
from .measurement import FAILED
from .results import Results

HEAD = """# Benchmark book

`make bench` wrote this page: it measures everything here side by side, in one run. Do not edit it. {date}, commit {commit}, {minutes} in all.
**Ratios vary by tens of per cent from run to run.** They vary more where they are above ten, or where times are below a second.

| | |
|---|---|
{facts}

Every measurement has a process of its own, {threads}, a limit of time and a limit of {memory:g} GiB. Contestants take turns, size by size. Times are for the answer and do not include making the problem up. What takes less than two seconds
is repeated up to {rounds} times, and the best time is given. MiB is the largest memory of the process, beyond that of one which imports the same packages and does nothing ({start:.0f} MiB). Where a contestant has no numbers, the table says why.

The page {{doc}}`benchmarks` says how to run parts of the book, and which chapters are too slow to be here.
"""
IMAGE = """```{{image}} figures/{stem}-light.svg
:class: only-light
:alt: {alt}
```

```{{image}} figures/{stem}-dark.svg
:class: only-dark
:alt: {alt}
```"""


def write_page(chapters: list[Chapter], results: Results, folder: Path) -> list[str]:
    """Write ``benchmark_book.md`` below ``folder``, the numbers of its figures and the figures; the titles of chapters that failed.

    Slow chapters that were not measured are left out. In the documentation page and numbers are committed, and the figures are drawn when the site is built.
    """
    parts, failed, figures = [_head(results)], [], {}
    shown = [chapter for chapter in chapters if results.of(chapter.name) or not chapter.slow]
    for number, chapter in enumerate(shown, 1):
        outcomes = results.of(chapter.name)
        broken = [one for one in outcomes.values() if one.status == FAILED]
        try:
            section = chapter.tell(outcomes, results.about["quick"])
            text = section.text
            for name, figure in section.figures.items():
                if figure.empty:
                    text = text.replace(f"{{{name}}}", "(No figure: nothing was measured.)")
                    continue
                stem = f"bench-{chapter.name}-{name}"
                figures[stem] = figure
                text = text.replace(f"{{{name}}}", IMAGE.format(stem=stem, alt=figure.alt))
        except Exception as error:
            traceback.print_exc()
            text = f"This chapter could not be written: {type(error).__name__}: {error}\n"
            failed.append(chapter.title)
        if broken:
            text += "\n**Failed**: " + "; ".join(f"{one.name} ({_plain(one.message)})" for one in broken) + ".\n"
            failed.append(chapter.title)
        parts.append(f"## {number}. {chapter.title}\n\n{text.strip()}\n")
    failed = list(dict.fromkeys(failed))
    if failed:
        parts.insert(1, f"**Chapters that failed in this run: {', '.join(failed)}.**\n")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchmark_book.md").write_text("\n".join(parts))
    save_figures(figures, folder / "figures" / "bench.json")
    draw_figures(folder / "figures" / "bench.json")
    return failed


def _head(results: Results) -> str:
    about = results.about
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [f"| {name} | {value} |" for name, value in about["machine"].items()]
    lines.append(f"| versions | {versions} |")
    started = [one.start_mib for chapter in about["chapters"] for one in results.of(chapter).values() if one.start_mib]
    threads = about["threads"]
    text = HEAD.format(
        date=about["date"],
        commit=about["commit"],
        minutes=f"{results.seconds / 60:.0f} minutes" if results.seconds >= 90 else f"{results.seconds:.0f} seconds",
        facts="\n".join(lines),
        threads="1 thread" if threads == 1 else f"{threads} threads",
        memory=about["memory_gib"],
        rounds=about["rounds"],
        start=max(started, default=0.0),
    )
    if about["quick"]:
        text += "\n**This is a quick run with tiny sizes, for testing: its numbers mean nothing.**\n"
    return text


def _plain(message: str) -> str:
    return message[:300].replace("\n", " ").replace("|", "/")
