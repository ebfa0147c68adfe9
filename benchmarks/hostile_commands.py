"""A hostile round over the command line: every kind of mistake of the tests, in random order, alone and in pairs.

A mistake fails if it does not end with exit code 2 and one printable line on stderr, if it prints a result, changes a
file, or takes more than a minute. Printed: tried / failed, for each command. ``python benchmarks/hostile_commands.py
[seed] [rounds]``
"""

import contextlib
import io
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mvgp.prioritise.cli.entry import run
from tests.prioritise.cli.mistakes import MISTAKES, filled, hostile, seen
from tests.prioritise.cli.tables import inputs, write_tables

SECONDS = 60
COMMANDS = ("rank", "study", "report", "demo")


def tried(arguments, places):
    """What is wrong with how a command ends; nothing if it ends as it should."""
    before, began = [seen(place) for place in places], time.perf_counter()
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    shown, told = out.buffer.getvalue(), err.buffer.getvalue().decode()
    checks = {
        f"exit code {code}": code == 2,
        f"results {shown[:80]!r}": shown == b"",
        "not one printable line": told.count("\n") == 1 and told[:-1].isprintable() and told.startswith("mvgp: "),
        "files changed": [seen(place) for place in places] == before,
        "too long": time.perf_counter() - began < SECONDS,
    }
    wrong = [name for name, fine in checks.items() if not fine]
    return f"{', '.join(wrong)}: {told[:300]!r}" if wrong else ""


@contextlib.contextmanager
def places():
    """A folder with tables, and one with hostile files and a study, for mistakes to be made about."""
    with tempfile.TemporaryDirectory() as folder:
        tables, place = Path(folder, "tables"), Path(folder, "hostile")
        tables.mkdir()
        place.mkdir()
        write_tables(tables)
        hostile(place)
        options = ["--models", "popularity", "--folds", "2", "--quiet", "--out", f"{place}/study"]
        with contextlib.redirect_stdout(io.StringIO()):
            if run(["study", *inputs(tables), *options]) != 0:
                raise RuntimeError("the study that mistakes are about has failed")
        yield tables, place


def main(seed=0, rounds=2):
    rng, counts = random.Random(seed), {name: [0, 0] for name in (*COMMANDS, "none")}
    with places() as (tables, place):
        for _ in range(rounds):
            for kind in rng.sample(list(MISTAKES), len(MISTAKES)):
                given, _ = filled(kind, tables, place)
                # a second mistake of the same command: its options come after, and may hide the first
                alike = [filled(other, tables, place)[0] for other in MISTAKES]
                more = rng.choice([one for one in alike if one[:1] == given[:1] and given[:1][0] in COMMANDS] or [[]])
                for arguments in (given, [*given, *more[1:]]):
                    command = given[0] if given and given[0] in COMMANDS else "none"
                    wrong = tried(arguments, (tables, place))
                    counts[command][0] += 1
                    counts[command][1] += bool(wrong)
                    if wrong:
                        print(f"{kind}: {arguments}: {wrong}", flush=True)
    for command, (many, failed) in counts.items():
        print(f"{command:7s} {many:5d} tried {failed:4d} failed")
    many, failed = (sum(part) for part in zip(*counts.values(), strict=True))
    print(f"{len(MISTAKES)} kinds, {many} command lines tried, {failed} failed (seed {seed})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
