"""RP3beta and GF-CF against their definitions, dense and slow."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mvgp.errors import InputError
from mvgp.prioritise.baselines import GFCF, Popularity, RP3beta
from tests import randomness
from tests.prioritise.baselines.problems import dense_links, random_links

SHAPES = [(9, 14), (14, 9), (8, 8)]


def problem(seed, shape):
    links = random_links(randomness.numpy_generator(seed), shape, 0.3, empty_row=3)
    return links, dense_links(links)


def assert_close(ranker, wanted):
    torch.testing.assert_close(ranker.scores(), torch.from_numpy(wanted), rtol=1e-8, atol=1e-9)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    shape=st.sampled_from(SHAPES),
    alpha=st.sampled_from([0.0, 0.7, 1.0, 1.6]),
    beta=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_rp3beta_adds_up_paths_of_three_steps(seed, shape, alpha, beta):
    links, x = problem(seed, shape)
    of_row, of_col = x.sum(1), x.sum(0)
    wanted = np.zeros(shape)
    for m, j in np.argwhere(x):
        for k in np.flatnonzero(x[:, j]):
            for n in np.flatnonzero(x[k]):
                probabilities = np.array([1 / of_row[m], 1 / of_col[j], 1 / of_row[k]])
                wanted[m, n] += (probabilities**alpha).prod() / of_col[n] ** beta
    assert_close(RP3beta(alpha, beta).fit(links), wanted)


def test_a_plain_walk_keeps_its_probability():
    links, x = problem(0, (9, 14))
    sums = RP3beta(1.0, 0.0).fit(links).scores().sum(1)
    np.testing.assert_allclose(sums.numpy(), (x.sum(1) > 0).astype(float), atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000),
    shape=st.sampled_from(SHAPES),
    factors=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.3, 2.0]),
)
def test_gfcf_is_both_filters(seed, shape, factors, alpha):
    links, x = problem(seed, shape)
    root_row, root_col = np.sqrt(np.maximum(x.sum(1), 1e-300)), np.sqrt(np.maximum(x.sum(0), 1e-300))
    normalised = np.where(x > 0, x / root_row[:, None] / root_col, 0.0)
    values, right = np.linalg.svd(normalised)[1:]
    if values[factors - 1] - values[factors] < 1e-3:
        return  # the leading vectors are not unique, for us or the definition
    low_pass = right[:factors].T @ right[:factors]
    inverse_root = np.where(x.sum(0) > 0, 1 / root_col, 0.0)
    ideal = inverse_root[:, None] * low_pass * np.where(x.sum(0) > 0, root_col, 0.0)
    assert_close(GFCF(factors, alpha).fit(links), x @ (normalised.T @ normalised + alpha * ideal))


def test_the_leading_vector_alone_is_popularity():
    """Of a connected graph the leading singular vector is the root of the degrees: its filter ranks by popularity."""
    links = random_links(randomness.numpy_generator(5), (30, 20), 0.5)
    with_filter, without = (GFCF(1, alpha).fit(links).scores() for alpha in (1.0, 0.0))
    low_pass, counts = with_filter - without, Popularity().fit(links).scores()
    ratio = low_pass / counts  # (M, N) a number of its own for each row: the row's number of links over all links
    wanted = torch.from_numpy(dense_links(links).sum(1) / len(links))
    torch.testing.assert_close(ratio, wanted[:, None].expand(30, 20), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RP3beta(alpha=-1), "alpha: expected a finite number that is not negative, got -1"),
        (lambda: RP3beta(beta=float("inf")), "beta: expected a finite number that is not negative, got inf"),
        (lambda: GFCF(factors=0), "factors: expected a positive whole number, got 0"),
        (lambda: GFCF(alpha=float("nan")), "alpha: expected a finite number that is not negative, got nan"),
        (lambda: GFCF(seed=-1), "seed: expected a whole number of at least 0, got -1"),
        (lambda: GFCF(8).fit(problem(0, (8, 9))[0]), "factors: expected less than 8, the smaller side, got 8"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(InputError, match=message):
        call()
