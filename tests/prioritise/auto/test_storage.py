"""Files of ``auto``: the same numbers to the last bit, nothing fitted again, and forged parts refused."""

import math

import pytest
import torch

from mvgp.errors import InputError, StorageError
from mvgp.kernels import Graph
from mvgp.prioritise import fit_prioritiser, load_prioritiser
from mvgp.prioritise.auto import Auto, AutoRanker
from mvgp.prioritise.auto.blend import MIXTURE, POPULARITY, Blend
from mvgp.prioritise.auto.fit import default_blend
from mvgp.prioritise.auto.storage import describe_auto, restore_auto
from mvgp.prioritise.auto.terms import LOW_RANK, TermBank
from mvgp.prioritise.baselines.base import Recipe
from mvgp.prioritise.ranking.prioritiser import KIND
from mvgp.prioritise.tables import LinkSet
from mvgp.storage import Budget, Fields
from mvgp.storage.archive import read, write
from mvgp.storage.fields import Spending
from tests import randomness

M, N = 150, 140
EDLAE, RANK, ROW_GP = "low rank EDLAE", "low rank 32", "low rank RowGP"


def make_links(shape=(M, N), several=True):
    """Rows with some six links, two graphs of the rows, one of the columns with weights."""
    m, n = shape
    rng = randomness.numpy_generator(0)
    rows, cols = (torch.from_numpy(part) for part in (rng.random((m, n)) < 0.04).nonzero())
    edges = [(rng.integers(0, size, (3 * size, 2)), rng.random(3 * size)) for size in (m, m, n)]
    row_graph, more, col_graph = (Graph(ends, size, w) for (ends, w), size in zip(edges, (m, m, n), strict=True))
    ids = [f"D{i}" for i in range(m)], [f"g{i}" for i in range(n)]
    link_set = LinkSet(*ids, rows, cols, row_graph, col_graph)
    return link_set.with_graphs(row_graphs=[more]) if several else link_set


def every_term(link_set):
    """All terms in use, with features added in some groups."""
    bank = TermBank(link_set, link_set.links(), seed=3)
    mixture = default_blend(bank).mixture
    weights = ({MIXTURE: 1.0, EDLAE: 0.3, f"log {RANK}": 0.1}, {MIXTURE: 0.5, POPULARITY: -0.2}, {MIXTURE: 1.0}) * 2
    return AutoRanker(bank, Blend(tuple(bank.terms), mixture, weights[:4]))


