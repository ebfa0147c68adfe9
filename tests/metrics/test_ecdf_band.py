"""Uniformity: the band of the ECDF has its level exactly, and the p-value is one."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from mvgp.errors import InputError
from mvgp.metrics import uniformity
from mvgp.metrics.ecdf_band import _band, _inside, _limits, _tails
from tests import chance, randomness


def all_counts(size, bins):
    """Every way to put ``size`` values into ``bins``, and its probability."""
    for counts in itertools.product(range(size + 1), repeat=bins):
        if sum(counts) == size:
            yield np.array(counts), stats.multinomial.pmf(counts, size, [1 / bins] * bins)


def values_of(counts):
    return torch.from_numpy(np.repeat((np.arange(len(counts)) + 0.5) / len(counts), counts))


@pytest.mark.parametrize(("size", "bins"), [(7, 3), (4, 5), (12, 2)])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_level_and_p_value_beside_an_enumeration(size, bins, level):
    """Of all outcomes: the share inside, and the share with a tail probability that is no larger."""
    cases = list(all_counts(size, bins))
    edges = np.arange(1, bins) / bins
    smallest = np.array([_tails(counts.cumsum()[:-1], size, edges).min() for counts, _ in cases])
    chances = np.array([probability for _, probability in cases])
    found = [uniformity(values_of(counts), bins, level) for counts, _ in cases]
    inside = np.array([one.inside for one in found])
    assert chances[inside].sum() >= level - 1e-9
    thresholds = [t for t in np.unique(smallest) if chances[smallest >= t].sum() >= level - 1e-9]
    np.testing.assert_array_equal(inside, smallest >= max(thresholds))  # no narrower band has the level
    for one, own in zip(found, smallest, strict=True):
        expected = chances[smallest <= own * (1 + 1e-12)].sum()
        assert one.p_value == pytest.approx(expected, abs=1e-9)


def test_the_recursion_is_a_probability():
    edges = np.arange(1, 100) / 100
    assert _inside(1000, edges, 1e-300) == pytest.approx(1.0, abs=1e-9)
    low, high = _limits(1000, edges, 0.05)
    np.testing.assert_array_equal(low, stats.binom.ppf(0.025, 1000, edges))
    assert (high >= low).all()
    low, high = _band(1000, 100, 0.95)
    assert (low < 1000 * edges).all()
    assert (high > 1000 * edges).all()


def test_uniform_numbers_have_p_values_that_keep_their_word():
    rng, runs = randomness.numpy_generator(0), 200
    p = np.array([uniformity(rng.random(60), 20).p_value for _ in range(runs)])
    for level in (0.05, 0.2, 0.5):  # a p-value of counts is at most uniform
        assert (p <= level).mean() <= level + chance.share_limit(runs, 3, level)


def test_a_curve_that_leaves_the_band_is_seen():
    even = (torch.arange(1000) + 0.5) / 1000
    right, wrong = uniformity(even), uniformity(even.square())
    assert right.inside
    assert right.p_value > 0.999
    assert not wrong.inside
    assert wrong.p_value < 1e-12
    assert wrong.deviation == pytest.approx(0.25, abs=1e-3)
    assert wrong.num_values == 1000
    ends = uniformity(torch.tensor([0.0, 1.0]), 2)
    assert ends.ecdf.tolist() == [0.5]


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([], {}, "values: expected at least one"),
        ([0.5, 1.5], {}, "values"),
        ([0.5, float("nan")], {}, "values"),
        ([0.5], {"bins": 1}, "bins"),
        ([0.5], {"level": 1.0}, "level"),
    ],
)
def test_what_is_no_probability_is_refused(values, options, message):
    with pytest.raises(InputError, match=message):
        uniformity(values, **options)
