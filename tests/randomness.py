"""Where every random number of the suite begins.

The suite must be green whatever it draws, so nothing in it seeds a generator by itself (``test_randomness.py`` sees to it):
all seeds come from here, and the environment variable ``MVGP_TEST_SEED`` (a whole number, 0 by default) moves all of them at
once. Code that runs in another process (notebooks, the command line as a subprocess) is left as it is.
"""

import os
import random

import hypothesis
import numpy as np
import torch

SHIFT = int(os.environ.get("MVGP_TEST_SEED", "0"))
STRIDE = 1_000_003  # far above the seeds in use, so that two shifts share no stream


def seed(number):
    """The seed ``number`` of this run, for what takes a whole number."""
    return int(number) + STRIDE * SHIFT


def generator(number):
    """A generator of torch."""
    return torch.Generator().manual_seed(seed(number))


def generator_of(value):
    """A generator of torch as the library makes it of a seed that it was given: no shift."""
    return torch.Generator().manual_seed(value)


def numpy_generator(number):
    return np.random.default_rng(seed(number))


def fixed_numpy_generator(number):
    """The same numbers in every run: for problems that are given to a conic solver.

    An interior-point solver is a good reference, as it has nothing in common with ours, but it may fail on an unlucky
    problem, and nobody can say how rarely. What is drawn elsewhere is held to bounds that are true for any draw.
    """
    return np.random.default_rng(number)


def python_generator(number):
    return random.Random(seed(number))


def seed_torch(number):
    """Seed the global generator of torch."""
    torch.manual_seed(seed(number))


def set_up_hypothesis():
    """Without a shift, the same examples in every run; with one, those of :func:`seed_examples`. Nothing is remembered."""
    plain = SHIFT == 0
    hypothesis.settings.register_profile("mvgp", deadline=None, derandomize=plain, database=None, print_blob=not plain)
    hypothesis.settings.load_profile("mvgp")


def seed_examples(test):
    """Make hypothesis draw the examples of a test function from the seed of this run."""
    if SHIFT and getattr(test, "is_hypothesis_test", False):
        hypothesis.seed(seed(0))(test)
