"""Figures of trust: run the plan, or a share of it, and write the page.

    python -m benchmarks.trust                                # everything; two hours on two cores
    python -m benchmarks.trust --share 0.01 --only files calls
    python -m benchmarks.trust --budget 0 --publish           # just the page, from what there is

Sections are cut into units. Each runs in a process of its own and is noted when it is finished, so a run that was stopped goes on
where it was. ``--fresh`` forgets what is known of the chosen sections, ``--again`` repeats units in which something failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.trust import page
from benchmarks.trust.plan import NOTES, Line, Notes, Unit, conditions, units
from benchmarks.trust.processes import CAN_FORK, EVENTS, Child, Ended

MEMORY = 14 * 2**30  # bytes of address space of a unit


def noted(unit: Unit, ended: Ended, here: dict[str, Any]) -> dict[str, Any]:
    """What the notes say about a unit; one that came to no end has failed once."""
    found = ended.value
    if found is None:
        named = f"tries {unit.first} to {unit.first + unit.count - 1}: {ended.trouble}"
        found = {"tried": unit.count, "failed": 1, "failures": [named], "counts": {"no result": 1}, "most": {}}
    name = {"line": unit.line.name, "first": unit.first, "count": unit.count, "seed": unit.seed}
    times = {"seconds": round(ended.seconds, 2), "processor_seconds": round(ended.processor_seconds, 2)}
    return {**name, **found, **times, "memory": ended.memory, **here}


def run(
    plan: list[Unit],
    notes: Notes,
    *,
    jobs: int = 1,
    seconds: float | None = None,
    again: bool = False,
    say: Callable[[str], None] = print,
) -> int:
    """Do what is not done. The number of tries that failed, those known before included.

    :param seconds: after which no unit is started; None for no limit.
    :param again: whether units with failures are repeated.
    """
    known = {notes.key(one): one for one in notes.read()}
    done = {unit: known[unit.key] for unit in plan if unit.key in known and known[unit.key]["count"] >= unit.count}
    if again:
        done = {unit: one for unit, one in done.items() if not one["failed"]}
    wanted = [unit for unit in plan if unit not in done]
    failed = sum(one["failed"] for one in done.values())
    tried = {unit.line.name: 0 for unit in plan}
    for unit, one in done.items():
        tried[unit.line.name] += one["tried"]
    whole = {name: sum(unit.count for unit in plan if unit.line.name == name) for name in tried}
    say(f"{len(plan) - len(wanted)} of {len(plan)} units are done")
    here, began, running = conditions(), time.monotonic(), dict[Unit, Child]()
    try:
        while wanted or running:
            late = seconds is not None and time.monotonic() - began >= seconds
            while wanted and len(running) < jobs and not late:
                unit = wanted.pop(0)
                work = lambda unit=unit: unit.line.run(unit.first, unit.count, unit.seed).to_json()  # noqa: E731
                running[unit] = Child(work, unit.line.limit, MEMORY)
            if late and not running:
                say(f"the time is up; {len(wanted)} units are left, the same call does them")
                break
            for unit, child in list(running.items()):
                if (ended := child.poll()) is None:
                    continue
                del running[unit]
                one = noted(unit, ended, here)
                notes.append(one)
                failed += one["failed"]
                name = unit.line.name
                tried[name] += one["tried"]
                say(
                    f"{name:24} {tried[name]:>9,} of {whole[name]:,} tried; this unit of {unit.count:,}: "
                    f"{one['failed']} failed, {one['processor_seconds']:.1f} s"
                )
                for failure in one["failures"][:5]:
                    say(f"  FAILED {failure}")
            time.sleep(EVENTS)
    finally:
        for child in running.values():
            child.kill()
    return failed


def chosen(lines: list[Line], names: list[str] | None) -> list[Line]:
    """The lines of some sections, or of those names."""
    if names is None:
        return lines
    known = {line.section for line in lines} | {line.name for line in lines}
    if unknown := sorted(set(names) - known):
        raise SystemExit(f"--only: expected some of {', '.join(sorted(known))}, got {', '.join(unknown)}")
    return [line for line in lines if line.section in names or line.name in names]


def main(arguments: list[str] | None = None) -> int:
    """Parse the options, run, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="SECTION", help="sections, or lines such as files/bytes")
    parser.add_argument("--share", type=float, default=1.0, help="of the full plan, 1 without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="after which nothing new is begun")
    parser.add_argument("--fresh", action="store_true", help="forget what was found before")
    parser.add_argument("--again", action="store_true", help="repeat units in which something failed")
    parser.add_argument("--publish", action="store_true", help="write docs/trust.md and its numbers")
    parser.add_argument("--notes", type=Path, default=NOTES)
    parser.add_argument("--list", action="store_true", help="the lines of the plan")
    options = parser.parse_args(arguments)
    if not 0 < options.share <= 1:
        parser.error(f"--share: expected a number above 0 and at most 1, got {options.share}")
    if not CAN_FORK:
        parser.error("expected a system that can fork processes, such as Linux")
    from benchmarks.trust.sections import LINES

    lines = chosen(LINES, options.only)
    if options.list:
        for line in lines:
            print(f"{line.name:24} {line.planned:>9,}  {line.title}")
        return 0
    notes = Notes(options.notes)
    if options.fresh:
        notes.forget(line.name for line in lines)
    seconds = None if options.budget is None else 60 * options.budget
    plan = units(lines, options.share, options.seed)
    failed = run(plan, notes, jobs=options.jobs, seconds=seconds, again=options.again)
    numbers = page.summarise(LINES, notes.read())
    print(*page.spoken(numbers, [line.name for line in lines]), sep="\n")
    if options.publish:
        print(*page.publish(numbers), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same as Ctrl-C: children end, too
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    print("stopped; what is finished is kept, the same call goes on", file=sys.stderr)
    sys.exit(130)
