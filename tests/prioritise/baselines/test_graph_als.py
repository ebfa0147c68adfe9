"""Alternating least squares on whole lists with both graphs, against its definition."""

import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import Graph
from mvgp.prioritise.baselines import GraphALS
from mvgp.prioritise.baselines.factors import leading
from tests import randomness
from tests.prioritise.baselines.problems import dense_links, random_graph, random_links

SHAPES = [(9, 14), (14, 9)]


def problem(number, shape):
    rng = randomness.numpy_generator(number)
    graphs = random_graph(rng, shape[0], isolated=2), random_graph(rng, shape[1], isolated=1)
    return random_links(rng, shape, 0.3, empty_row=3), graphs


def laplacian(graph):
    """I - D^-1/2 W D^-1/2 by loops; a node without an edge has 1."""
    weights = graph.adjacency().toarray()
    degrees = weights.sum(1)
    found = np.eye(len(weights))
    for i, j in zip(*weights.nonzero(), strict=True):
        found[i, j] -= weights[i, j] / np.sqrt(degrees[i] * degrees[j])
    return found


def gradients(recipe, links, graphs, row_factors, col_factors):
    """Half the derivatives of the objective by both factors."""
    x = dense_links(links)
    weights = np.where(x > 0, 1.0, recipe.unlabelled_weight)
    off = weights * (row_factors @ col_factors.T - x)
    precision = [
        recipe.regularisation * (np.eye(graph.num_nodes) + recipe.smoothness * laplacian(graph)) for graph in graphs
    ]
    return off @ col_factors + precision[0] @ row_factors, off.T @ row_factors + precision[1] @ col_factors


@pytest.mark.parametrize("smoothness", [0.0, 0.7])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_ends_at_a_stationary_point(shape, smoothness):
    links, graphs = problem(0, shape)
    recipe = GraphALS(*graphs, 3, 0.2, 0.3, smoothness, iterations=3000)
    arrays = recipe.fit(links).arrays
    found = gradients(recipe, links, graphs, arrays["row_factors"], arrays["col_factors"])
    assert max(np.abs(part).max() for part in found) < 1e-6
    assert np.abs(arrays["row_factors"]).max() > 0.1  # not the stationary point 0


def test_a_full_rank_has_the_trace_norm():
    """Without a graph and with equal weights, singular values of the links less the penalty."""
    links, _ = problem(1, (8, 14))
    empty = Graph([], 8), Graph([], 14)
    found = GraphALS(*empty, 7, 0.5, 1.0, 0.0, iterations=4000).fit(links).scores().numpy()
    left, values, right = np.linalg.svd(dense_links(links), full_matrices=False)
    shrunk = np.maximum(values - 0.5, 0)
    shrunk[7:] = 0
    np.testing.assert_allclose(found, (left * shrunk) @ right, atol=2e-3)


def test_rows_without_links_have_their_neighbours():
    links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2], [0, 1, 0, 1, 3], shape=(5, 6))
    graphs = Graph([(1, 3)], 5), Graph([], 6)
    scores = GraphALS(*graphs, 2, 0.1, 0.1, 1.0, iterations=50).fit(links).scores()
    assert set(scores[3].topk(2).indices.tolist()) == {0, 1}
    assert scores[4].abs().max() < 1e-6  # no neighbour either
    alone = GraphALS(*graphs, 2, 0.1, 0.1, 0.0, iterations=50).fit(links).scores()
    assert alone[3].abs().max() < 1e-6


def test_the_same_seed_gives_the_same_scores_in_either_precision():
    links, graphs = problem(2, (9, 14))
    first, second = (GraphALS(*graphs, 3, seed=5).fit(links).scores() for _ in range(2))
    assert torch.equal(first, second)
    single = GraphALS(*graphs, 3, seed=5, dtype=torch.float32).fit(links).scores()
    assert single.dtype == torch.float32
    assert single.isfinite().all()


def test_the_start_is_orthonormal():
    matrix = dense_links(problem(3, (9, 14))[0])
    basis = leading(matrix, 4, 0)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-9)


def test_too_many_factors_are_refused():
    links, graphs = problem(4, (9, 14))
    with pytest.raises(InputError, match=r"factors: expected less than 9, the smaller side, got 9"):
        GraphALS(*graphs, 9).fit(links)
    with pytest.raises(InputError, match="unlabelled_weight"):
        GraphALS(*graphs, 2, unlabelled_weight=1.5)
