"""Run the measurements of chapters, and save each as it ends."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .chapter import Chapter
from .machine import code_digest, commit, machine, versions
from .measure import Meter
from .results import Results


def about_run(
    chapters: Sequence[Chapter], *, quick: bool, threads: int, memory_gib: float, rounds: int
) -> dict[str, Any]:
    """What identifies a run, and what it ran on."""
    settings = {"quick": quick, "threads": threads, "memory_gib": memory_gib, "rounds": rounds}
    found = {"machine": machine(), "versions": versions(), **settings}
    return {
        "identity": {"code": code_digest(), **found},
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "chapters": [chapter.name for chapter in chapters],
        **found,
    }


def wanted(chapters: Sequence[Chapter], named: Sequence[str], *, quick: bool) -> list[Chapter]:
    """The chapters that are to be measured: those that are named; else all that are not slow, and slow ones too at tiny sizes."""
    if named:
        return [chapter for chapter in chapters if chapter.name in named]
    return [chapter for chapter in chapters if quick or not chapter.slow]


def run_book(
    chapters: Sequence[Chapter],
    results_folder: Path,
    *,
    quick: bool = False,
    threads: int = 2,
    memory_gib: float = 10.0,
    rounds: int = 5,
    fresh: bool = False,
    named: Sequence[str] = (),
) -> Results:
    """Measure what is not measured yet.

    :param results_folder: of what was measured.
    :param named: chapters to measure; the usual ones when there are none.
    """
    about = about_run(chapters, quick=quick, threads=threads, memory_gib=memory_gib, rounds=rounds)
    results = Results.begin(results_folder, about, fresh=fresh)
    plans = [(chapter, one) for chapter in wanted(chapters, named, quick=quick) for one in chapter.plan(quick)]
    with Meter(threads, memory_gib, rounds) as meter, tqdm(total=len(plans), desc="bench", unit="") as bar:
        for chapter, one in plans:
            bar.set_postfix_str(f"{chapter.name}: {one.name}"[:60])
            if results.find(chapter.name, one) is None:
                smaller = results.of(chapter.name).get(one.after) if one.after else None
                results.add(chapter.name, meter.run(one, smaller))
            bar.update()
    return results
