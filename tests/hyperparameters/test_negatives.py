import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import NegativeSets, with_negatives
from mvgp.hyperparameters.splits import draw_distinct
from tests import chance, randomness
from tests.hyperparameters.planted import cells


@st.composite
def problems(draw):
    """Links, and forbidden cells that may be links too."""
    m, n = draw(st.integers(1, 6)), draw(st.integers(2, 8))
    found = draw(st.lists(st.integers(0, m * n - 1), min_size=1, max_size=m * n, unique=True))
    forbidden = draw(st.lists(st.integers(0, m * n - 1), max_size=5, unique=True))
    pairs = [(torch.tensor(one).long() // n, torch.tensor(one).long() % n) for one in (found, forbidden)]
    return mvgp.PositiveUnlabelled(*pairs[0], (m, n), row_names=range(m), col_names=range(n)), pairs[1]


@given(problems(), st.sampled_from([0.5, 1.0, 1.7, 3.0]), st.booleans(), st.integers(0, 5))
def test_exact_counts_and_never_a_positive(problem, ratio, within_rows, seed):
    links, forbidden = problem
    shape = links.shape
    barred = set((forbidden[0] * shape[1] + forbidden[1]).tolist())
    free = np.ones(shape, dtype=bool)
    free[links.rows, links.cols] = False
    free[forbidden] = False
    positives = np.bincount(links.rows.numpy(), minlength=shape[0])
    if within_rows:
        wanted = np.floor(ratio * positives + 0.5).astype(int)
        enough = (wanted <= free.sum(1)).all()
    else:
        wanted = np.array([int(ratio * len(links) + 0.5)])
        enough = wanted[0] <= free.sum()
    options = {"seed": seed, "within_rows": within_rows, "forbidden": forbidden}
    if not enough or wanted.sum() == 0:
        with pytest.raises(InputError, match="ratio"):
            with_negatives(links, ratio, **options)
        return
    found = with_negatives(links, ratio, **options)
    assert (found.shape, found.row_names, found.col_names) == (shape, links.row_names, links.col_names)
    kept, drawn = (set((found.rows * shape[1] + found.cols)[found.values == label].tolist()) for label in (1.0, -1.0))
    assert kept == cells(links)
    assert len(found) == len(links) + wanted.sum() == len(kept) + len(drawn)
    assert not drawn & (kept | barred)
    if within_rows:
        rows = found.rows[found.values == -1].numpy()
        assert (np.bincount(rows, minlength=shape[0]) == wanted).all()
    again = with_negatives((links.rows, links.cols, shape), ratio, **options)  # the same draw from plain vectors
    assert cells(again) == kept | drawn
    assert again.row_names is None


@pytest.mark.slow
@pytest.mark.parametrize("within_rows", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_every_free_cell_is_equally_likely(within_rows, ratio):
    links = mvgp.PositiveUnlabelled([0, 0, 2], [1, 4, 0], (3, 6))
    count, repeats = np.zeros((3, 6)), 1000
    for seed in range(repeats):
        found = with_negatives(links, ratio, seed=randomness.seed(seed), within_rows=within_rows)
        chosen = found.values == -1
        count[found.rows[chosen], found.cols[chosen]] += 1
    free = np.ones((3, 6), dtype=bool)
    free[links.rows, links.cols] = False
    assert (count[~free] == 0).all()
    if within_rows:
        expected = np.array([[2 * ratio / 4], [0], [ratio / 5]]) * np.ones((3, 6))
    else:
        expected = np.full((3, 6), 3 * ratio / 15)
    # a count is binomial, exactly; over all cells, either tail is met with a chance of at most CHANCE.
    # A cell that is never drawn, or twice as often as another one, is far outside.
    spread = stats.binom(repeats, expected[free])
    tails = np.minimum(spread.cdf(count[free]), spread.sf(count[free] - 1))
    assert tails.min() > chance.CHANCE / (2 * free.sum())


def test_large_matrices_take_little():
    rng = randomness.numpy_generator(0)
    key = np.unique(rng.integers(0, 5000 * 13000, 200_000))
    links = mvgp.PositiveUnlabelled(key // 13000, key % 13000, (5000, 13000))
    for within_rows in (False, True):
        found = with_negatives(links, within_rows=within_rows)
        assert len(found) == 2 * len(links)
        assert (found.values == 1).sum() == len(links)


def test_draws_from_groups_of_any_size():
    sizes, counts = np.array([5, 1, 8, 3, 0]), np.array([5, 0, 7, 1, 0])
    group, number = draw_distinct(randomness.numpy_generator(0), sizes, counts)
    assert (np.bincount(group, minlength=5) == counts).all()
    assert (number < sizes[group]).all()
    assert len(set(zip(group.tolist(), number.tolist(), strict=True))) == counts.sum()


def test_sets_differ_and_are_reproducible():
    links = mvgp.PositiveUnlabelled([0, 1, 2], [0, 1, 2], (10, 20))
    first, again, other = (
        [cells(one) for one in NegativeSets(3, ratio=2.0).draw(links, seed, stream)]
        for seed, stream in ((0, 1), (0, 1), (0, 2))
    )
    assert first == again
    assert len({frozenset(one) for one in first + other}) == 6


LINKS = mvgp.PositiveUnlabelled([0, 0, 1], [0, 1, 1], (2, 3))
BAD = [
    (lambda: with_negatives(LINKS, 1.5), "asks for 5 negatives in the matrix, which has 3 free cells"),
    (lambda: with_negatives(LINKS, within_rows=True), "asks for 2 negatives in row 0, which has 1 free cells"),
    (lambda: with_negatives(LINKS, forbidden=([1], [0])), "which has 2 free cells"),
    (lambda: with_negatives(LINKS, 0.1), "no negative at all"),
    (lambda: with_negatives(LINKS, -1.0), "ratio: expected a positive finite number"),
    (lambda: with_negatives(LINKS, seed=0.5), "seed"),
    (lambda: with_negatives(([0], [0])), r"expected PositiveUnlabelled or \(rows, cols, shape\)"),
    (lambda: with_negatives(([], [], (2, 2))), "at least one positive"),
    (lambda: with_negatives(([0, 0], [1, 1], (2, 2))), "duplicate pair"),
    (lambda: with_negatives(LINKS, forbidden=mvgp.PositiveUnlabelled([0], [0], (3, 3))), "forbidden: expected shape"),
    (lambda: NegativeSets(0), "number of sets: expected a positive whole number, got 0"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
