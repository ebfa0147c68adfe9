"""Data from other libraries and answers back to them: names, order and numbers are kept; what does not fit is refused."""

import sys
import warnings
from types import SimpleNamespace

import arviz_base
import gpytorch
import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import mvgp
from mvgp.errors import InputError
from mvgp.interchange import from_anndata, scores_frame, to_xarray
from mvgp.kernels import DiffusionKernel, Graph
from tests import randomness

CELLS, GENES = [f"c{m}" for m in range(5)], [f"g{n}" for n in range(4)]


def ring(size, weight=1.0):
    return Graph([(i, (i + 1) % size) for i in range(size)], size, [weight] * size)


def parts():
    """What an AnnData has, as plain things: a matrix with a NaN and a zero, a layer, and two graphs."""
    values = randomness.numpy_generator(0).normal(size=(5, 4))
    values[1, 2], values[3, 0] = np.nan, 0.0
    return {
        "X": values,
        "layers": {"scaled": 2 * values},
        "obs": pd.DataFrame({"batch": list("aabbb")}, index=CELLS),
        "var": pd.DataFrame(index=GENES),
        "obsp": {"connectivities": ring(5, 0.5).adjacency()},
        "varp": {"shared": ring(4).adjacency().toarray()},
    }


@pytest.fixture(params=["stand-in", "anndata"])
def annotated(request):
    return SimpleNamespace(**parts()) if request.param == "stand-in" else real_anndata(**parts())


def real_anndata(**given):
    package = pytest.importorskip("anndata", reason="anndata is in the test extra")
    return package.AnnData(**given)


def same(graph, other):
    return (graph.adjacency() != other.adjacency()).nnz == 0


class TestAnnData:
    def test_everything_is_found(self, annotated):
        found = from_anndata(annotated, obsp="connectivities", varp="shared")
        assert torch.equal(found.data.to_dense().nan_to_num(9.0), torch.from_numpy(parts()["X"]).nan_to_num(9.0))
        assert found.data.row_names == tuple(CELLS)
        assert found.data.col_names == tuple(GENES)
        assert same(found.row_graph, ring(5, 0.5))
        assert same(found.col_graph, ring(4))
        expected = mvgp.MatrixGP(DiffusionKernel(ring(5, 0.5), 2.0), DiffusionKernel(ring(4), 2.0)).covariance()
        assert torch.equal(found.prior(2.0).covariance().to_dense(), expected.to_dense())

    def test_a_layer_and_no_graphs(self, annotated):
        found = from_anndata(annotated, layer="scaled")
        assert found.row_graph is found.col_graph is None
        assert float(found.data.values.sum()) == pytest.approx(2 * np.nansum(parts()["X"]))
        assert torch.equal(found.prior().covariance().to_dense(), torch.eye(20, dtype=torch.float64))

    def test_zeros(self):
        dense = parts()["X"]
        stored = sparse.csr_matrix(np.nan_to_num(dense))
        for matrix, zeros, count in (
            *((dense, None, 19), (dense, "observed", 19), (dense, "missing", 18)),
            *((stored, None, 18), (stored, "observed", 20), (stored, "missing", 18)),
        ):
            found = from_anndata(SimpleNamespace(**{**parts(), "X": matrix}), zeros=zeros).data
            assert len(found) == count
            if zeros == "missing":
                assert bool((found.values != 0).all())

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"layer": "raw"}, "layer: expected one of 'scaled', got 'raw'"),
            ({"obsp": "distances"}, "obsp: expected one of 'connectivities', got 'distances'"),
            ({"zeros": "maybe"}, "zeros: expected 'missing' or 'observed'"),
            ({"modality": "rna"}, "modality: expected None without several modalities, got 'rna'"),
        ],
    )
    def test_mistakes(self, annotated, options, message):
        with pytest.raises(InputError, match=message):
            from_anndata(annotated, **options)

    def test_a_graph_that_is_none(self):
        directed = {"connectivities": np.triu(np.ones((5, 5)), 1)}
        with pytest.raises(InputError, match=r"obsp\['connectivities'\]: adjacency.*symmetric"):
            from_anndata(SimpleNamespace(**{**parts(), "obsp": directed}), obsp="connectivities")
        with pytest.raises(InputError, match="expected an AnnData with X, obs and var, got .* without X"):
            from_anndata(SimpleNamespace(obs=1))


