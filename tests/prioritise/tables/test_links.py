"""Tables of every make give the same LinkSet."""

import gzip

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mvgp.prioritise.tables import Dropped, LinkSet, read_links

PAIRS = "d1\tg1\nd1\tg2\nd2\tg1\nd3\tg4\n"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def named(links: LinkSet) -> set[tuple[str, str]]:
    return {(links.row_ids[m], links.col_ids[n]) for m, n in zip(links.rows.tolist(), links.cols.tolist(), strict=True)}


def edges(links: LinkSet, side: str) -> dict[tuple[str, str], float]:
    graph, ids = (links.row_graph, links.row_ids) if side == "row" else (links.col_graph, links.col_ids)
    coo = graph.adjacency().tocoo()
    return {(ids[a], ids[b]): float(w) for a, b, w in zip(coo.row, coo.col, coo.data, strict=True) if a < b}


def test_pairs_alone(write):
    links = read_links(write("pairs.tsv", PAIRS))
    assert links.row_ids == ("d1", "d2", "d3")
    assert links.col_ids == ("g1", "g2", "g4")
    assert named(links) == {("d1", "g1"), ("d1", "g2"), ("d2", "g1"), ("d3", "g4")}
    assert links.row_graph.num_links == links.col_graph.num_links == 0
    assert links.row_names == links.row_ids
    assert links.source == "pairs pairs.tsv; filters linked"


@pytest.mark.parametrize("delimiter", ["\t", ",", ";"])
@pytest.mark.parametrize("header", ["", "disease_id\tgene_id\n", "#disease_id\tgene_id\n", "# made, by; hand\n\n"])
@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.csv", "pairs", "pairs.tsv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_make_of_table_reads_the_same(write, delimiter, header, name, end):
    text = "\ufeff" + (header + PAIRS).replace("\t", delimiter).replace("\n", end)
    content = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    links = read_links(write(name, content))
    assert links.digest() == read_links(write("plain", PAIRS)).digest()


def test_gzip_is_told_by_content_not_by_name(write):
    links = read_links(write("pairs.txt", gzip.compress(PAIRS.encode())))
    assert len(links) == 4


def test_no_end_of_last_line_and_spaces_around_ids(write):
    links = read_links(write("pairs.csv", " d1 , g1\nd1,g 2"))
    assert links.row_ids == ("d1",)
    assert links.col_ids == ("g 2", "g1")


def test_ids_are_text(write):
    links = read_links(write("pairs.tsv", "007\t1\n7\t1.0\n07\tNA\n1e3\tnan\n"))
    assert links.row_ids == ("007", "07", "1e3", "7")
    assert links.col_ids == ("1", "1.0", "NA", "nan")


def test_quotes(write):
    links = read_links(
        write("pairs.csv", '"d,1","g ""x"""\nd2,"g2"\n'),
        row_names=write("names.tsv", 'd,1\tthe 5" one\nd2\t"quoted ""name"""\n'),
    )
    assert links.row_ids == ("d,1", "d2")
    assert links.col_ids == ('g "x"', "g2")
    assert links.row_names == ('the 5" one', 'quoted "name"')


def test_semicolons_with_commas_inside_and_the_reverse(write):
    assert read_links(write("a.csv", "d, one;g1\nd, two;g2\n")).row_ids == ("d, one", "d, two")
    names = write("names.csv", "d1,Asthma; of childhood\nd2,Eczema\n")
    links = read_links(write("pairs.csv", "d1,g\nd2,h\n"), row_names=names)
    assert links.row_names == ("Asthma; of childhood", "Eczema")


def test_a_delimiter_can_be_given(write):
    assert read_links(write("pairs.txt", "d 1|g1\n"), delimiter="|").row_ids == ("d 1",)


def test_columns_by_name_and_by_place(write):
    table = "score\tgene\tdisease\n0.1\tg1\td1\n0.2\tg2\td2\n"
    by_name = read_links(write("pairs.tsv", table), pairs_columns=("disease", "gene"))
    by_place = read_links(write("pairs.tsv", table), pairs_columns=(2, 1))
    mixed = read_links(write("pairs.tsv", table), pairs_columns=("disease", 1))
    assert named(by_name) == named(by_place) == named(mixed) == {("d1", "g1"), ("d2", "g2")}
    assert by_name.report.files[0].header == ("score", "gene", "disease")


