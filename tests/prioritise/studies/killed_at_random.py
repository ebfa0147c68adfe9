"""Run by test_resume in a process of its own: a study killed at random moments, again and again.

Children are forked from here, so that torch is imported once. Prints the number of kills, of studies that came to
their end, and how many units each kill found; tables that are not alike are an error.

A kill comes at a random moment after a number of new units, so that a slow machine, where one unit takes longer than
any wait of ours, still sees kills at many places.
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from mvgp.prioritise.studies import run_study
from tests import randomness
from tests.prioritise.studies.planted import planted_links, small_study, tables_of

NEW_UNITS = (0, 0, 0, 1, 1, 1, 2, 2, 3)  # one kill each, in random order, after one at the very beginning


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


def saved(directory):
    """How many units are finished."""
    return len(list(directory.glob("units/*/*.unit")))


def killed(pid, place, units, seconds):
    """Kill the child so many seconds after it has saved so many units; False when it came to its end before."""
    goal, since = saved(place) + units, None
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0
            return False
        if since is None and saved(place) >= goal:
            since = time.monotonic()
        if since is not None and time.monotonic() - since >= seconds:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return True
        time.sleep(0.002)


def main(folder):
    began = time.monotonic()
    assert os.waitpid(child(folder / "whole"), 0)[1] == 0
    seconds = time.monotonic() - began
    whole, every = tables_of(folder / "whole"), saved(folder / "whole")
    rng, ends, moments = randomness.python_generator(0), 0, []
    left = [*rng.sample(NEW_UNITS, len(NEW_UNITS)), 0]
    place = folder / "killed"
    while left or ends == 0:
        pid = child(place)
        if left:
            wait = rng.uniform(0, 3 * seconds / every) if moments else 0.0
            ended = not killed(pid, place, left[-1], wait)
        else:
            ended = os.waitpid(pid, 0)[1] == 0
            assert ended
        if not ended:
            left.pop()
            moments.append(saved(place))
            continue
        assert tables_of(place) == whole
        assert not list(place.rglob("*.tmp"))
        ends += 1
        shutil.rmtree(place)
    kills = len(moments)
    print(json.dumps({"kills": kills, "ends": ends, "moments": moments, "seconds": seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
