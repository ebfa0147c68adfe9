"""What is wrong with a table is said in one line, with file and line."""

import gzip
import re

import pytest

from mvgp.errors import InputError
from mvgp.prioritise.tables import TableError, read_links

GOOD = b"d1\tg1\nd1\tg2\nd2\tg1\n"
ZIPPED = gzip.compress(GOOD * 50)

BAD_PAIRS = {
    "empty file": (b"", "got an empty file"),
    "only blank lines": (b"\n\n  \n", "got an empty file"),
    "only comments": (b"# nothing\n\n", "only comments"),
    "only a header": (b"disease_id\tgene_id\n", "expected lines below the header, got only 'disease_id"),
    "one column": (b"d1\nd2\n", "line 1: expected at least 2 fields"),
    "one field on a line": (b"d1\tg1\n\nd2\n", "line 3: expected at least 2 fields separated by a tab, got 1: 'd2'"),
    "spaces for tabs": (b"d1 g1\nd2 g2\n", r"line 1: .* \(tab, semicolon or comma would do\): 'd1 g1'"),
    "more fields than the first line": (b"d1,g1\nd2,g2,x\n", "line 2: expected at most 2 fields.* got 3"),
    "empty id": (b"d1\tg1\n\tg1\n", "line 2: expected an id in column 1, got nothing"),
    "empty second id": (b"d1\tg1\nd1\t \n", "line 2: expected an id in column 2, got nothing"),
    "not UTF-8": (b"d1\tg1\nd\xe9\tg1\n", "line 2: expected UTF-8 text, got byte 0xe9"),
    "UTF-16": ("d1\tg1\n".encode("utf-16"), "got UTF-16 text"),
    "zero bytes": (b"d1\tg1\nd\x002\tg1\n", "line 2: expected text, got a zero byte"),
    "a spreadsheet": (b"PK\x03\x04xyz", "a ZIP archive or a spreadsheet"),
    "open quote": (b'd1,g1\n"d2,g1\n', "line 2: expected every quote to be closed"),
    "truncated gzip": (ZIPPED[: len(ZIPPED) // 2], "the gzip file is truncated"),
    "gzip without its end": (ZIPPED[:-4], "the gzip file is truncated"),
    "damaged gzip": (ZIPPED[:2] + b"\x07" + ZIPPED[3:], "the gzip file is damaged"),
    "wrong sum in gzip": (ZIPPED[:-8] + b"\0\0\0\0" + ZIPPED[-4:], "the gzip file is damaged"),
    "huge line": (b"d1\tg1\n" + b"x" * 1_000_001, "line 2: expected at most 1000000 characters, got 1000001"),
}

BAD_EDGES = {
    "non-numeric weight": (b"d1\td2\t1\nd2\td1\tlow\n", "line 2: expected a weight.* got 'low' .without that column"),
    "the first weight": (b"d1\td2\tlow\nd2\td1\t1\n", "line 1: expected a weight.* got 'low'"),
    "negative weight": (b"d1\td2\t-1\n", "line 1: expected a weight, a finite number of at least 0, got '-1'$"),
    "nan weight": (b"d1\td2\tnan\n", "line 1: .* got 'nan'$"),
    "infinite weight": (b"d1\td2\tinf\n", "line 1: .* got 'inf'$"),
    "empty weight": (b"d1\td2\t\n", "line 1: .* got ''"),
    "weight with an underscore": (b"d1\td2\t1_0\n", "line 1: .* got '1_0'"),
    "decimal comma": (b"d1;d2;0,5\n", "line 1: .* got '0,5'"),
    "weight missing on a line": (b"d1\td2\t1\nd1\td2\n", "line 2: expected at least 3 fields"),
    "ids that match nothing": (
        b"x1\tx2\nx3\tx4\nx5\tx1\n",
        r"none of its 5 ids \('x1', 'x2', 'x3', ...\) is among the 2 row ids there \('d1', 'd2'\)$",
    ),
    "ids of the other side": (b"g1\tg2\n", "2 are among its column ids: are its columns the other way round"),
}


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


def assert_refused(expected, *args, **kwargs):
    with pytest.raises(InputError) as found:
        read_links(*args, **kwargs)
    message = str(found.value)
    assert re.search(expected, message), message
    assert "\n" not in message
    return found.value


@pytest.mark.parametrize("kind", BAD_PAIRS)
def test_bad_pairs(tmp_path, kind):
    content, expected = BAD_PAIRS[kind]
    path = written(tmp_path, "pairs.tsv", content)
    error = assert_refused(expected, path)
    assert isinstance(error, TableError)
    assert str(error).startswith(str(path))
    assert error.path == path
    assert expected.startswith("line ") == (error.line is not None)


@pytest.mark.parametrize("kind", BAD_EDGES)
def test_bad_edges(tmp_path, kind):
    content, expected = BAD_EDGES[kind]
    assert_refused(expected, written(tmp_path, "pairs.tsv", GOOD), written(tmp_path, "rows.tsv", content))


def test_no_file_a_directory_and_no_gzip(tmp_path):
    assert_refused("there is no such file", tmp_path / "missing.tsv")
    assert_refused("expected a file, got a directory", tmp_path)
    assert_refused("as its name says, got a file that begins with b'd1", written(tmp_path, "pairs.tsv.gz", GOOD))
    assert_refused("as its name says, got an empty file", written(tmp_path, "empty.gz", b""))
    assert_refused("there is no such file", written(tmp_path, "pairs.tsv", GOOD), tmp_path / "missing.tsv")
    assert_refused("cannot be read", "pairs\0.tsv")
    assert_refused("expected the path of a file, got 7", 7)
    assert_refused("cannot be read: Not a directory", tmp_path / "pairs.tsv" / "x")


def test_a_name_of_a_column_that_is_not_there(tmp_path):
    path = written(tmp_path, "pairs.tsv", b"disease\tgene\nd1\tg1\n")
    assert_refused(
        "line 1: no column is called 'genes'; there are 'disease', 'gene'", path, pairs_columns=("disease", "genes")
    )
    twice = written(tmp_path, "twice.tsv", b"x\tx\nd1\tg1\n")
    assert_refused("more than one column is called 'x'", twice, pairs_columns=("x", 1))
    assert_refused("line 1: expected at least 6 fields", path, pairs_columns=(0, 5))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"filters": "all"}, "filters: expected 'linked', 'paper' or 'none', got 'all'"),
        ({"header": "yes"}, "header: expected True, False or None, got 'yes'"),
        ({"delimiter": ",,"}, "delimiter: expected one character"),
        ({"pairs_columns": "ab"}, "pairs_columns: expected 2 names or places"),
        ({"pairs_columns": (0, 1, 2)}, "pairs_columns: expected 2 names"),
        ({"pairs_columns": (0, -1)}, "pairs_columns: expected names or places .from 0. of columns, got -1"),
        ({"pairs_columns": (0, True)}, "pairs_columns: .* got True"),
        ({"pairs_columns": (0, 0)}, "pairs_columns: expected different columns"),
        ({"pairs_columns": ("a", "b"), "header": False}, "columns have names in a header only"),
        ({"row_edges_columns": (0,)}, "row_edges_columns: expected 2 or 3 names"),
        ({"col_names_columns": (0, 1, 2)}, "col_names_columns: expected 2 names"),
    ],
)
def test_bad_options(tmp_path, options, expected):
    assert_refused(expected, written(tmp_path, "pairs.tsv", GOOD), **options)


