"""Names from data: harmless in tables and on terminals, and not lost."""

import csv
import io
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mvgp.prioritise import Prioritisation, RankedRow
from mvgp.text import FORMULAS, UNSAFE, from_cell, to_cell, visible

NAMES = [
    "=1+1",
    " +x",
    "\t-5",
    "\r@a",
    '"=1"',
    "'quoted",
    "a\x1b[31mb",
    "a\x9bb",
    "\u202eabc",
    "back\\slash",
    "\\t",
    "\x7f",
    "[red]x",
]


@given(st.text(st.one_of(st.characters(), st.sampled_from("\\'\"=+-@\t\r\n\x1b tnrxu0")), max_size=12))
def test_cells_there_and_back(text):
    cell = to_cell(text)
    assert from_cell(cell) == text
    assert not set(visible(cell)) ^ set(cell)  # nothing is left to escape
    assert cell.lstrip()[:1] not in {*FORMULAS, '"'}
    assert next(csv.reader(io.StringIO(f"{cell}\tx\n"), delimiter="\t")) == [cell, "x"]


def test_every_short_text_there_and_back():
    """All texts of up to four of the letters that matter: nothing is drawn, and no two have the same cell."""
    texts = ["".join(letters) for size in range(5) for letters in itertools.product("'\"=- \\tx\t\u3000", repeat=size)]
    cells = [to_cell(text) for text in texts]
    assert [from_cell(cell) for cell in cells] == texts
    assert len(set(cells)) == len(texts)


def test_an_apostrophe_that_nobody_put_there_stays():
    """In tables that were edited by hand, say."""
    for cell in ("'", "' ", "'a", "'t Hooft", r"'\\", "'\u3000"):
        assert cell not in {to_cell(text) for text in (cell[1:], from_cell(cell[1:]))}
        assert from_cell(cell) == "'" + from_cell(cell[1:])


@pytest.mark.parametrize("name", NAMES)
def test_ranked_lists(name, tmp_path):
    """Names reach neither a file nor a screen as they are; numbers stay numbers."""
    one = torch.tensor([-0.5])
    row = RankedRow(0, name, name, torch.tensor([0]), (name,), (name,), one, one.abs(), one.abs(), one > 0, 1, "trace")
    Prioritisation((row,), "trace", "").write(tmp_path / "out.tsv")
    header, line = (tmp_path / "out.tsv").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    cells = dict(zip(header.split("\t"), line.split("\t"), strict=True))
    for column in ("row_id", "row_name", "col_id", "col_name"):
        assert from_cell(cells[column]) == name
        assert cells[column].lstrip()[0] not in FORMULAS
        assert visible(cells[column]) == cells[column]
    assert cells["score"] == "-0.5"
    assert visible(str(row).replace("\n", "")) == str(row).replace("\n", "")


def test_ordinary_names_stay():
    for name in ("IL-4", "Marfan syndrome, type 1", "β-thalassemia", "HLA-DRB1*15:01", ""):
        assert to_cell(name) == visible(name) == name
    assert UNSAFE