@pytest.fixture(scope="module", params=[(M, N), (N, M)])
def ranker(request):
    return every_term(make_links(request.param))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file of the default model, whose terms are all in use."""
    fitted = fit_prioritiser(make_links())
    object.__setattr__(fitted, "rankers", (every_term(make_links()),))
    path = tmp_path_factory.mktemp("auto") / "fitted.mvgp"
    fitted.save(path)
    return path


def again(ranker, folder):
    write(folder / "ranker", describe_auto(ranker))
    return restore_auto(Fields(read(folder / "ranker"), "ranker"), Spending(None), ranker.shape)


def test_scores_and_uncertainty_are_the_same_bit_for_bit(ranker, tmp_path, monkeypatch):
    assert {EDLAE, RANK, ROW_GP} <= set(ranker.blend.used)
    tree = describe_auto(ranker)
    monkeypatch.setattr(Recipe, "fit", lambda *_: pytest.fail("fitted again"))
    loaded = again(ranker, tmp_path)
    assert repr(loaded) == repr(ranker)
    assert torch.equal(loaded.scores(), ranker.scores())
    for row in (0, 17):
        answers = zip(loaded.bootstrap(row, 10, seed=5), ranker.bootstrap(row, 10, seed=5), strict=True)
        assert all(torch.equal(*pair) for pair in answers)
    assert loaded.in_words() == ranker.in_words()
    assert loaded.assessment is None
    assert sorted(tree["fitted"]) == sorted(n for n in ranker.blend.used if ranker.bank.terms[n].source == LOW_RANK)


def test_what_auto_has_chosen_is_kept(tmp_path):
    links = make_links(several=False)
    fitted = fit_prioritiser(links)
    fitted.save(tmp_path / "fitted.mvgp")
    loaded = load_prioritiser(tmp_path / "fitted.mvgp")
    assert repr(loaded) == repr(fitted)
    assert torch.equal(loaded.rankers[0].blend.mixture, fitted.rankers[0].blend.mixture)
    assert loaded.rankers[0].blend.weights == fitted.rankers[0].blend.weights
    one, two = (next(which.ranked([2], 4, num_samples=100)) for which in (fitted, loaded))
    assert str(one) == str(two)
    assert torch.equal(loaded.mixture.scores(), fitted.mixture.scores())


def test_a_few_links_and_no_graph(tmp_path):
    links = LinkSet("abc", "wxyz", [0, 0, 1, 2], [0, 1, 1, 2], Graph([], 3), Graph([], 4))
    ranker = Auto(links).fit(links.links())
    assert torch.equal(again(ranker, tmp_path).scores(), ranker.scores())


def at(*path):
    """Change what is at a place, by a function of it."""

    def change(tree, function):
        for key in path[:-1]:
            tree = tree[key]
        tree[path[-1]] = function(tree[path[-1]])

    return change


GRAPH = ("col_graphs", "single", 0)
FORGED = {
    "a part more": (at("links"), lambda x: {**x, "more": 1}, "links: expected the parts rows, cols, weight"),
    "a name more": (at("names"), lambda x: [*x, "magic"], "names: expected terms of these links and graphs"),
    "a name twice": (at("names"), lambda x: [*x[:-1], x[0]], "names: expected distinct terms"),
    "a name too few": (at("names"), lambda x: x[:-1], "mixture: expected an array of shape"),
    "mixture, negative": (at("mixture"), lambda x: torch.cat([x[:, :2] - x[:, :1] * 3, x[:, 2:]], 1), "not negative"),
    "mixture, sum": (at("mixture"), lambda x: 2 * x, "mixture: expected weights that add up to 1"),
    "mixture, nan": (at("mixture"), lambda x: x * math.nan, "mixture: expected finite numbers"),
    "mixture, single": (at("mixture"), lambda x: x.float(), "mixture: expected an array of torch.float64"),
    "mixture, groups": (at("mixture"), lambda x: x[:3], "mixture: expected an array of shape"),
    "three groups": (at("weights"), lambda x: x[:3], "weights: expected 4 groups of rows, got 3"),
    "unknown feature": (at("weights", 1), lambda x: {**x, "magic": 1.0}, "expected the parts .*, got .'magic'"),
    "no mixture": (at("weights", 0), lambda x: {"popularity": 1.0}, "expected a part 'mixture'"),
    "mixture of 0": (at("weights", 0, "mixture"), lambda x: 0.0, "expected a positive number"),
    "weight, infinite": (at("weights", 1, "popularity"), lambda x: math.inf, "expected a finite number"),
    "weight, a text": (at("weights", 1, "popularity"), lambda x: "1", "expected a number"),
    "weight, huge": (at("weights", 0, EDLAE), lambda x: 1e308, "expected a number of at most 1e.09"),
    "row factors, huge": (at("fitted", RANK, "row_factors"), lambda x: x * 0 + 3e38, "that give finite scores"),
    "link far out": (at("links", "cols"), lambda x: x + N, "cols: expected positions in"),
    "links twice": (
        at("links"),
        lambda x: {k: torch.cat([v[:1], v[:-1]]) if k != "weight" else v for k, v in x.items()},
        "distinct links",
    ),
    "no links": (at("links"), lambda x: {**x, "rows": x["rows"][:0], "cols": x["cols"][:0]}, "at least one link"),
    "link weight": (at("links", "weight"), lambda x: 2.0, "weight: expected a number of at most 1"),
    "edge far out": (at(*GRAPH, "edges"), lambda x: x + N, "edges: expected positions in"),
    "edge, negative": (at(*GRAPH, "edges"), lambda x: -x - 1, "edges: expected positions in"),
    "edge, turned": (at(*GRAPH, "edges"), lambda x: x.flip(1), "edges: expected two nodes, ascending"),
    "edges, unsorted": (at(*GRAPH, "edges"), lambda x: x.flip(0), "edges: expected distinct ones, sorted"),
    "edges, three ends": (
        at(*GRAPH, "edges"),
        lambda x: torch.cat([x, x[:, :1]], 1),
        "edges: expected an array of shape",
    ),
    "edge weights, nan": (at(*GRAPH, "weights"), lambda x: x * math.nan, "weights: expected finite numbers"),
    "edge weights, 0": (at(*GRAPH, "weights"), lambda x: x * 0, "weights: expected positive numbers"),
    "edge weights, huge": (at(*GRAPH, "weights"), lambda x: x * 0 + 1.7e308, "expected a finite sum"),
    "no graph": (at("col_graphs", "single"), lambda x: [], "single: expected at least one graph"),
    "no union": (at("row_graphs", "union"), lambda x: None, "union: expected a union of several graphs"),
    "a union of one": (
        at("col_graphs"),
        lambda x: {**x, "union": x["single"][0]},
        "union: expected a union of several",
    ),
    "seed": (at("seed"), lambda x: -1, "seed: expected a whole number"),
    "nothing fitted": (at("fitted"), lambda x: {}, "fitted: expected a part 'low rank EDLAE'"),
    "more fitted": (at("fitted"), lambda x: {**x, "magic": {}}, "fitted: expected the parts"),
    "inverse, size": (at("fitted", EDLAE, "inverse"), lambda x: x[1:], "inverse: expected an array of shape"),
    "inverse, nan": (at("fitted", EDLAE, "inverse"), lambda x: x * math.nan, "inverse: expected finite numbers"),
    "coefficients, size": (at("fitted", ROW_GP, "coefficients"), lambda x: x[1:], "coefficients: expected an array of"),
    "scale, 0": (at("fitted", EDLAE, "scale"), lambda x: x * 0, "scale: expected positive numbers"),
    "dropout": (at("fitted", EDLAE, "settings", "dropout"), lambda x: 2.0, "dropout"),
    "another kind": (at("fitted", EDLAE, "kind"), lambda x: "Popularity", "kind: expected one of EDLAE, GFCF"),
    "factors": (at("fitted", RANK, "settings", "factors"), lambda x: 31, "row_factors: expected an array of shape"),
    "factors, half": (at("fitted", RANK, "settings", "factors"), lambda x: 0.5, "factors: expected a whole number"),
    "row factors": (
        at("fitted", RANK, "row_factors"),
        lambda x: x.double(),
        "row_factors: expected an array of torch.float32",
    ),
    "column factors": (at("fitted", RANK, "col_factors"), lambda x: x * math.inf, "col_factors: expected finite"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_parts_are_refused(saved, tmp_path, name):
    change, function, words = FORGED[name]
    tree = read(saved)
    change(tree["posteriors"][0], function)
    write(tmp_path / "forged.mvgp", tree)
    with pytest.raises(StorageError, match=words):
        load_prioritiser(tmp_path / "forged.mvgp")


def test_other_sizes_and_company_are_refused(saved, tmp_path):
    tree = read(saved)
    assert tree["kind"] == KIND
    for changed, words in (
        ({"posteriors": tree["posteriors"] * 2}, "expected one ranker of auto"),
        ({"row_ids": [], "row_names": []}, "expected ids of rows and columns"),
        (
            {"row_ids": tree["row_ids"][:20], "row_names": tree["row_names"][:20]},
            r"rows: expected positions in \[0, 20\)",
        ),
    ):
        write(tmp_path / "forged.mvgp", {**tree, **changed})
        with pytest.raises(StorageError, match=words):
            load_prioritiser(tmp_path / "forged.mvgp")


def test_budgets(saved):
    assert load_prioritiser(saved, budget=Budget()).shape == (M, N)
    with pytest.raises(StorageError, match="expected at most 10,000 memory bytes"):
        load_prioritiser(saved, budget=Budget(memory_bytes=10_000))
    with pytest.raises(StorageError, match="expected at most 1,000 file bytes"):
        load_prioritiser(saved, budget=Budget(file_bytes=1000))


def test_what_is_no_ranker_of_auto_is_refused():
    with pytest.raises(InputError, match="ranker: expected"):
        describe_auto("auto")
