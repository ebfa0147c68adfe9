import numpy as np
import pytest
from scipy import stats

from mvgp import metrics
from mvgp.errors import InputError
from tests import randomness
from tests.chance import share_limit


def rankings(seed, shift, m=40, n=50):
    """The same held-out positives; scores that know about them by ``shift``."""
    positives = np.arange(m), randomness.numpy_generator(0).integers(n, size=m)
    kept = positives[0][3:], positives[1][3:]  # three tasks without any
    scores = randomness.numpy_generator(seed).normal(size=(m, n))
    scores[positives] += shift
    return metrics.ranking_scores(scores, kept, k=20)


def test_equals_scipy():
    a, b = rankings(1, 8.0), rankings(2, 0.0)  # 8 standard deviations above the others: nearly always the first
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
    """Each end is a quantile of the resamples: their share below it is off by no more than share_limit. The mean of 500
    resampled numbers is normal but for a skewness of at most 0.02, which moves a quantile by 0.01 of an error.
    """
    difference, options = randomness.numpy_generator(0).normal(0.1, 1.0, 500), {"resamples": 40_000}
    found = metrics.compare(difference, np.zeros(500), "difference", **options)
    error = difference.std(ddof=0) / 500**0.5
    limit = share_limit(40_000, entries=2, share=0.025)  # 0.0053
    lowest, highest = stats.norm.ppf([0.025 - limit, 0.025 + limit])  # -2.06 and -1.88
    low, high = (np.array(found.interval) - difference.mean()) / error
    assert lowest - 0.02 < low < highest + 0.02
    assert lowest - 0.02 < -high < highest + 0.02
    assert found == metrics.compare(difference, np.zeros(500), "difference", **options)


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