def test_names_of_columns_in_a_comment(write):
    links = read_links(write("pairs.tsv", "#gene\tdisease\ng1\td1\ng2\td2\n"), pairs_columns=("disease", "gene"))
    assert named(links) == {("d1", "g1"), ("d2", "g2")}


def test_further_columns_of_pairs_are_ignored_but_missing_ones_at_the_end_are_fine(write):
    assert len(read_links(write("pairs.tsv", "d1\tg1\t0.5\tx\nd2\tg2\t0.5\nd3\tg1\n"))) == 3


def test_duplicates_are_counted_and_merged(write):
    links = read_links(write("pairs.tsv", PAIRS + "d1\tg1\n d1\tg1 \n"))
    assert len(links) == 4
    assert links.report.files[0].duplicates == 2
    assert "2 duplicates" in str(links.report)


def test_edges_are_merged_in_either_direction_and_keep_the_largest_weight(write):
    links = read_links(
        write("pairs.tsv", PAIRS),
        row_edges=write("rows.tsv", "d1\td2\t0.5\nd2\td1\t0.25\nd1\td2\t0.5\nd3\td3\t1\nd2\td3\t1e-3\n"),
        col_edges=write("cols.csv", "g1,g2\ng2,g1\ng1,g4\n"),
    )
    assert edges(links, "row") == {("d1", "d2"): 0.5, ("d2", "d3"): 1e-3}
    assert edges(links, "col") == {("g1", "g2"): 1.0, ("g1", "g4"): 1.0}
    row, col = links.report.files[1:]
    assert (row.duplicates, row.self_links, col.duplicates) == (2, 1, 1)


def test_weights_can_be_left_out_by_naming_two_columns(write):
    table = write("rows.tsv", "a\tb\tkind\nd1\td2\tfriend\nd2\td3\tfoe\n")
    links = read_links(write("pairs.tsv", PAIRS), row_edges=table, row_edges_columns=("a", "b"))
    assert edges(links, "row") == {("d1", "d2"): 1.0, ("d2", "d3"): 1.0}


def test_weights_by_name(write):
    table = write("rows.csv", "w,one,two\n2,d1,d2\n3,d2,d3\n")
    links = read_links(write("pairs.tsv", PAIRS), row_edges=table, row_edges_columns=("one", "two", "w"))
    assert edges(links, "row") == {("d1", "d2"): 2.0, ("d2", "d3"): 3.0}


def test_edges_bring_new_rows_and_columns(write):
    links = read_links(
        write("pairs.tsv", "d1\tg1\n"),
        write("rows.tsv", "d1\tnew\n"),
        write("cols.tsv", "g1\tother\n"),
    )
    assert links.row_ids == ("d1", "new")
    assert links.col_ids == ("g1", "other")


def test_the_papers_filters(write):
    files = [write("pairs.tsv", PAIRS), write("rows.tsv", "d1\td2\nd3\td3\n"), write("cols.tsv", "g1\tg4\nx\ty\n")]
    links = read_links(*files, filters="paper")
    assert links.row_ids == ("d1", "d2")  # d3 is linked to itself only
    assert links.col_ids == ("g1", "g4", "x", "y")
    assert named(links) == {("d1", "g1"), ("d2", "g1")}
    report = links.report
    assert (report.dropped_rows, report.dropped_cols, report.dropped_links) == (1, 1, 2)
    assert "dropped 2 pairs" in links.source
    assert str(report).endswith("2 rows x 4 columns, 2 links; filters paper dropped 1 row, 1 column and 2 links")
    assert (report.row_drops, report.col_drops) == ((Dropped("d3", "d3", 1),), (Dropped("g2", "g2", 1),))
    everything = read_links(*files, filters="none")
    assert everything.shape == (3, 5)
    assert len(everything) == 4
    assert everything.report.dropped_links == 0


