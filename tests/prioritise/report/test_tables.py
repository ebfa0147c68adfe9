"""Tables and descriptions: what is read, and what is refused with its place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvgp.errors import InputError
from mvgp.prioritise.report import write_report
from mvgp.prioritise.report.page import TABLES, Column, read_study, read_table
from mvgp.text import to_cell
from tests.prioritise.report.studies import write_description, write_study, write_table

COLUMNS = [
    Column("name", "text"),
    Column("count", "integer", low=0),
    Column("share", "number", optional=True, low=0, high=1),
]


def read(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, COLUMNS)


def test_values_order_and_other_columns(tmp_path):
    table = read(tmp_path / "t.tsv", "share\tname\tmore\tcount\n0.5\ta\tx\t3\n\tb\u2028c\t\t0\r\nnan\tb\ty\t1\n")
    assert table.rows[0] == {"share": 0.5, "name": "a", "more": "x", "count": 3}
    assert table.rows[1] == {"share": None, "name": "b\u2028c", "more": "", "count": 0}
    assert table.rows[2]["share"] is None
    assert table.distinct("name") == ["a", "b\u2028c", "b"]


@given(st.lists(st.text(min_size=1), min_size=1))
def test_names_come_back_as_they_were(tmp_path_factory, names):
    """As cells, which is how they are written; some texts are not the cell of themselves."""
    path = tmp_path_factory.mktemp("names") / "t.tsv"
    table = read(path, "name\tcount\tshare\n" + "".join(f"{to_cell(name)}\t1\t\n" for name in names))
    assert [row["name"] for row in table] == names


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"t\.tsv, line 1: expected a header with the columns name, count, share"),
        ("\n", r"line 1: expected a header"),
        ("name\tcount\n", r"line 1: expected the columns share, got name, count"),
        ("name\tcount\tshare\tname\n", r"line 1: expected each column once, got 'name' 2 times"),
        ("name\tcount\tshare\na\t1\n", r"line 2: expected 3 columns as in the header, got 2"),
        ("name\tcount\tshare\na\t1\t\n\n", r"line 3: expected 3 columns as in the header, got 1"),
        ("name\tcount\tshare\na\t1\t0.5\tx\n", r"line 2: expected 3 columns as in the header, got 4"),
        (
            "name\tcount\tshare\na\t1\t\nb\tmany\t\n",
            r"line 3, column count: expected a whole number of at least 0, got 'many'",
        ),
        ("name\tcount\tshare\na\t1.5\t\n", r"line 2, column count: .* got '1\.5'"),
        ("name\tcount\tshare\na\t-1\t\n", r"line 2, column count: .* got '-1'"),
        ("name\tcount\tshare\na\t\t\n", r"line 2, column count: .* got ''"),
        ("name\tcount\tshare\na\tinf\t\n", r"line 2, column count"),
        ("name\tcount\tshare\na\t1\t1.1\n", r"column share: expected a number from 0 to 1 or nothing, got '1\.1'"),
        ("name\tcount\tshare\na\t1\tinf\n", r"column share"),
        ("name\tcount\tshare\na\t1\t" + "x" * 999 + "\n", r"column share: .{0,150}$"),
        (b"name\tcount\tshare\n\xff\t1\t\n", r"line 2: expected UTF-8 text, got byte 0xff"),
    ],
)
def test_malformed_tables(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path / "t.tsv", content)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_checked(tmp_path, name):
    write_study(tmp_path, rows=1, top=2, folds=1)
    path = tmp_path / "tables" / f"{name}.tsv"
    lines = path.read_text().split("\n")
    path.write_text("\n".join([lines[0], lines[1] + "\tone more", *lines[2:]]))
    with pytest.raises(InputError, match=rf"{name}\.tsv, line 2"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"study\.json, line 1, column 2: expected JSON"),
        ("[]", r"expected a study of format 1, got 'list'"),
        ('{"format": 2}', r"expected a study of format 1, got 2"),
        ('{"format": 1}', r"expected 'title' of the study to be str, got None"),
        (b"\xff", r"expected text in UTF-8"),
    ],
)
def test_malformed_descriptions(tmp_path, content, message):
    (tmp_path / "study.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        read_study(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"finished": 1}, "'finished' of the study to be bool, got 1"),
        ({"seconds": True}, "'seconds' of the study to be int or float, got True"),
        ({"units": {"done": 1}}, "'total' of units to be int, got None"),
        ({"data": None}, "'data' of the study to be dict"),
    ],
)
def test_wrong_entries_of_a_description(tmp_path, change, message):
    write_description(tmp_path, **change)
    with pytest.raises(InputError, match=message):
        read_study(tmp_path)


def test_not_a_study(tmp_path):
    for directory in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=r"expected the directory of a study, got no study\.json"):
            write_report(directory)


def test_numbers_of_a_description_may_be_of_any_kind(tmp_path):
    write_description(tmp_path, settings={"strengths": [1, 0.5], "models": {"a": [None]}, "x": True}, versions={})
    write_table(tmp_path, "metrics", ["model", "metric", "mean", "std", "folds"], [["a", "AUC", "nan", "", 0]])
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "1, 0.5" in page
    assert json.dumps({"a": [None]}).replace('"', "&quot;") in page