def several(real):
    """A MuData of two modalities: one has all cells, the other the cells c4, c2, c0, and neither has a graph."""
    given = parts()
    some = {
        **given,
        "X": given["X"][[4, 2, 0]],
        "layers": {},
        "obs": given["obs"].iloc[[4, 2, 0]],
        "obsp": {},
        "varp": {},
    }
    whole = {**given, "obsp": {}, "varp": {}}
    if not real:
        return SimpleNamespace(
            mod={"rna": SimpleNamespace(**whole), "protein": SimpleNamespace(**some)},
            obs=given["obs"],
            var=pd.DataFrame(index=GENES),
            obsp={"joint": ring(5).adjacency()},
            varp={},
        )
    package = pytest.importorskip("mudata", reason="mudata is in the test extra")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, of pandas
        made = package.MuData({"rna": real_anndata(**whole), "protein": real_anndata(**some)})
    joint = pd.DataFrame(ring(5).adjacency().toarray(), CELLS, CELLS).loc[list(made.obs.index), list(made.obs.index)]
    made.obsp["joint"] = joint.to_numpy()
    return made


@pytest.mark.parametrize("real", [False, True], ids=["stand-in", "mudata"])
def test_a_modality_with_the_part_of_the_joint_graph(real):
    found = from_anndata(several(real), modality="protein", obsp="joint")
    assert found.data.row_names == ("c4", "c2", "c0")
    assert same(found.row_graph, Graph([(0, 2)], 3))  # c4 and c0, neighbours on the ring
    with pytest.raises(InputError, match="modality: expected one of 'rna', 'protein', got None"):
        from_anndata(several(real))


# Graphs ------------------------------------------------------------------------------------------


class TestNetworkx:
    def test_order_weights_and_parallel_edges(self):
        graph = networkx.MultiGraph()
        graph.add_nodes_from(["lonely", "x"])
        graph.add_edge("x", "y", weight=2.0)
        graph.add_edge("y", "x", weight=0.5)
        graph.add_edge("y", "z")
        graph.add_edge("z", "z", weight=7.0)
        assert list(graph.nodes) == ["lonely", "x", "y", "z"]
        assert same(Graph.from_networkx(graph), Graph([(1, 2), (2, 3)], 4, [2.5, 1.0]))
        assert same(Graph.from_networkx(graph, weight=None), Graph([(1, 2), (2, 3)], 4, [2.0, 1.0]))
        assert same(Graph.from_networkx(graph, ["z", "w", "y"]), Graph([(0, 2)], 3))

    def test_the_same_matrix(self):
        graph = networkx.karate_club_graph()
        assert same(Graph.from_networkx(graph), Graph.from_adjacency(networkx.to_numpy_array(graph)))

    @pytest.mark.parametrize(
        ("graph", "nodes", "message"),
        [
            (networkx.DiGraph([(0, 1)]), None, "expected an undirected graph, got a directed one"),
            (networkx.Graph([(0, 1)]), [0, 0], "nodes: expected different nodes"),
            (networkx.Graph([(0, 1)]), ["0", "1"], "nodes: expected nodes of the graph, got none of them"),
            ({0: [1]}, None, "graph: expected a graph of networkx, got a dict"),
        ],
    )
    def test_mistakes(self, graph, nodes, message):
        with pytest.raises(InputError, match=message):
            Graph.from_networkx(graph, nodes)


# Frames ------------------------------------------------------------------------------------------


def test_an_observed_matrix_goes_to_a_frame_and_back():
    data = mvgp.ObservedMatrix(
        [0, 1, 1], [1, 0, 1], [1.5, 0.0, -2.0], (2, 2), weights=[1, 2, 3], row_names=["a", "b"], col_names=["x", "y"]
    )
    frame = data.to_frame()
    assert list(frame.columns) == ["row", "col", "value", "weight"]
    back = mvgp.ObservedMatrix.from_frame(frame, row="row", col="col", value="value", weight="weight")
    assert back.to_frame().sort_values(["row", "col"]).to_numpy().tolist() == frame.to_numpy().tolist()
    assert mvgp.ObservedMatrix([0], [1], [2.0], (1, 2)).to_frame().to_numpy().tolist() == [[0, 1, 2]]
    assert torch.equal(mvgp.ObservedMatrix.from_scipy(data.to_scipy()).values, data.values)
    with pytest.raises(InputError, match="weight='w': expected a long frame"):
        mvgp.ObservedMatrix.from_frame(frame, weight="w")
    with pytest.raises(InputError, match="weight='w': the frame's columns are"):
        mvgp.ObservedMatrix.from_frame(frame, row="row", col="col", value="value", weight="w")


