"""How far random averages may be off before it is a bug.

Every limit is broken by a right program with a chance of at most ``CHANCE``, whatever the seed; the whole suite, with
a few dozen of them, stays below one false alarm in ten million runs. ``entries`` says how many numbers are compared at
once (union bound). Where an exact twin is possible, it is better than any of these.
"""

import math

from scipy import optimize, special

CHANCE = 1e-9


def mean_limit(count, entries=1):
    """Of the mean of ``count`` normal numbers, in standard deviations of one of them."""
    return float(special.ndtri(1 - CHANCE / (2 * entries))) / count**0.5


def variance_limit(count, entries=1):
    r"""Of the variance of ``count`` normal numbers, relative; and of a covariance, relative to both standard deviations.

    A sum of n squares is chi-squared: the chance that it is off by more than a share t is below
    :math:`2 \exp(-\frac n2 (t - \log(1 + t)))` (Chernoff). A covariance is a quarter of the difference of the
    variances of the sum and the difference of both, scaled to variance 1, hence as accurate as they are.
    """
    wanted = math.log(4 * entries / CHANCE)
    return float(optimize.brentq(lambda t: (count - 1) / 2 * (t - math.log1p(t)) - wanted, 1e-9, 1e9))


def share_limit(count, entries=1, share=0.5):
    r"""Of the share of ``count`` independent events of probability ``share``.

    Bernstein: the chance to be off by more than t is below :math:`2 \exp(-n t^2 / (2 p (1 - p) + 2 t / 3))`.
    """
    wanted = math.log(2 * entries / CHANCE) / count
    return wanted / 3 + math.sqrt((wanted / 3) ** 2 + 2 * share * (1 - share) * wanted)
