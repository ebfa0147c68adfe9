"""A header is told from data; in doubt nothing is lost."""

import pytest

from mvgp.prioritise.tables import read_links
from mvgp.prioritise.tables.text import is_header

OMIM = [["OMIM:100100", "OMIM:100300"], ["7157", "672"]]
SYMBOLS = [["asthma", "eczema"], ["IL13", "FLG"]]


@pytest.mark.parametrize(
    ("first", "ids"),
    [
        (["disease_id", "gene_id"], OMIM),
        (["Disease", "Gene Symbol"], SYMBOLS),
        (["diseaseId", "geneSymbol"], SYMBOLS),
        (["protein1", "protein2"], [["9606.ENSP01", "9606.ENSP02"], ["9606.ENSP03", "9606.ENSP04"]]),
        (["gene_a", "gene_b"], [["1", "2"], ["3", "4"]]),
        (["Krankheit", "Gen"], OMIM),  # words, where all ids have digits
        (["source", "Gen"], SYMBOLS),
    ],
)
def test_headers(first, ids):
    assert is_header(first, ids)


@pytest.mark.parametrize(
    ("first", "ids"),
    [
        (["OMIM:100050", "7158"], OMIM),  # neither occurs again, as with most diseases of OMIM
        (["hay fever", "TNF"], SYMBOLS),
        (["Krankheit", "Gen"], SYMBOLS),  # may be a header; kept
        (["gene1", "gene2"], [["gene1", "gene3"], ["gene4", "gene5"]]),
        (["gene7", "gene2"], [["gene1", "gene3"], ["gene4", "gene5"]]),
        (["disease", "gene"], [["disease", "d"], ["g", "h"]]),  # a later line has it
        (["protein C deficiency", "PROC"], SYMBOLS),
        (["a", "x"], [["b"], ["y"]]),
        (["MESH:D001", "TTN"], [[], []]),
        (["asthma", "IL4"], [[], []]),
    ],
)
def test_data(first, ids):
    assert not is_header(first, ids)


def test_a_weight_decides():
    assert is_header(["foo", "bar"], SYMBOLS, weight="Gewicht")
    assert not is_header(["disease", "gene"], SYMBOLS, weight="0.5")
    assert not is_header(["disease", "gene"], SYMBOLS, weight="nan")
    assert not is_header(["disease", "gene"], SYMBOLS, weight="")
    assert not is_header(["asthma", "gene"], SYMBOLS, weight="low")  # data with a wrong weight, to be told


def test_it_can_be_said(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("source\ttarget\na\tb\n")
    assert len(read_links(path)) == len(read_links(path, header=True)) == 1
    assert read_links(path, header=False).row_ids == ("a", "source")
    path.write_text("1\t2\n3\t4\n")
    assert len(read_links(path)) == len(read_links(path, header=False)) == 2
    assert read_links(path, header=True).row_ids == ("3",)