def test_bad_names(tmp_path):
    pairs = written(tmp_path, "pairs.tsv", GOOD)
    names = written(tmp_path, "names.tsv", b"d1\tA\nd2\tB\nd1\tC\n")
    assert_refused("line 3: expected one name for 'd1', got 'C' after 'A' on line 1", pairs, row_names=names)
    assert_refused(
        "none of its 2 ids .* 2 column ids there", pairs, col_names=written(tmp_path, "n.tsv", b"z1\tA\nz2\tB\n")
    )
    assert_refused("line 1: expected at least 2 fields", pairs, col_names=written(tmp_path, "n.tsv", b"g1\n"))


def test_everything_filtered_away(tmp_path):
    pairs = written(tmp_path, "pairs.tsv", b"d1\tg1\nd2\tg2\n")
    rows, cols = written(tmp_path, "r.tsv", b"d1\tx\n"), written(tmp_path, "c.tsv", b"g2\ty\n")
    expected = "none of the 2 pairs .* 2 of 3 rows .* 2 of 3 columns .* filters='linked'"
    assert_refused(expected, pairs, rows, cols, filters="paper")
    assert len(read_links(pairs, rows, cols)) == len(read_links(pairs, rows, cols, filters="none")) == 2
    itself = written(tmp_path, "self.tsv", b"d1\td1\n")
    assert_refused("none of the 2 pairs .* 0 of 2 rows", pairs, itself, filters="paper")
    assert len(read_links(pairs, itself)) == 2
