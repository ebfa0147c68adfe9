"""Feature tables and several graphs on an axis: what comes of them in a LinkSet, and what is refused."""

import gzip
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from mvgp.errors import InputError
from mvgp.kernels import Graph
from mvgp.prioritise import fit_prioritiser
from mvgp.prioritise.tables import FeatureTable, LinkSet, TableError, neighbour_graph, read_links, union_graph
from mvgp.prioritise.tables.reader import read_numbers
from tests import randomness

PAIRS = "d1\tg1\nd1\tg2\nd2\tg1\nd3\tg4\n"
FEATURES = "gene\theart\tliver\ng1\t1\t2\ng2\t3\t-1\ng4\t5\t0.5\nnew\t0\t1e1\n"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_features_are_standardised_and_become_a_graph(write):
    edges = write("edges.tsv", "g1\tg9\n")
    links = read_links(write("pairs.tsv", PAIRS), col_edges=edges, col_features=write("f.tsv", FEATURES))
    assert links.col_ids == ("g1", "g2", "g4", "g9", "new")  # who has features is a candidate
    (table,) = links.col_features
    assert (table.name, table.columns) == ("f.tsv", ("heart", "liver"))
    raw = np.array([[1, 2], [3, -1], [5, 0.5], [0, 10]])
    expected = np.insert((raw - raw.mean(0)) / raw.std(0), 3, 0.0, axis=0)  # g9 is at the mean
    assert np.allclose(table.values.numpy(), expected)
    assert links.col_graph_names == ("edges.tsv", "f.tsv")
    nearest = neighbour_graph(expected)
    assert (links.col_graphs[1].adjacency() != nearest.adjacency()).nnz == 0
    union = union_graph(links.col_graphs).adjacency()
    assert np.allclose(links.col_graph.adjacency().toarray(), union.toarray())
    assert links.row_graphs == (links.row_graph,)
    line = "column features: f.tsv, 4 lines, header gene | heart | liver, 3 of 4 ids are in the pairs, 2 features"
    assert f"{line}, 1 column without features has zeros" in str(links.report)


def test_features_alone_are_the_graph(write):
    links = read_links(write("pairs.tsv", PAIRS), row_features=write("f.csv", "d,a,b\nd1,1,1\nd2,1,2\nd3,9,0\n"))
    assert len(links.row_graphs) == 1
    assert links.row_graphs[0] is links.row_graph
    assert links.row_graph.num_links > 0


def test_several_tables_of_edges_are_several_graphs(write):
    one, two = write("one.tsv", "d1\td2\t10\n"), write("two.tsv", "d2\td3\t0.1\nd3\td4\t0.3\n")
    links = read_links(write("pairs.tsv", PAIRS), row_edges=[one, two])
    assert links.row_ids == ("d1", "d2", "d3", "d4")
    assert [graph.num_links for graph in links.row_graphs] == [1, 2]
    weights = links.row_graph.adjacency().toarray()
    assert weights[0, 1] == pytest.approx(1.0)
    assert weights[1, 2] == pytest.approx(0.1 / (0.8 / 3))
    assert links.source == "pairs pairs.tsv, row edges one.tsv, row edges two.tsv; filters linked"
    single = read_links(write("pairs.tsv", PAIRS), row_edges=[one])
    assert single.digest() == read_links(write("pairs.tsv", PAIRS), row_edges=one).digest()


def test_the_papers_filters_count_a_link_in_any_graph(write):
    one, features = write("one.tsv", "d1\td2\n"), write("f.tsv", "d\ta\tb\nd1\t1\t0\nd3\t2\t1\n")
    links = read_links(write("pairs.tsv", PAIRS + "d5\tg1\n"), row_edges=one, row_features=features, filters="paper")
    assert links.row_ids == ("d1", "d2")  # d1 and d3 point to opposite sides of the mean: no neighbours
    assert [drop.id for drop in links.report.row_drops] == ["d3", "d5"]
    assert len(links.row_graphs) == 2
    assert links.row_features[0].values.shape == (2, 2)


