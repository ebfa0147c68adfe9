"""Graphs of nearest neighbours, and unions, beside their dense definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from mvgp.errors import InputError
from mvgp.kernels import Graph
from mvgp.prioritise.tables import neighbour_graph, union_graph
from tests import randomness


def dense_neighbours(vectors, count):
    """Each chooses its nearest, of equal ones the first; a link where one has chosen the other."""
    length = np.linalg.norm(vectors, axis=1)
    unit = vectors / np.where(length > 0, length, 1.0)[:, None]
    similar = (unit @ unit.T).round(6)
    np.fill_diagonal(similar, 0)
    chosen = np.zeros_like(similar)
    for i, row in enumerate(similar):
        for j in sorted(range(len(row)), key=lambda j, row=row: (-row[j], j))[:count]:
            chosen[i, j] = max(row[j], 0)
    return np.maximum(chosen, chosen.T)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 12),
    dimension=st.integers(1, 5),
    count=st.integers(1, 5),
    block=st.integers(1, 6),
)
def test_neighbours_are_those_of_the_dense_definition(seed, size, dimension, count, block):
    vectors = randomness.numpy_generator(seed).integers(-2, 3, (size, dimension)).astype(float)  # with ties and zeros
    expected = dense_neighbours(vectors, count)
    for given_vectors in (vectors, sparse.csr_array(vectors)):
        found = neighbour_graph(given_vectors, count, block=block).adjacency().toarray()
        assert np.allclose(found, expected, atol=2e-6)


def test_blocks_do_not_change_the_graph():
    vectors = randomness.numpy_generator(1).standard_normal((90, 7))
    whole, parts = neighbour_graph(vectors), neighbour_graph(vectors, block=13)
    assert (whole.adjacency() != parts.adjacency()).nnz == 0
    assert whole.num_isolated == 0


def test_neither_huge_nor_tiny_vectors_change_their_angles():
    vectors = randomness.numpy_generator(2).standard_normal((20, 4))
    scale = np.array([1e-300, 1.0, 1e300, 1e-170])[np.arange(20) % 4][:, None]
    plain, scaled = (neighbour_graph(given, 3).adjacency().toarray() for given in (vectors, vectors * scale))
    assert np.allclose(plain, scaled, atol=2e-6)


@pytest.mark.parametrize(
    ("vectors", "options", "expected"),
    [
        ([1.0, 2.0], {}, r"vectors: expected a matrix of shape \(N, D\)"),
        (np.zeros((0, 3)), {}, "vectors: expected a matrix"),
        (sparse.csr_array((0, 3)), {}, "vectors: expected a matrix"),
        (sparse.csr_array([[np.inf]]), {}, "vectors: stored numbers"),
        ("some text", {}, "vectors: expected real numbers"),
        ([[1.0], [np.nan]], {}, r"vectors\[1, 0\]: expected a finite number"),
        ([[1.0]], {"neighbours": 0}, "neighbours: expected a positive whole number"),
        ([[1.0]], {"block": 1.5}, "block: expected a positive whole number"),
    ],
)
def test_bad_vectors(vectors, options, expected):
    with pytest.raises(InputError, match=expected):
        neighbour_graph(vectors, **options)


def test_a_union_adds_graphs_of_mean_degree_one():
    rng = randomness.numpy_generator(3)
    graphs, expected = [], np.zeros((9, 9))
    for scale in (1.0, 1e3, 1e-4):
        weights = np.triu(rng.random((9, 9)) * (rng.random((9, 9)) < 0.4), 1) * scale
        weights[:, 8] = 0.0  # the last node has no link
        weights[0, 1] = scale
        weights = weights + weights.T
        graphs.append(Graph.from_adjacency(weights))
        degree = weights.sum(1)
        expected += weights / degree[degree > 0].mean()
    union = union_graph([*graphs, Graph([], 9)])
    assert np.allclose(union.adjacency().toarray(), expected)
    assert union.num_isolated >= 1


def test_a_union_of_one_graph_is_that_graph():
    graph = Graph([(0, 1)], 3, [5.0])
    assert union_graph([graph]) is graph
    assert union_graph([Graph([], 3), Graph([], 3)]).num_links == 0


@pytest.mark.parametrize(
    ("graphs", "expected"),
    [
        ([], "graphs: expected at least one"),
        ([Graph([], 2), Graph([], 3)], r"graphs of \[2, 3\] nodes"),
        (7, "graphs: expected graphs, got 7"),
        ([None], r"graphs\[0\]: expected mvgp.kernels.Graph"),
    ],
)
def test_bad_unions(graphs, expected):
    with pytest.raises(InputError, match=expected):
        union_graph(graphs)
