"""The reader: headers are recognised, cells come back as they are, and what it needs is stated."""

import sys

import pytest

from mvgp.errors import InputError
from mvgp.prioritise.tables import TableError, read_links
from mvgp.prioritise.tables.reader import is_header, read_table

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


@pytest.mark.parametrize(
    ("content", "delimiter", "expected"),
    [
        ("007\tNA\nnull\t1e5\n", None, (["007", "null"], ["NA", "1e5"])),
        ("\ufeff\ufeffa\tb\n", None, (["\ufeffa"], ["b"])),  # the first mark only is that of the file
        ("aéb\ncéd\n", "é", (["a", "c"], ["b", "d"])),  # no single byte in UTF-8
        ("a\u2028\x0bb\tc\n", None, (["a\u2028\x0bb"], ["c"])),  # neither ends a line
        ('a, "b,c" \n"d""e",f "g" h\n', None, None),  # a quote that closes before the field ends
        ('a, "b,c"\n"d""e",f "g" h\n', None, (["a", 'd"e'], ["b,c", 'f "g" h'])),
        ('x\t"a ""b"""\n"y\t"\n', None, (["x", '"y'], ['a "b"', '"'])),
    ],
)
def test_cells_are_text(tmp_path, content, delimiter, expected):
    path = tmp_path / "table"
    path.write_text(content, encoding="utf-8")
    if expected is None:
        with pytest.raises(TableError, match="line 1: expected every quote to be closed on its line"):
            read_table(path, None)
    else:
        assert read_table(path, None, header=False, delimiter=delimiter).columns == expected


def test_the_first_wrong_line_is_the_one_named(tmp_path):
    path = tmp_path / "table"
    path.write_text('a,b\n\n# x\nc\n"d,e\n')
    with pytest.raises(TableError, match="line 4: expected at least 2 fields separated by a comma, got 1: 'c'"):
        read_table(path, None)


def test_pandas_is_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "table"
    path.write_text("a\tb\n")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"tables are read with pandas .*pip install 'mvgp\[cli\]'"):
        read_table(path, None)