@pytest.mark.parametrize(
    ("content", "header", "ids", "names"),
    [
        ("gene\tx\ty\na\t1\t2\nb\t2\t1\n", True, ["a", "b"], ("x", "y")),
        ("\tx\ty\na\t1\t2\nb\t2\t1\n", True, ["a", "b"], ("x", "y")),
        ("\t0\t1\na\t1\t2\nb\t2\t1\n", True, ["a", "b"], ("0", "1")),
        ("id\t0\t1\na\t1\t2\nb\t2\t1\n", True, ["a", "b"], ("0", "1")),
        ("FLG\t1\t2\nIL4\t2\t1\n", False, ["FLG", "IL4"], ("2", "3")),
        ("gene1\t1\t2\ngene2\t2\t1\n", False, ["gene1", "gene2"], ("2", "3")),
        ("#gene\tx\ty\na\t1\t2\nb\t2\t1\n", True, ["a", "b"], ("x", "y")),
        ("a;1;2\nb; 2 ;1e0\n", False, ["a", "b"], ("2", "3")),
        ('"a"\t"1"\t2\nb\t 2\t1\n', False, ["a", "b"], ("2", "3")),
        ('id,"x, y",z\n"a",1,2\nb,"2",1\n', True, ["a", "b"], ("x, y", "z")),
    ],
)
def test_headers_and_formats_of_features(write, content, header, ids, names):
    for path in (write("f.tsv", content), write("f.tsv.gz", gzip.compress(content.encode()))):
        table = read_numbers(path)
        assert (table.header is not None, table.ids, table.names) == (header, ids, names)
        assert table.values.tolist() == [[1.0, 2.0], [2.0, 1.0]]


def test_numbers_are_those_of_python(write):
    rng = randomness.numpy_generator(0)
    numbers = rng.standard_normal((40, 6)) * 10.0 ** rng.integers(-300, 300, (40, 6))
    lines = [
        "id\t" + "\t".join("abcdef"),
        *(f"i{n}\t" + "\t".join(map(repr, row)) for n, row in enumerate(numbers.tolist())),
    ]
    assert (read_numbers(write("f.tsv", "\n".join(lines))).values == numbers).all()


def test_repeated_lines_are_merged(write):
    links = read_links(write("pairs.tsv", PAIRS), col_features=write("f.tsv", FEATURES + "g1\t1.0\t2\n"))
    assert "1 duplicates merged" in str(links.report)
    assert links.digest() == read_links(write("pairs.tsv", PAIRS), col_features=write("f.tsv", FEATURES)).digest()


