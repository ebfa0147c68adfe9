"""Run by test_resume in a process of its own: a study killed at random moments, again and again.

Children are forked from here, so that torch is imported once. Prints the number of kills, of studies that came to
their end, and whether all tables are alike.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from mvgp.studies import run_study

from .planted import planted_links, small_study, tables_of

KILLS = 10


def child(directory):
    """Start the study in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            run_study(planted_links(), small_study(), directory, progress=False)
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid


def main(folder):
    began = time.monotonic()
    pid = child(folder / "whole")
    assert os.waitpid(pid, 0)[1] == 0
    whole, seconds = tables_of(folder / "whole"), time.monotonic() - began
    rng, kills, ends, moments = random.Random(int.from_bytes(os.urandom(4))), 0, 0, []
    place = folder / "killed"
    while kills < KILLS or ends == 0:
        pid, wait = child(place), rng.uniform(0.01, 0.4) * seconds
        deadline = time.monotonic() + (wait if kills < KILLS else 1000)
        status = None
        while time.monotonic() < deadline:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            status = None
            time.sleep(0.005)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            kills += 1
            moments.append(len(list(place.glob("units/*/*.unit"))))
            continue
        assert status == 0
        assert tables_of(place) == whole
        assert not list(place.rglob("*.tmp"))
        ends += 1
        shutil.rmtree(place)
    print(json.dumps({"kills": kills, "ends": ends, "moments": moments, "seconds": seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
