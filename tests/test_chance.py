"""The limits for random averages hold against exact distributions, and are not much wider than they must be."""

import pytest
from scipy import stats

from tests.chance import CHANCE, mean_limit, share_limit, variance_limit


@pytest.mark.parametrize("entries", [1, 400])
@pytest.mark.parametrize("count", [100, 4000, 100_000])
def test_limits_are_those_of_the_exact_distributions(count, entries):
    each = CHANCE / entries
    assert 2 * stats.norm.sf(mean_limit(count, entries) * count**0.5) == pytest.approx(each, rel=1e-6)
    limit, degrees = variance_limit(count, entries), count - 1
    outside = stats.chi2.sf(degrees * (1 + limit), degrees) + stats.chi2.cdf(degrees * max(1 - limit, 0), degrees)
    assert outside <= each / 2  # twice for a covariance
    assert stats.chi2.sf(degrees * (1 + 0.75 * limit), degrees) > each
    for share in (0.02, 0.5, 0.9):
        limit, binomial = share_limit(count, entries, share), stats.binom(count, share)
        outside = binomial.sf(count * (share + limit)) + binomial.cdf(count * (share - limit))
        assert outside <= each
        assert binomial.sf(count * (share + 0.6 * limit)) > each or share + 0.6 * limit >= 1