BAD_FEATURES = {
    "a word": ("gene\tx\ny1\t1\ng1\thigh\n", "line 3, column x: expected a finite number, got 'high'"),
    "a word on the first line of data": ("g1\t1\tlow\ng2\t2\t3\n", "line 1, column 3: expected a finite number, got 'low'"),
    "missing on the first line": ("g1\tNA\ng2\t2\n", "line 1, column 2: expected a finite number, got 'NA'"),
    "nan": ("gene\tx\ty\ng1\t1\tnan\ng2\t2\t3\n", "line 2, column y: expected a finite number, got 'nan'"),
    "infinite": ("gene\tx\ng1\t-inf\ng2\t2\n", "line 2, column x: expected a finite number, got '-inf'"),
    "too large": ("gene\tx\ng1\t1e999\ng2\t2\n", "line 2, column x: expected a finite number, got '1e999'"),
    "empty": ("gene\tx\ty\ng1\t1\t\ng2\t2\t3\n", "line 2, column y: expected a finite number, got ''"),
    "an underscore": ("gene\tx\ng1\t1_0\ng2\t2\n", "line 2, column x: expected a finite number, got '1_0'"),
    "hexadecimal": ("gene\tx\ng1\t0x1p3\ng2\t2\n", "line 2, column x: expected a finite number, got '0x1p3'"),
    "complex": ("gene\tx\ng1\t1+2j\ng2\t2\n", "line 2, column x: expected a finite number, got '1.2j'"),
    "decimal comma": ("gene;x\ng1;0,5\ng2;1\n", "line 2, column x: expected a finite number, got '0,5'"),
    "constant": ("gene\tx\ty\ng1\t1\t7\ng2\t2\t7\n", "column y: expected a feature that differs between ids, got 7 for each of 2"),
    "one id": ("gene\tx\ng1\t1\n", "column x: expected a feature that differs between ids, got 1 for each of 1 id"),
    "no feature": ("gene\ng1\ng2\n", "line 1: expected an id and at least one number"),
    "a short line": ("gene\tx\ty\ng1\t1\t2\ng2\t1\n", "line 3: expected at least 3 fields"),
    "a long line": ("gene\tx\ng1\t1\t2\n", "line 2: expected at most 2 fields"),
    "only a header": ("gene\tx\n", "expected lines below the header"),
    "no id": ("gene\tx\n\t1\ng2\t2\n", "line 2: expected an id in column 1, got nothing"),
    "two lines for an id": ("gene\tx\ng1\t1\ng2\t2\ng1\t3\n", "line 4: expected one line for 'g1', got other numbers than on line 2"),
    "ids that match nothing": ("gene\tx\nz1\t1\nz2\t2\n", r"none of its 2 ids \('z1', 'z2'\) is among the 3 column ids"),
    "ids of the rows": ("d\tx\nd1\t1\nd2\t2\n", "are its columns the other way round"),
    "an empty file": ("", "got an empty file"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_FEATURES)
def test_bad_features(write, kind):
    content, expected = BAD_FEATURES[kind]
    path = write("f.tsv", content)
    with pytest.raises(TableError, match=expected) as found:
        read_links(write("pairs.tsv", PAIRS), col_features=path)
    assert str(found.value).startswith(str(path))
    assert "\n" not in str(found.value)


def test_rounding_is_no_feature_and_a_small_range_is(write):
    rounded = write("f.tsv", f"gene\tx\ng1\t{0.1 + 0.2!r}\ng2\t0.3\n")
    with pytest.raises(TableError, match="column x: expected a feature that differs"):
        read_links(write("pairs.tsv", PAIRS), col_features=rounded)
    seconds = write("f.tsv", "gene\tx\ng1\t1700000000.001\ng2\t1700000000\n")
    assert len(read_links(write("pairs.tsv", PAIRS), col_features=seconds).col_features) == 1


# LinkSet ------------------------------------------------------------------------------------------


def made(**changes):
    parts = {
        "row_ids": "abc",
        "col_ids": "wxyz",
        "rows": [2, 0, 1],
        "cols": [3, 1, 0],
        "row_graph": Graph([(0, 1), (1, 2)], 3, [1.0, 2.0]),
        "col_graph": Graph([], 4),
    }
    return LinkSet(**(parts | changes))


def test_further_graphs_of_a_set():
    table = FeatureTable("f", ("p", "q"), [[1.0, 0.0], [0.9, 0.1], [-1.0, 0.0], [0.0, 0.0]])
    links = made().with_graphs(row_graphs=[Graph([(0, 2)], 3)], col_features=[table])
    assert len(links.row_graphs) == 2
    assert links.row_graphs[0].num_links == 2
    assert links.row_graph.num_links == 3
    assert links.row_graph_names == ("row graph 1", "row graph 2")
    assert links.col_graph_names == ("f",)  # the graph without links stood for none
    assert links.col_graphs == (links.col_graph,)
    assert links.col_features == (table,)
    assert made().with_graphs().digest() == made().digest()
    assert len({made().digest(), links.digest(), made().with_graphs(row_graphs=[Graph([(0, 2)], 3)]).digest()}) == 3
    again = pickle.loads(pickle.dumps(links))
    assert again.digest() == links.digest()
    assert replace(again, source="x").col_graphs == (again.col_graph,)


def test_the_digest_of_a_set_with_one_graph_is_as_ever():
    assert made().digest() == "0fde3edb63a4de31"


def test_parts_of_a_set_keep_all_graphs_and_features():
    table = FeatureTable("f", ("p",), [[1.0], [2.0], [4.0]])
    links = made().with_graphs(row_graphs=[Graph([(0, 2)], 3)], row_features=[table])
    part = links.keep(rows=[2, 0])
    for graph, kept in zip((links.row_graph, *links.row_graphs), (part.row_graph, *part.row_graphs), strict=True):
        assert np.allclose(kept.adjacency().toarray(), graph.adjacency().toarray()[[2, 0]][:, [2, 0]])
    assert part.row_features[0].values.tolist() == [[4.0], [1.0]]
    assert part.row_graph_names == links.row_graph_names
    assert links.subsample(0.5).row_graphs == links.row_graphs


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"row_graphs": [Graph([], 4)]}, "row_graphs: expected 3 nodes, one for each id, got 4"),
        ({"row_graphs": [Graph([], 3)]}, "row_graphs: expected row_graph where there is one graph"),
        ({"row_graphs": ["x", "y"]}, r"row_graphs\[0\]: expected mvgp.kernels.Graph"),
        ({"row_graph_names": ["a", "b"]}, "row_graph_names: expected 1 names, one for each graph, got 2"),
        ({"col_features": [torch.ones(4, 2)]}, r"col_features\[0\]: expected mvgp.prioritise.tables.FeatureTable"),
        (
            {"col_features": [FeatureTable("f", ("p",), [[1.0]])]},
            "col_features: expected 4 lines, one for each id, got 1",
        ),
    ],
)
def test_graphs_and_features_that_do_not_belong(changes, expected):
    with pytest.raises(InputError, match=expected):
        made(**changes)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((7, ("p",), [[1.0]]), "name: expected a string"),
        (("f", ("p", "q"), [[1.0]]), "values: expected 2 columns, one for each name, got 1"),
        (("f", ("p",), [1.0]), "values: expected"),
        (("f", ("p",), [[float("nan")]]), "values"),
    ],
)
def test_bad_feature_tables(arguments, expected):
    with pytest.raises(InputError, match=expected):
        FeatureTable(*arguments)