def test_a_side_without_a_graph_is_not_filtered(write):
    links = read_links(write("pairs.tsv", PAIRS), col_edges=write("cols.tsv", "g1\tg2\n"), filters="paper")
    assert links.row_ids == ("d1", "d2", "d3")
    assert links.col_ids == ("g1", "g2")


def test_an_edge_of_weight_zero_is_no_link(write):
    edges = write("rows.tsv", "d1\td2\t1\nd2\td3\t0\n")
    assert read_links(write("pairs.tsv", PAIRS), row_edges=edges, filters="paper").row_ids == ("d1", "d2")


def test_by_default_everything_with_a_link_is_kept(write):
    """Known links of ids without an edge, and ids of edges without a known link; what has neither goes."""
    files = [
        write("pairs.tsv", PAIRS),
        write("rows.tsv", "d1\td2\t1\nlone\tlone\t1\nnil\td1\t0\n"),
        write("cols.tsv", "g1\tg4\nx\ty\n"),
    ]
    links = read_links(*files)
    assert links.row_ids == ("d1", "d2", "d3")
    assert links.col_ids == ("g1", "g2", "g4", "x", "y")
    assert named(links) == named(read_links(files[0]))
    assert str(links.report).endswith("filters linked dropped 2 rows, 0 columns and 0 links")
    assert links.report.row_drops == (Dropped("lone", "lone", 0), Dropped("nil", "nil", 0))
    assert read_links(*files, filters="none").row_ids == ("d1", "d2", "d3", "lone", "nil")


def test_a_dropped_row_is_found_by_id_and_name(write):
    names = write("names.tsv", "d3\tRetinitis pigmentosa\nlone\tGout\n")
    edges = write("rows.tsv", "d1\td2\nlone\tlone\n")
    report = read_links(write("pairs.tsv", PAIRS), edges, row_names=names, filters="paper").report
    dropped = Dropped("d3", "Retinitis pigmentosa", 1)
    for text in ("d3", "Retinitis pigmentosa", " retinitis PIGMENTOSA "):
        assert report.find_dropped_row(text) == dropped
    assert report.keeping(dropped) == "linked"
    assert report.keeping(report.find_dropped_row("gout")) == "none"
    assert report.find_dropped_row("d1") is None


def test_names(write):
    links = read_links(
        write("pairs.tsv", PAIRS),
        row_names=write("rows.tsv", "id\tname\nd1\tAsthma\nd1\tAsthma\nd2\t\nunused\tX\n"),
        col_names=write("cols.csv", 'gene,symbol\ng1,"A, B"\n'),
    )
    assert links.row_names == ("Asthma", "d2", "d3")
    assert links.col_names == ("A, B", "g2", "g4")
    assert "2 of 3 ids are in use" in str(links.report)


def test_the_report_goes_on_with_parts_of_the_set(write):
    links = read_links(write("pairs.tsv", PAIRS))
    assert links.keep(rows=[0]).report is links.report
    assert links.subsample(0.5).report is links.report


def test_a_read_set_can_be_fitted_to(write):
    links = read_links(write("pairs.tsv", PAIRS), row_edges=write("rows.tsv", "d1\td2\nd2\td3\n"))
    assert links.prior()(torch.tensor([0]), torch.tensor([0])).mean.shape == (1,)
    assert len(links.links()) == 4


IDS = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters='"#,;\t'), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.sets(st.tuples(IDS, IDS), min_size=1, max_size=12),
    delimiter=st.sampled_from("\t,;"),
    end=st.sampled_from(["\n", "\r\n"]),
    header=st.booleans(),
    compressed=st.booleans(),
    repeats=st.integers(1, 3),
)
def test_any_pairs_come_back(tmp_path, pairs, delimiter, end, header, compressed, repeats):
    lines = ["one" + delimiter + "two"] * header + [delimiter.join(pair) for pair in pairs] * repeats
    content = end.join(lines).encode()
    path = tmp_path / "table"
    path.write_bytes(gzip.compress(content) if compressed else content)
    links = read_links(path, header=header)
    assert named(links) == pairs
    assert links.report.files[0].duplicates == len(pairs) * (repeats - 1)
