"""What every baseline promises, whatever it computes."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import ConvergenceError, InputError
from mvgp.kernels import Graph
from mvgp.metrics import Ranker, ranking_scores
from mvgp.prioritise.baselines import (
    BASELINE_NAMES,
    BPR,
    EASE,
    EDLAE,
    GFCF,
    IALS,
    Baseline,
    GraphIALS,
    ImplicitALS,
    Katz,
    NeighbourVoting,
    Popularity,
    Propagation,
    PureSVD,
    RowGP,
    RP3beta,
    candidates,
)
from mvgp.prioritise.tables import LinkSet
from tests import randomness
from tests.prioritise.baselines.problems import planted, random_graph, random_links

SHAPE = (12, 17)
NEW_ROW = 5  # has no training link
ROW_GRAPH, COL_GRAPH = (random_graph(randomness.numpy_generator(n), n) for n in SHAPE)
LINKS = random_links(randomness.numpy_generator(0), SHAPE, empty_row=NEW_ROW)
MAKERS = {
    "popularity": Popularity,
    "neighbours": lambda **kw: NeighbourVoting(ROW_GRAPH, hops=2, **kw),
    "ease": lambda **kw: EASE(2.0, **kw),
    "edlae": lambda **kw: EDLAE(2.0, 0.4, **kw),
    "row-gp": lambda **kw: RowGP(ROW_GRAPH, 2.0, **kw),
    "rp3beta": RP3beta,
    "gfcf": lambda **kw: GFCF(3, **kw),
    "als": lambda **kw: ImplicitALS(4, **kw),
    "ials": lambda **kw: IALS(4, **kw),
    "ials-graph": lambda **kw: GraphIALS(ROW_GRAPH, COL_GRAPH, 4, **kw),
    "bpr": lambda **kw: BPR(4, **kw),
    "puresvd": lambda **kw: PureSVD(4, **kw),
    "katz": lambda **kw: Katz(ROW_GRAPH, COL_GRAPH, **kw),
    "propagation": lambda **kw: Propagation(ROW_GRAPH, COL_GRAPH, **kw),
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


class TestContract:
    def test_is_a_recipe_and_gives_a_ranker(self, make):
        recipe = make()
        assert isinstance(recipe, Baseline)
        ranker = recipe.fit(LINKS)
        assert isinstance(ranker, Ranker)
        assert ranker.shape == SHAPE
        assert "12 x 17" in repr(ranker)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_scores_are_finite_and_of_the_dtype(self, make, dtype):
        scores = make(dtype=dtype).fit(LINKS).scores()
        assert scores.shape == SHAPE
        assert scores.dtype == dtype
        assert torch.isfinite(scores).all()

    @pytest.mark.parametrize("name", sorted(MAKERS.keys() - {"als", "bpr"}))  # these draw their start in the dtype
    def test_single_and_double_precision_agree(self, name):
        make = MAKERS[name]
        single, double = (make(dtype=dtype).fit(LINKS).scores() for dtype in (torch.float32, torch.float64))
        torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)

    def test_rows_are_those_asked_for_in_any_order(self, make):
        ranker = make().fit(LINKS)
        rows = [7, 0, 7, NEW_ROW]
        torch.testing.assert_close(ranker.scores(rows), ranker.scores()[rows], rtol=1e-12, atol=1e-12)
        assert ranker.scores([]).shape == (0, SHAPE[1])

    def test_blocks_do_not_matter(self, make):
        ranker = make().fit(LINKS)
        torch.testing.assert_close(ranker.scores(block=5), ranker.scores(), rtol=1e-12, atol=1e-12)

    def test_the_same_again(self, make):
        first, second = (make().fit(LINKS).scores() for _ in range(2))
        assert torch.equal(first, second)

    def test_what_is_handed_out_is_the_callers(self, make):
        ranker = make().fit(LINKS)
        before = ranker.scores().clone()
        ranker.scores().fill_(-1)
        assert torch.equal(ranker.scores(), before)

    def test_survives_pickling(self, make):
        ranker = make().fit(LINKS)
        assert torch.equal(pickle.loads(pickle.dumps(ranker)).scores(), ranker.scores())

    def test_unlabelled_weight_does_not_matter(self, make):
        other = mvgp.PositiveUnlabelled(LINKS.rows, LINKS.cols, SHAPE, weight=0.5)
        assert torch.equal(make().fit(other).scores(), make().fit(LINKS).scores())

    def test_metrics_take_it(self, make):
        rows, cols = (1 - torch.zeros(SHAPE).index_put((LINKS.rows, LINKS.cols), torch.ones(len(LINKS)))).nonzero().T
        found = ranking_scores(make().fit(LINKS), (rows[:9], cols[:9]), exclude=LINKS, k=5)
        assert 0 <= found.summary()["AUC"] <= 1

    @pytest.mark.parametrize("shape", [(1, 6), (6, 1)])
    @pytest.mark.parametrize("name", sorted(set(BASELINE_NAMES) - {"puresvd", "gfcf"}))
    def test_one_row_or_one_column(self, name, shape):
        graphs = [Graph([], count) for count in shape]
        ids = [[str(place) for place in range(count)] for count in shape]
        link_set = LinkSet(*ids, [0], [0], *graphs)
        assert torch.isfinite(candidates(name, link_set)[0].fit(link_set.links()).scores()).all()

    def test_other_data_are_refused(self, make):
        data = mvgp.ObservedMatrix([0, 1], [0, 1], [1.0, -1.0], shape=SHAPE)
        for given in (data, None, np.zeros(SHAPE)):
            with pytest.raises(InputError, match="links: expected mvgp.PositiveUnlabelled, got"):
                make().fit(given)

    def test_rows_that_are_not_there_are_refused(self, make):
        with pytest.raises(InputError, match=r"rows\[1\]: expected a position in \[0, 12\), got 12"):
            make().fit(LINKS).scores([0, 12])

    def test_half_precision_is_refused(self, make):
        with pytest.raises(InputError, match="dtype: expected torch.float32 or torch.float64"):
            make(dtype=torch.float16)


@pytest.mark.parametrize("name", ["ease", "edlae", "rp3beta", "gfcf", "als", "ials", "puresvd"])
def test_new_rows_tie_where_only_links_are_used(name):
    assert MAKERS[name]().fit(LINKS).scores([NEW_ROW]).abs().max() < 1e-12


@pytest.mark.parametrize("name", ["neighbours", "row-gp", "katz", "propagation", "ials-graph"])
def test_new_rows_are_ranked_by_the_graph(name):
    link_set, _ = planted()
    new = np.arange(0, 120, 5)  # as many of each group
    kept = ~np.isin(link_set.rows.numpy(), new)
    train = mvgp.PositiveUnlabelled(link_set.rows[kept], link_set.cols[kept], link_set.shape)
    held = (link_set.rows[~kept], link_set.cols[~kept])
    popularity = ranking_scores(Popularity().fit(train), held).summary()["AUC"]
    # 0.83 to 0.89 against 0.43, and nothing is drawn. Without the graph new rows tie, which gives 0.5.
    for recipe in candidates(name, link_set):
        assert ranking_scores(recipe.fit(train), held).summary()["AUC"] > max(popularity, 0.5) + 0.2, recipe


def test_new_rows_of_bpr_have_the_biases():
    ranker = BPR(4).fit(LINKS)
    biases = torch.from_numpy(ranker.arrays["col_factors"][:, -1]).double()  # the package keeps them beside the factors
    torch.testing.assert_close(ranker.scores([NEW_ROW])[0], biases)
    assert float(biases.std()) > 0


@pytest.mark.parametrize("name", [name for name in BASELINE_NAMES if name != "popularity"])
def test_candidates_beat_popularity_on_planted_groups(name):
    link_set, held = planted()
    train, found = link_set.links(), {}
    for recipe in [Popularity(), *candidates(name, link_set)[:3]]:
        found[recipe] = ranking_scores(recipe.fit(train), tuple(held.T.copy()), exclude=train).summary()
    baseline = found.pop(Popularity())
    best = max(found.values(), key=lambda means: means["MAP@100"])
    # nothing is drawn: an AUC of 0.91 to 0.93 against 0.48, MAP 4.6 to 6.7 times. For links that are drawn no bound of
    # chance would do: how good a ranker is depends on all its training links at once.
    assert best["MAP@100"] > 3 * baseline["MAP@100"]
    assert best["AUC"] > baseline["AUC"] + 0.3


@pytest.mark.parametrize("name", BASELINE_NAMES)
def test_candidates_are_distinct_recipes_of_the_right_size(name):
    link_set, _ = planted(shape=(9, 11), per_row=3)
    found = candidates(name, link_set)
    assert len({repr(recipe) for recipe in found}) == len(found)
    assert 1 <= len(found) <= 12
    assert all(recipe.dtype == torch.float32 for recipe in found)
    assert all(recipe.dtype == torch.float64 for recipe in candidates(name, link_set, dtype=torch.float64))
    assert torch.isfinite(found[-1].fit(link_set.links()).scores()).all()


def test_seeds_reach_the_recipes():
    link_set, _ = planted(shape=(30, 40))
    for name in ("als", "ials", "ials-graph", "bpr"):
        first, other = (candidates(name, link_set, seed=seed)[0].fit(link_set.links()).scores() for seed in (0, 1))
        assert not torch.equal(first, other)


@pytest.mark.slow
def test_the_number_of_threads_does_not_change_als():
    link_set, _ = planted()
    one, two = (ImplicitALS(8, threads=threads).fit(link_set.links()).scores() for threads in (1, 2))
    assert torch.equal(one, two)


@pytest.mark.parametrize("name", ["als", "bpr"])
def test_threads_of_the_machine_are_no_reason_to_warn(name, monkeypatch):
    """The package says once that BLAS should have one thread; it has, whatever the environment says."""
    utils, threadpoolctl = pytest.importorskip("implicit.utils"), pytest.importorskip("threadpoolctl")
    monkeypatch.setattr(utils, "_checked_blas_config", False)
    with threadpoolctl.threadpool_limits(2, "blas"):
        assert torch.isfinite(MAKERS[name]().fit(LINKS).scores()).all()


def test_representations_state_the_settings():
    assert repr(EASE(30.0)) == "EASE(regularisation=30.0)"
    assert repr(EDLAE(30.0, 0.5)) == "EDLAE(regularisation=30.0, dropout=0.5)"
    assert repr(RP3beta(0.5, 0.25)) == "RP3beta(alpha=0.5, beta=0.25)"
    assert repr(GFCF(3, 0.1)) == "GFCF(factors=3, alpha=0.1)"
    assert repr(Katz(ROW_GRAPH, COL_GRAPH, 0.1, 3, "none")) == (
        "Katz(beta=0.1, max_length=3, normalisation='none', row_weight=0.1, col_weight=0.1)"
    )
    assert repr(PureSVD(3)) == "PureSVD(factors=3)"


BAD = [
    (lambda: candidates("svd++", LinkSet("a", "x", [0], [0], Graph([], 1), Graph([], 1))), "baseline: expected one of"),
    (lambda: candidates("puresvd", LinkSet("a", "xy", [0], [0], Graph([], 1), Graph([], 2))), "puresvd: expected at"),
    (lambda: candidates("gfcf", LinkSet("a", "xy", [0], [0], Graph([], 1), Graph([], 2))), "gfcf: expected at least 2"),
    (lambda: EASE(0.0), "regularisation: expected a positive finite number, got 0.0"),
    (lambda: EASE(float("nan")), "regularisation: expected a positive finite number, got nan"),
    (lambda: EASE(True), "regularisation: expected a positive finite number, got True"),
    (lambda: PureSVD(0), "factors: expected a positive whole number, got 0"),
    (lambda: PureSVD(12).fit(LINKS), "factors: expected less than 12, the smaller side, got 12"),
    (lambda: PureSVD(2, seed=-1), "seed: expected a whole number of at least 0, got -1"),
    (lambda: ImplicitALS(2.5), "factors: expected a positive whole number"),
    (lambda: ImplicitALS(alpha=0), "alpha: expected a positive finite number"),
    (lambda: ImplicitALS(regularisation=-1), "regularisation: expected a finite number that is not negative"),
    (lambda: ImplicitALS(threads=0), "threads: expected a positive whole number"),
    (lambda: BPR(learning_rate=float("inf")), "learning_rate: expected a positive finite number"),
    (lambda: BPR(iterations=True), "iterations: expected a positive whole number"),
    (lambda: NeighbourVoting(COL_GRAPH).fit(LINKS), "row_graph: expected 12 nodes as in the links, got 17"),
    (lambda: NeighbourVoting([(0, 1)]), "row_graph: expected mvgp.kernels.Graph, got list"),
    (lambda: NeighbourVoting(ROW_GRAPH, hops=0), "hops: expected a positive whole number"),
    (lambda: NeighbourVoting(ROW_GRAPH, decay=1.5), "decay: expected a number above 0 and at most 1, got 1.5"),
    (
        lambda: NeighbourVoting(ROW_GRAPH, popularity_weight=-1),
        "popularity_weight: expected a finite number that is not negative",
    ),
    (lambda: Katz(ROW_GRAPH, ROW_GRAPH).fit(LINKS), "col_graph: expected 17 nodes as in the links, got 12"),
    (lambda: Katz(ROW_GRAPH, COL_GRAPH, beta=-0.1), "beta: expected a positive finite number"),
    (lambda: Katz(ROW_GRAPH, COL_GRAPH, normalisation="rows"), "normalisation: expected one of none, symmetric, walk"),
    (lambda: Katz(ROW_GRAPH, COL_GRAPH, row_weight=-1), "row_weight: expected a finite number that is not negative"),
    (lambda: Katz(ROW_GRAPH, COL_GRAPH, col_weight="1"), "col_weight: expected a finite number that is not negative"),
    (lambda: Katz(ROW_GRAPH, None), "col_graph: expected mvgp.kernels.Graph, got NoneType"),
    (lambda: Propagation(COL_GRAPH, COL_GRAPH).fit(LINKS), "row_graph: expected 12 nodes"),
    (lambda: Propagation(ROW_GRAPH, COL_GRAPH, restart=0), "restart: expected a number above 0 and at most 1"),
    (lambda: Propagation(ROW_GRAPH, COL_GRAPH, iterations=0), "iterations: expected a positive whole number"),
    (lambda: Propagation(ROW_GRAPH, COL_GRAPH, normalise_links=1), "normalise_links: expected True or False"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input_is_told(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("recipe", [ImplicitALS(4), BPR(4)])
def test_a_missing_package_is_told(recipe, monkeypatch):
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)
    monkeypatch.setitem(sys.modules, "implicit.cpu.bpr", None)
    with pytest.raises(InputError, match=r"needs the package implicit .*pip install 'mvgp\[bench\]'"):
        recipe.fit(LINKS)


@pytest.mark.slow
def test_importing_needs_no_optional_package():
    names = ("implicit", "irspack", "pandas", "matplotlib", "rich", "typer", "threadpoolctl", "joblib", "sklearn")
    code = f"""
import sys
for name in {names}:
    sys.modules[name] = None
import mvgp.prioritise.baselines
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_steps_that_blow_up_are_an_error_of_ours():
    """``implicit`` raises an error of its own, which no caller of mvgp would expect."""
    links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2], [0, 1, 1, 2, 3], shape=(3, 4))
    with pytest.raises(ConvergenceError, match="BayesianPersonalizedRanking.*did not converge"):
        BPR(factors=4, learning_rate=1e30, dtype=torch.float32).fit(links)