def test_a_time_and_a_shift_for_each_axis():
    links = made(col_graph=Graph([(0, 1), (2, 3)], 4))
    apart = links.prior(2.0, 0.5, row_time=0.3, col_shift=1.5)
    kernels = (apart.row_kernel, apart.col_kernel)
    assert [round(kernel.time.item(), 6) for kernel in kernels] == [0.3, 2.0]
    assert [round(kernel.shift.item(), 6) for kernel in kernels] == [0.5, 1.5]
    same = links.prior(2.0, 0.5, row_time=2.0, row_shift=0.5, col_time=2.0, col_shift=0.5)
    assert torch.equal(same.covariance().to_dense(), links.prior(2.0, 0.5).covariance().to_dense())


@pytest.mark.parametrize("model", ["neighbours", "propagation", "whole"])
def test_models_of_one_graph_see_every_graph(model):
    """A link of the second graph alone changes the ranking of a row without links of its own."""
    rng = randomness.numpy_generator(4)
    cells = rng.permutation(8 * 12)[:30]
    cells = cells[cells // 12 != 7]
    first = Graph([(n, n + 1) for n in range(6)], 8)
    links = LinkSet(range(8), range(12), cells // 12, cells % 12, first, Graph([], 12))
    more = links.with_graphs(row_graphs=[Graph([(7, int(cells[0] // 12))], 8)])
    options = {"strength": 0.3, "trace_share": 0.9} if model == "whole" else {}
    alone, both = (fit_prioritiser(part, model=model, **options).mixture.scores([7])[0] for part in (links, more))
    assert not torch.allclose(alone - alone.mean(), both - both.mean(), atol=1e-6)