def test_links_go_to_a_frame_and_back():
    frame = pd.DataFrame({"who": ["b", "a", "b"], "what": ["x", "y", "y"], "when": [1, 2, 3]})
    links = mvgp.PositiveUnlabelled.from_frame(frame, row="who", col="what", weight=0.1)
    assert (links.row_names, links.col_names, links.weight) == (("b", "a"), ("x", "y"), 0.1)
    assert links.to_frame().to_numpy().tolist() == [["b", "x"], ["b", "y"], ["a", "y"]]
    more = mvgp.PositiveUnlabelled.from_frame(frame, row="who", col="what", col_names=["z", "y", "x"])
    assert more.shape == (2, 3)
    assert more.to_frame().to_numpy().tolist() == [["b", "y"], ["b", "x"], ["a", "y"]]
    with pytest.raises(InputError, match="col: expected one of the 1 col_names, got 'y'"):
        mvgp.PositiveUnlabelled.from_frame(frame, row="who", col="what", col_names=["x"])
    with pytest.raises(InputError, match="row='whom': the frame's columns are"):
        mvgp.PositiveUnlabelled.from_frame(frame, row="whom", col="what")
    counts = sparse.csr_matrix([[0, 2, 0], [1, 0, -1]])
    assert mvgp.PositiveUnlabelled.from_scipy(counts).to_frame().to_numpy().tolist() == [[0, 1], [1, 0]]


@pytest.fixture(scope="module")
def posterior():
    prior = mvgp.MatrixGP(DiffusionKernel(ring(5)), DiffusionKernel(ring(4)))
    data = mvgp.ObservedMatrix([0, 2, 3], [1, 0, 3], [1.0, -1.0, 2.0], (5, 4), row_names=CELLS, col_names=GENES)
    return mvgp.FullGP(prior, gpytorch.likelihoods.GaussianLikelihood().double()).fit(data)


class TestAnswers:
    def test_scores_have_the_names_of_the_data(self, posterior):
        frame = scores_frame(posterior, [3, 0])
        assert (list(frame.index), list(frame.columns)) == (["c3", "c0"], GENES)
        assert frame.to_numpy() == pytest.approx(posterior.scores([3, 0]).numpy())
        unnamed = scores_frame(posterior, names=mvgp.ObservedMatrix([0], [0], [1.0], (5, 4)))
        assert list(unnamed.index) == list(range(5))
        with pytest.raises(InputError, match="names: expected 5 row_names, got 2"):
            scores_frame(posterior, names=SimpleNamespace(row_names=["a", "b"]))

    def test_a_top_list_has_the_names_of_the_data(self, posterior):
        table = posterior.top(0, k=2)
        assert table.names == tuple(GENES[item] for item in table.items.tolist())
        assert list(table.to_frame()["name"]) == list(table.names)
        other = mvgp.ObservedMatrix([0], [1], [1.0], (5, 4), col_names=list("wxyz"))
        assert set(posterior.top(0, k=3, exclude=other).names) == set("wyz")

    def test_samples_are_those_of_the_posterior(self, posterior):
        found = to_xarray(posterior, 60, rows=[3, 0], chains=3, seed=7)
        cells = torch.tensor([[3], [0]]), torch.arange(4)
        expected = posterior.sample(*cells, 60, generator=randomness.generator_of(7)).reshape(3, 20, 2, 4)
        assert found["f"].to_numpy() == pytest.approx(expected.numpy())
        assert list(found["row"].to_numpy()) == ["c3", "c0"]
        assert found.to_dataframe().loc[(0, 0, "c3", "g1"), "f"] == pytest.approx(float(expected[0, 0, 0, 1]))
        with pytest.raises(InputError, match="chains: expected a divisor of num_samples=10, got 3"):
            to_xarray(posterior, 10, chains=3)

    def test_arviz_reads_them(self, posterior):
        samples = to_xarray(posterior, 40, chains=2)
        tree = arviz_base.convert_to_datatree(samples)
        assert tree["posterior"]["f"].dims == ("chain", "draw", "row", "col")
        assert arviz_base.extract(tree).sizes["sample"] == 40
        assert arviz_base.from_dict({"posterior": {"f": samples["f"].to_numpy()}})["posterior"].sizes["chain"] == 2

    def test_without_xarray(self, posterior, monkeypatch):
        monkeypatch.setitem(sys.modules, "xarray", None)
        with pytest.raises(ImportError, match=r"to_xarray: expected the package xarray.*pip install 'mvgp\[arviz\]'"):
            to_xarray(posterior, 10)
