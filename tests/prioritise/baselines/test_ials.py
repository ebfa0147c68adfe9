"""iALS, alone and with features, against the gradient of what it minimises."""

import sys

import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import ConvergenceError, InputError
from mvgp.kernels import Graph
from mvgp.prioritise.baselines import IALS, GraphIALS
from mvgp.prioritise.baselines.ials import irspack_recommenders, neighbour_features
from tests import randomness
from tests.prioritise.baselines.problems import dense_links, planted, random_graph, random_links

SHAPE = (9, 14)
LINKS = random_links(randomness.numpy_generator(0), SHAPE, 0.3, empty_row=3)
GRAPHS = tuple(random_graph(randomness.numpy_generator(n), n, isolated=2) for n in SHAPE)


def penalties(x, recipe):
    """(M,) and (N,), by the definition."""
    unlabelled, exponent = recipe.unlabelled_weight, recipe.frequency_exponent
    return [recipe.regularisation * (x.sum(1 - axis) + unlabelled * x.shape[1 - axis]) ** exponent for axis in (0, 1)]


def relative_gradients(recipe, precisions):
    """The gradient with respect to U and V, over the size of its parts."""
    ranker, x = recipe.fit(LINKS), dense_links(LINKS)
    sides = ranker.arrays["row_factors"], ranker.arrays["col_factors"]
    scores = sides[0] @ sides[1].T
    assert np.abs(scores).max() > 0.1  # not the trivial solution
    loss = x * (scores - 1) + recipe.unlabelled_weight * scores
    for part, own, other, precision in zip((loss, loss.T), sides, sides[::-1], precisions, strict=True):
        pull, push = part @ other, precision @ own
        yield np.abs(pull + push).max() / np.abs(push).max()


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_ials_is_at_a_minimum_of_its_objective(exponent):
    recipe = IALS(3, 0.05, 0.2, exponent, iterations=2000)
    precisions = [np.diag(values) for values in penalties(dense_links(LINKS), recipe)]
    assert max(relative_gradients(recipe, precisions)) < 1e-3


@pytest.mark.parametrize("feature_regularisation", [0.1, 3.0])
def test_features_are_the_prior_covariance_of_the_factors(feature_regularisation):
    """With the weights A eliminated, U has the precision (diag(1 / p) + F F^T / mu)^-1."""
    recipe = GraphIALS(*GRAPHS, 3, 0.05, 0.2, feature_regularisation, 0.7, iterations=2000)
    x = dense_links(LINKS)
    precisions = []
    for axis, own in enumerate(penalties(x, recipe)):
        features = neighbour_features(GRAPHS[axis], x.sum(1 - axis)).toarray()
        precisions.append(np.linalg.inv(np.diag(1 / own) + features @ features.T / feature_regularisation))
    assert max(relative_gradients(recipe, precisions)) < 1e-3


def test_features_are_nodes_with_a_link_and_a_neighbour():
    graph = Graph([(0, 1), (1, 2)], 5, [1.0, 3.0])
    found = neighbour_features(graph, np.array([1.0, 2.0, 0.0, 4.0, 0.0])).toarray()
    wanted = [[1 / 2, 1 / 2], [1 / 5, 1 / 5], [0, 3 / 4], [0, 0], [0, 0]]  # of the nodes 0 and 1
    np.testing.assert_allclose(found, wanted, atol=1e-7)


def test_strong_penalties_on_features_give_ials_back():
    settings = {"frequency_exponent": 0.7, "iterations": 30}
    plain = IALS(3, 0.05, 0.2, **settings).fit(LINKS).scores()
    penalised = GraphIALS(*GRAPHS, 3, 0.05, 0.2, 1e8, **settings).fit(LINKS).scores()
    kept = torch.from_numpy(dense_links(LINKS).any(1))
    torch.testing.assert_close(
        penalised[kept][:, dense_links(LINKS).any(0)], plain[kept][:, dense_links(LINKS).any(0)], rtol=0.01, atol=1e-3
    )


def test_graphs_without_edges_make_no_features():
    found = GraphIALS(Graph([], SHAPE[0]), Graph([], SHAPE[1]), 3).fit(LINKS).scores()
    torch.testing.assert_close(found, IALS(3).fit(LINKS).scores(), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_threads_do_not_change_the_result():
    links = planted()[0].links()
    one, two = (IALS(8, threads=threads).fit(links).scores() for threads in (1, 2))
    torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


def test_seeds_of_any_size_are_taken():
    first, second = (IALS(3, iterations=1, seed=seed).fit(LINKS).scores() for seed in (2**62, 2**62 + 1))
    assert not torch.equal(first, second)


def test_nothing_is_printed(capfd):
    GraphIALS(*GRAPHS, 3).fit(LINKS)
    assert capfd.readouterr() == ("", "")


def test_factors_that_are_not_finite_are_an_error_of_ours(monkeypatch):
    monkeypatch.setattr(
        irspack_recommenders().IALSRecommender,
        "get_user_embedding",
        lambda self: np.full((SHAPE[0], 3), np.nan, dtype=np.float32),
    )
    with pytest.raises(ConvergenceError, match=r"irspack's iALS for IALS\(factors=3.*factors are not finite"):
        IALS(3).fit(LINKS)


def test_a_failed_decomposition_is_an_error_of_ours(monkeypatch):
    def fail(self):
        raise RuntimeError("Cholesky")

    monkeypatch.setattr(irspack_recommenders().IALSRecommender, "run_epoch", fail)
    with pytest.raises(ConvergenceError, match="irspack's iALS for GraphIALS.*did not converge: Cholesky"):
        GraphIALS(*GRAPHS, 3).fit(LINKS)


@pytest.mark.parametrize("recipe", [IALS(3), GraphIALS(*GRAPHS, 3)])
def test_a_missing_package_is_told(recipe, monkeypatch):
    monkeypatch.setitem(sys.modules, "irspack.recommenders", None)
    with pytest.raises(InputError, match=r"needs the package irspack .*pip install 'mvgp\[bench\]'"):
        recipe.fit(LINKS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: IALS(0), "factors: expected a positive whole number, got 0"),
        (lambda: IALS(regularisation=0), "regularisation: expected a positive finite number, got 0"),
        (lambda: IALS(unlabelled_weight=-1), "unlabelled_weight: expected a positive finite number, got -1"),
        (lambda: IALS(frequency_exponent=-1), "frequency_exponent: expected a finite number that is not negative"),
        (lambda: IALS(iterations=1.5), "iterations: expected a positive whole number, got 1.5"),
        (lambda: IALS(threads=0), "threads: expected a positive whole number, got 0"),
        (lambda: IALS(seed=-1), "seed: expected a whole number of at least 0, got -1"),
        (lambda: GraphIALS(*GRAPHS, feature_regularisation=0), "feature_regularisation: expected a positive finite"),
        (lambda: GraphIALS(None, GRAPHS[1]), "row_graph: expected mvgp.kernels.Graph, got NoneType"),
        (lambda: GraphIALS(*GRAPHS[::-1]).fit(LINKS), "row_graph: expected 9 nodes as in the links, got 14"),
        (lambda: GraphIALS(GRAPHS[0], GRAPHS[0]).fit(LINKS), "col_graph: expected 14 nodes as in the links, got 9"),
        (lambda: IALS().fit(mvgp.ObservedMatrix([0], [0], [1.0], shape=(1, 1))), "links: expected mvgp.Positive"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(InputError, match=message):
        call()
