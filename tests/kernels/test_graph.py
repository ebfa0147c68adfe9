import pickle

import numpy as np
import pytest
import torch
from scipy import sparse

from mvgp.errors import InputError, SizeError
from mvgp.kernels import Graph
from tests import randomness
from tests.oracles import dense_laplacian, random_edges


@pytest.mark.parametrize("seed", range(5))
def test_laplacian_follows_the_definition(seed):
    rng = randomness.numpy_generator(seed)
    edges = random_edges(rng, 12, 25)
    weights = rng.random(len(edges))
    weights[1] = 0
    for w in (None, weights):
        found = Graph(edges, 12, w)
        truth = dense_laplacian(edges, 12, w)
        torch.testing.assert_close(torch.from_numpy(found.laplacian().toarray()), truth)
        s = found.shifted_laplacian(torch.float64, torch.device("cpu"))
        torch.testing.assert_close(s.tensor.to_dense(), truth - torch.eye(12).double())
        values, vectors = found.eigenpairs(torch.float64, torch.device("cpu"))
        torch.testing.assert_close(vectors @ torch.diag(values) @ vectors.T, truth, atol=1e-12, rtol=0)
        assert values.min() >= 0
        assert values.max() <= 2


def test_duplicates_merge_loops_drop_isolated_nodes_stay():
    found = Graph([(0, 1), (1, 0), (0, 1), (2, 2), (1, 3)], 5, [1.0, 2.0, 0.5, 9.0, 1.0])
    assert found.num_links == 2
    assert found.num_isolated == 2
    assert found.adjacency()[0, 1] == 3.5
    assert found.adjacency()[2, 2] == 0
    assert np.abs(found.laplacian().toarray()[[2, 4]]).max() == 0
    assert repr(found) == "Graph(5 nodes, 2 links, 2 isolated)"
    assert Graph([], 3).num_isolated == 3
    assert Graph(torch.tensor([[0, 1]]), 2, torch.tensor([0.5])).num_links == 1


def test_adjacency_and_edges_agree():
    rng = randomness.numpy_generator(0)
    edges = random_edges(rng, 9, 15)
    first = Graph(edges, 9)
    second = Graph.from_adjacency(first.adjacency())
    third = pickle.loads(pickle.dumps(first))
    for other in (second, third):
        assert abs(first.laplacian() - other.laplacian()).max() < 1e-15
    assert Graph.from_adjacency(np.diag([5.0, 1.0])).num_links == 0


BAD = [
    (lambda: Graph([(0, 5)], 3), r"edges\[0\].*\(0, 5\)"),
    (lambda: Graph([(0, 1), (-1, 0)], 3), r"edges\[1\]"),
    (lambda: Graph([(0.5, 1)], 3), r"edges\[0\]"),
    (lambda: Graph([(float("nan"), 1)], 3), r"edges\[0\]"),
    (lambda: Graph([0, 1], 3), r"shape \(E, 2\)"),
    (lambda: Graph([("a", "b")], 3), "node numbers"),
    (lambda: Graph([(0, 1)], 0), "num_nodes"),
    (lambda: Graph([(0, 1)], 2.5), "num_nodes"),
    (lambda: Graph([(0, 1)], 2, [-1.0]), r"weights\[0\].*-1"),
    (lambda: Graph([(0, 1), (1, 2)], 3, [1.0, float("inf")]), r"weights\[1\].*inf"),
    (lambda: Graph([(0, 1)], 2, [1.0, 2.0]), "expected 1 numbers"),
    (lambda: Graph.from_adjacency(np.ones((2, 3))), "square"),
    (lambda: Graph.from_adjacency(np.array([[0, -1.0], [-1.0, 0]])), r"adjacency\[0, 1\]"),
    (lambda: Graph.from_adjacency(np.array([[0, np.nan], [np.nan, 0]])), r"adjacency\[0, 1\]"),
    (lambda: Graph.from_adjacency(sparse.csr_array([[0, 1.0], [0, 0]])), "symmetric"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_graphs_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_eigenpairs_of_a_large_graph_are_refused():
    with pytest.raises(SizeError, match="4 nodes"):
        Graph([(0, 1)], 4).eigenpairs(torch.float64, torch.device("cpu"), max_nodes=3)
