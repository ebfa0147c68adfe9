"""Run every chapter's measurements, save each as it ends, then write the page."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .chapter import Chapter
from .machine import code_digest, commit, machine, versions
from .measure import Meter
from .page import write_page
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


def run_book(
    chapters: Sequence[Chapter],
    out: Path,
    results_folder: Path,
    *,
    quick: bool = False,
    threads: int = 2,
    memory_gib: float = 10.0,
    rounds: int = 5,
    fresh: bool = False,
    only: Sequence[str] = (),
) -> list[str]:
    """Measure what is not measured yet and write the page; the titles of chapters that failed.

    :param out: folder of the page and its figures.
    :param results_folder: of what was measured.
    :param only: names of chapters to measure; the page has all of them.
    """
    about = about_run(chapters, quick=quick, threads=threads, memory_gib=memory_gib, rounds=rounds)
    results = Results.begin(results_folder, about, fresh=fresh)
    plans = [(chapter, one) for chapter in chapters if not only or chapter.name in only for one in chapter.plan(quick)]
    with Meter(threads, memory_gib, rounds) as meter, tqdm(total=len(plans), desc="bench", unit="") as bar:
        for chapter, wanted in plans:
            bar.set_postfix_str(f"{chapter.name}: {wanted.name}"[:60])
            if results.find(chapter.name, wanted) is None:
                smaller = results.of(chapter.name).get(wanted.after) if wanted.after else None
                results.add(chapter.name, meter.run(wanted, smaller))
            bar.update()
    return write_page(list(chapters), results, out)
