"""EASE, EDLAE and the process over the rows against dense formulas, and what dropout means."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import Graph
from mvgp.prioritise.baselines import EASE, EDLAE, RowGP
from tests import randomness
from tests.prioritise.baselines.problems import dense_links, random_graph, random_links

SHAPES = [(9, 14), (14, 9), (8, 8), (1, 5), (5, 1)]


def dense_edlae(x, regularisation, dropout):
    """X B with the (N, N) inverse, as in the paper."""
    gram = x.T @ x
    penalty = regularisation + dropout / (1 - dropout) * gram.diagonal()
    inverse = np.linalg.inv(gram + np.diag(penalty))
    weights = np.eye(x.shape[1]) - inverse / inverse.diagonal()
    np.fill_diagonal(weights, 0)
    return x @ weights


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    shape=st.sampled_from(SHAPES),
    regularisation=st.sampled_from([0.1, 1.0, 50.0]),
    dropout=st.sampled_from([0.0, 0.3, 0.9]),
)
def test_edlae_is_the_dense_inverse_on_either_side(seed, shape, regularisation, dropout):
    links = random_links(randomness.numpy_generator(seed), shape, 0.3, empty_row=3 if shape[0] > 3 else None)
    wanted = torch.from_numpy(dense_edlae(dense_links(links), regularisation, dropout))
    found = EDLAE(regularisation, dropout).fit(links).scores()
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)


def test_rows_of_zeros_change_nothing_but_the_side_that_is_inverted():
    """With many empty rows below, X^T X is the same and M > N: the (N, N) form stands beside the (M, M) form."""
    links = random_links(randomness.numpy_generator(1), (9, 14), 0.3)
    tall = mvgp.PositiveUnlabelled(links.rows, links.cols, shape=(20, 14))
    few, many = (EDLAE(2.0, 0.4).fit(data) for data in (links, tall))
    assert few.arrays["inverse"].shape == (9, 9)
    assert many.arrays["inverse"].shape == (14, 14)
    torch.testing.assert_close(few.scores(), many.scores()[:9], rtol=1e-10, atol=1e-12)
    assert many.scores()[9:].abs().max() == 0


def test_no_dropout_is_ease():
    links = random_links(randomness.numpy_generator(2), (9, 14), 0.3)
    assert torch.equal(EDLAE(3.0, 0.0).fit(links).scores(), EASE(3.0).fit(links).scores())


def test_edlae_minimises_the_expected_error_of_dropped_links():
    """All patterns of dropout at once: the weights of a column minimise the error averaged over every pattern."""
    links = random_links(randomness.numpy_generator(3), (4, 5), 0.5)
    x, dropout, regularisation, column = dense_links(links), 0.3, 0.7, 2
    others = np.delete(np.arange(5), column)
    patterns = np.array(np.meshgrid(*[[0.0, 1.0]] * 4)).reshape(4, -1).T  # (16, 4) which of the other columns are kept
    chance = (np.where(patterns == 1, 1 - dropout, dropout)).prod(1)
    gram, right = np.zeros((4, 4)), np.zeros(4)
    for keep, probability in zip(patterns, chance, strict=True):  # kept links are scaled up, so that their mean is x
        noisy = x[:, others] * keep / (1 - dropout)
        gram += probability * noisy.T @ noisy
        right += probability * noisy.T @ x[:, column]
    weights = np.linalg.solve(gram + regularisation * np.eye(4), right)
    found = EDLAE(regularisation, dropout).fit(links).scores()[:, column]
    np.testing.assert_allclose(found.numpy(), x[:, others] @ weights, atol=1e-10)


@pytest.mark.parametrize("dropout", [1.0, -0.1, float("nan"), "0.5", True])
def test_bad_dropout_is_told(dropout):
    with pytest.raises(InputError, match="dropout: expected a number of at least 0 and below 1, got"):
        EDLAE(dropout=dropout)


def test_bad_regularisation_is_told():
    with pytest.raises(InputError, match="regularisation: expected a positive finite number, got 0"):
        EDLAE(0)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    shape=st.sampled_from(SHAPES),
    regularisation=st.sampled_from([0.1, 1.0, 50.0]),
    dropout=st.sampled_from([0.0, 0.5, 0.9]),
    graph_weight=st.sampled_from([0.0, 0.2, 5.0]),
    col_exponent=st.sampled_from([0.0, 0.15, 1.0]),
)
def test_each_row_is_the_mean_given_all_others(seed, shape, regularisation, dropout, graph_weight, col_exponent):
    """A row at a time is left out, and predicted by the Gaussian process that knows the others alone."""
    rng = randomness.numpy_generator(seed)
    links, graph = random_links(rng, shape, 0.3, empty_row=3 if shape[0] > 3 else None), random_graph(rng, shape[0])
    x, weights = dense_links(links), graph.adjacency().toarray()
    counts, degrees = x.sum(0), weights.sum(1)
    columns = np.where(counts > 0, np.maximum(counts, 1) ** (-2 * col_exponent), 0.0)
    shared = (x * columns) @ x.T
    root = np.where(degrees > 0, 1 / np.sqrt(np.where(degrees > 0, degrees, 1)), 0.0)
    walk = np.linalg.inv(np.eye(shape[0]) - 0.6 * root[:, None] * weights * root)
    kernel = shared + graph_weight * 0.4 * walk
    noise = regularisation + dropout / (1 - dropout) * shared.diagonal()
    recipe = RowGP(graph, regularisation, dropout, graph_weight, 0.4, col_exponent)
    found = recipe.fit(links).scores()
    for row in range(shape[0]):
        others = np.delete(np.arange(shape[0]), row)
        inner = kernel[np.ix_(others, others)] + np.diag(noise[others])
        wanted = kernel[row, others] @ np.linalg.solve(inner, x[others]) if len(others) else np.zeros(shape[1])
        np.testing.assert_allclose(found[row].numpy(), wanted, rtol=1e-8, atol=1e-10)


def test_without_a_graph_a_process_over_the_rows_is_edlae_of_the_transpose():
    links = random_links(randomness.numpy_generator(4), (9, 14), 0.3)
    turned = mvgp.PositiveUnlabelled(links.cols, links.rows, shape=(14, 9))
    found = RowGP(Graph([], 9), 2.0, 0.4, col_exponent=0.0, graph_weight=0.0).fit(links).scores()
    torch.testing.assert_close(found, EDLAE(2.0, 0.4).fit(turned).scores().mT, rtol=1e-9, atol=1e-11)
