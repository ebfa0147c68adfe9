"""Wrong calls of everything public, and mistakes on the command line."""

from __future__ import annotations

import random

import torch

from benchmarks import hostile_calls, hostile_commands
from benchmarks.trust.plan import Found, Line, generator
from tests.prioritise.cli.mistakes import MISTAKES, filled


def calls(first: int, count: int, seed: int) -> Found:
    """Wrong arguments: refused by an error of mvgp, or an answer that may be right; nothing else."""
    found = Found()
    own = int(generator("calls/wrong", first, seed).integers(2**31))
    torch.manual_seed(own)
    for outcome in hostile_calls.hostile_round(own, count):
        bad = outcome.kind in ("RAW", "SILENT")
        found.add("failed" if bad else outcome.kind, f"{outcome.kind} {outcome.text}" if bad else "")
    return found


def commands(first: int, count: int, seed: int) -> Found:
    """Every kind of mistake in random order, again and again; odd rounds have a second mistake of the same command behind it."""
    found, kinds = Found(), random.Random(seed).sample(list(MISTAKES), len(MISTAKES))
    with hostile_commands.places() as (tables, place):
        for number in range(first, first + count):
            around, at = divmod(number, len(kinds))
            kind, rng = kinds[at], random.Random(int(generator("commands/mistakes", number, seed).integers(2**62)))
            arguments, _ = filled(kind, tables, place)
            if around % 2:
                alike = [filled(other, tables, place)[0] for other in kinds]
                same = [
                    one for one in alike if one[:1] == arguments[:1] and arguments[:1][0] in hostile_commands.COMMANDS
                ]
                arguments = [*arguments, *rng.choice(same or [[""]])[1:]]
            wrong = hostile_commands.tried(arguments, (tables, place))
            found.add("failed" if wrong else "refused", wrong and f"{kind}: {' '.join(arguments)[:200]}: {wrong}")
    return found


LINES = [
    Line("calls/wrong", "wrong calls of all public callables", 20_000, 1_000, calls, limit=1800),
    Line(
        "commands/mistakes", f"command lines with a mistake, of {len(MISTAKES)} kinds", 2 * len(MISTAKES), 60, commands
    ),
]
