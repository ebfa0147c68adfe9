"""Each baseline against the definition, dense and slow."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mvgp
from mvgp.prioritise.baselines import EASE, Katz, NeighbourVoting, Popularity, Propagation, PureSVD
from tests import randomness
from tests.prioritise.baselines.problems import dense_links, random_graph, random_links

SHAPES = [(9, 14), (14, 9), (8, 8)]


def problem(seed, shape):
    rng = randomness.numpy_generator(seed)
    graphs = random_graph(rng, shape[0], isolated=2), random_graph(rng, shape[1], isolated=1)
    return random_links(rng, shape, 0.3, empty_row=3), graphs


def normalised(matrix):
    """D^-1/2 A E^-1/2 by loops."""
    rows, cols = matrix.sum(1), matrix.sum(0)
    found = np.zeros_like(matrix)
    for i, j in zip(*matrix.nonzero(), strict=True):
        found[i, j] = matrix[i, j] / np.sqrt(rows[i] * cols[j])
    return found


def stochastic(matrix):
    """D^-1 A by loops."""
    return np.stack([row / row.sum() if row.any() else row for row in matrix])


def assert_close(ranker, wanted):
    torch.testing.assert_close(ranker.scores(), torch.from_numpy(wanted), rtol=1e-9, atol=1e-10)


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=st.integers(0, 1000), shape=st.sampled_from(SHAPES), regularisation=st.sampled_from([0.1, 1.0, 50.0]))
def test_ease_is_the_textbook_inverse(seed, shape, regularisation):
    links, _ = problem(seed, shape)
    x = dense_links(links)
    inverse = np.linalg.inv(x.T @ x + regularisation * np.eye(shape[1]))
    weights = -inverse / inverse.diagonal()
    np.fill_diagonal(weights, 0)
    assert_close(EASE(regularisation).fit(links), x @ weights)


def test_ease_is_a_ridge_regression_of_each_column_on_the_others():
    links, _ = problem(0, (9, 14))
    x, column = dense_links(links), 4
    others = np.delete(np.arange(14), column)
    weights = np.linalg.solve(x[:, others].T @ x[:, others] + 2.0 * np.eye(13), x[:, others].T @ x[:, column])
    found = EASE(2.0).fit(links).scores()[:, column]
    np.testing.assert_allclose(found.numpy(), x[:, others] @ weights, atol=1e-10)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    shape=st.sampled_from(SHAPES),
    normalisation=st.sampled_from(["none", "symmetric", "walk", "blocks"]),
    length=st.integers(1, 5),
    weight=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_katz_is_a_sum_of_matrix_powers(seed, shape, normalisation, length, weight):
    links, (row_graph, col_graph) = problem(seed, shape)
    x, rows, cols = dense_links(links), row_graph.adjacency().toarray(), col_graph.adjacency().toarray()
    blocks = [rows, x, x.T, cols]
    if normalisation == "blocks":
        blocks = [stochastic(block) for block in blocks]
    joint = np.block([[weight * blocks[0], blocks[1]], [blocks[2], 0.7 * blocks[3]]])
    if normalisation != "none":
        joint = {"symmetric": normalised, "walk": stochastic, "blocks": np.array}[normalisation](joint)
    total = sum(0.2**power * np.linalg.matrix_power(joint, power) for power in range(1, length + 1))
    recipe = Katz(row_graph, col_graph, 0.2, length, normalisation, weight, 0.7)
    assert_close(recipe.fit(links), total[: shape[0], shape[0] :])


def test_katz_comes_near_its_limit():
    links, graphs = problem(1, (9, 14))
    short = Katz(*graphs, beta=0.5, max_length=60, normalisation="walk").fit(links)
    joint = short.arrays["joint"].toarray()
    limit = np.linalg.inv(np.eye(23) - 0.5 * joint)[:9, 9:]
    assert_close(short, limit)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    shape=st.sampled_from(SHAPES),
    restart=st.sampled_from([0.1, 0.5, 1.0]),
    iterations=st.integers(1, 7),
    normalise=st.booleans(),
)
def test_propagation_is_its_iteration(seed, shape, restart, iterations, normalise):
    links, (row_graph, col_graph) = problem(seed, shape)
    x = normalised(dense_links(links)) if normalise else dense_links(links)
    rows, cols = (normalised(graph.adjacency().toarray()) for graph in (row_graph, col_graph))
    state = x
    for _ in range(iterations):
        state = (1 - restart) / 2 * (rows @ state + state @ cols) + restart * x
    assert_close(Propagation(row_graph, col_graph, restart, iterations, normalise).fit(links), state)


@pytest.mark.parametrize("iterations", [1, 2, 9])
def test_propagation_loses_nothing(iterations):
    """On regular graphs a step keeps the sum of the state."""
    found = Propagation(*_rings(6, 7), restart=0.4, iterations=iterations).coefficients()
    assert found.sum() == pytest.approx(1.0)
    links = mvgp.PositiveUnlabelled([0, 3], [1, 5], shape=(6, 7))
    assert float(Propagation(*_rings(6, 7), 0.4, iterations).fit(links).scores().sum()) == pytest.approx(2.0)


def _rings(*sizes):
    return [mvgp.kernels.Graph([(i, (i + 1) % size) for i in range(size)], size) for size in sizes]


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), hops=st.integers(1, 4), weight=st.sampled_from([0.0, 0.25]))
def test_neighbours_vote(seed, hops, weight):
    links, (row_graph, _) = problem(seed, (9, 14))
    x, walk = dense_links(links), row_graph.adjacency().toarray()
    walk /= np.maximum(walk.sum(1, keepdims=True), 1e-300)
    votes = sum(0.5 ** (hop - 1) * np.linalg.matrix_power(walk, hop) @ x for hop in range(1, hops + 1))
    recipe = NeighbourVoting(row_graph, hops, popularity_weight=weight)
    assert_close(recipe.fit(links), votes + weight * x.sum(0) / x.sum(0).max())


def test_popularity_breaks_ties_of_votes_and_nothing_else():
    links, (row_graph, _) = problem(4, (9, 14))
    plain, tied = (NeighbourVoting(row_graph, popularity_weight=w).fit(links).scores() for w in (0.0, 1e-3))
    counts = Popularity().fit(links).scores([0])[0]
    for before, after in zip(plain, tied, strict=True):
        order = after.argsort(descending=True)
        assert (before[order].diff() <= 1e-3).all()
        same = before[:, None] == before[None, :]
        assert ((after[:, None] > after[None, :]) == (counts[:, None] > counts[None, :]))[same].all()


def test_popularity_counts():
    links, _ = problem(2, (9, 14))
    assert_close(Popularity().fit(links), np.tile(dense_links(links).sum(0), (9, 1)))


@pytest.mark.parametrize("shape", SHAPES)
def test_pure_svd_is_the_truncated_decomposition(shape):
    links, _ = problem(5, shape)
    left, values, right = np.linalg.svd(dense_links(links))
    assert_close(PureSVD(3).fit(links), left[:, :3] * values[:3] @ right[:3])
