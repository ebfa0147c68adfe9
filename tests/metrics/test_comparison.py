import numpy as np
import pytest
from scipy import stats

from mvgp import metrics
from mvgp.errors import InputError

from .. import randomness


def rankings(seed, shift, m=40, n=50):
    """The same held-out positives; scores that know about them by ``shift``."""
    positives = np.arange(m), randomness.numpy_generator(0).integers(n, size=m)
    kept = positives[0][3:], positives[1][3:]  # three tasks without any
    scores = randomness.numpy_generator(seed).normal(size=(m, n))
    scores[positives] += shift
    return metrics.ranking_scores(scores, kept, k=20)


def test_equals_scipy():
    a, b = rankings(1, 2.0), rankings(2, 0.0)
    found = metrics.compare(a, b, "MAP@20")
    left, right = (x.average_precision[3:, -1].numpy() for x in (a, b))
    assert found.num_tasks == 37
    assert found.difference == pytest.approx(float(np.mean(left - right)))
    assert found.mean_a - found.mean_b == pytest.approx(found.difference)
    assert found.t_pvalue == pytest.approx(float(stats.ttest_rel(left, right).pvalue))
    assert found.wilcoxon_pvalue == pytest.approx(float(stats.wilcoxon(left, right).pvalue))
    assert found.wins == (left > right).sum()
    assert found.losses == (left < right).sum()
    assert found.wins + found.losses + found.ties == 37
    low, high = found.interval
    assert 0 < low < found.difference < high
    assert "MAP@20" in str(found)


def test_the_bootstrap_interval_is_that_of_the_normal_approximation():
    difference = randomness.numpy_generator(0).normal(0.1, 1.0, 2000)
    found = metrics.compare(difference, np.zeros(2000), "difference", resamples=4000)
    error = difference.std(ddof=1) / 2000**0.5
    expected = difference.mean() + np.array([-1.96, 1.96]) * error
    np.testing.assert_allclose(found.interval, expected, atol=0.15 * error)
    assert found == metrics.compare(difference, np.zeros(2000), "difference", resamples=4000)


def test_equal_and_shifted_rankings():
    a = rankings(1, 1.0)
    same = metrics.compare(a, a, "AUC")
    assert (same.t_pvalue, same.wilcoxon_pvalue, same.interval, same.ties) == (1.0, 1.0, (0.0, 0.0), 37)
    shifted = metrics.compare(np.arange(10.0) + 1, np.arange(10.0), "x")
    assert shifted.t_pvalue == 0.0
    assert shifted.interval == (1.0, 1.0)
    assert shifted.wilcoxon_pvalue < 0.01


def test_bad_input():
    a = rankings(1, 1.0)
    other = metrics.ranking_scores(randomness.numpy_generator(0).normal(size=(40, 50)), ([0, 1], [1, 1]), k=20)
    for left, right, message in [
        (a, other, "same tasks"),
        (a, [0.1, 0.2], "two RankingScores or two vectors"),
        ([0.1, 0.2], [0.1], "got 2 and 1"),
        ([0.1, np.nan, 0.3], [0.1, 0.2, 0.3], "NaN in the same tasks.*at 1"),
        ([0.1, np.nan], [0.1, np.nan], "at least two tasks"),
        ([[0.1]], [[0.1]], "a: expected a vector"),
    ]:
        with pytest.raises(InputError, match=message):
            metrics.compare(left, right, "AUC")
    for options, message in [({"confidence": 1.0}, "confidence"), ({"resamples": 0}, "resamples")]:
        with pytest.raises(InputError, match=message):
            metrics.compare(a, a, "AUC", **options)
