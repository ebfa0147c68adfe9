"""Files of ranked lists: every format holds the same candidates, with the types that readers expect."""

import csv
import json
from dataclasses import replace

import pandas as pd
import pytest
import torch
from pyarrow import parquet

from mvgp.errors import InputError
from mvgp.prioritise import Prioritisation, RankedRow
from mvgp.prioritise.ranking import outputs
from mvgp.prioritise.ranking.outputs import HEADER
from mvgp.text import from_cell

SCORE = torch.tensor([0.75, -1.5]).double()
ROW = RankedRow(
    row=0,
    row_id="=D1",
    row_name="Göut\n",
    cols=torch.tensor([4, 2]),
    col_ids=("1", "-2"),
    col_names=("ABCG2", "\ud800"),
    score=SCORE,
    std=SCORE.abs() / 2,
    top_probability=None,
    known=torch.tensor([False, True]),
    k=2,
    model="trace",
    probability=torch.tensor([0.5, torch.nan]).double(),
)
LISTS = Prioritisation((ROW, replace(ROW, row_id="D2", score=SCORE / 3)), "trace", "")
ENTRIES = [entry for row in LISTS for entry in row.entries()]


def test_tables_json_lines_and_parquet_hold_the_same(tmp_path):
    for name in ("l.tsv", "l.jsonl", "l.parquet"):
        LISTS.write(tmp_path / name)
    assert [json.loads(line) for line in (tmp_path / "l.jsonl").read_text().splitlines()] == ENTRIES
    with open(tmp_path / "l.tsv", newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert list(table[0]) == list(HEADER)
    assert [from_cell(line["row_id"]) for line in table] == ["=D1", "=D1", "D2", "D2"]
    assert [float(line["score"]) for line in table] == pytest.approx([entry["score"] for entry in ENTRIES])
    made = parquet.read_table(tmp_path / "l.parquet").to_pylist()
    assert made == [{**entry, "col_name": entry["col_name"].replace("\ud800", "?")} for entry in ENTRIES]
    assert list(pd.read_json(tmp_path / "l.jsonl", lines=True)["col_id"]) == [1, -2, 1, -2]


def test_results_for_pheval(tmp_path):
    """Its schema: two texts, a number and a text without nulls."""
    LISTS.write(tmp_path / "genes.parquet", format="pheval")
    table = parquet.read_table(tmp_path / "genes.parquet")
    kinds = [("gene_symbol", "string"), ("gene_identifier", "string"), ("score", "double"), ("grouping_id", "string")]
    assert [(field.name, str(field.type)) for field in table.schema] == kinds
    assert table.column("grouping_id").to_pylist() == ["=D1", "=D1", "D2", "D2"]
    assert table.column("gene_identifier").to_pylist() == ["1", "-2"] * 2
    LISTS.write(tmp_path / "genes.tsv", format="pheval")
    assert (tmp_path / "genes.tsv").read_text().splitlines()[0].split("\t") == [name for name, _ in kinds]


def test_parquet_in_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "GROUP", 3)
    LISTS.write(tmp_path / "l.parquet")
    file = parquet.ParquetFile(tmp_path / "l.parquet")
    assert (file.num_row_groups, file.metadata.num_rows) == (2, 4)
    Prioritisation((), "trace", "").write(tmp_path / "none.parquet")
    assert parquet.read_table(tmp_path / "none.parquet").column_names == list(HEADER)


def test_mistakes(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="format: expected 'tsv', 'jsonl', 'parquet' or 'pheval', got 'csv'"):
        LISTS.write(tmp_path / "l", format="csv")
    monkeypatch.setattr(outputs, "has_pyarrow", lambda: False)
    with pytest.raises(InputError, match=r"parquet: expected pyarrow.*pip install 'mvgp\[parquet\]'"):
        LISTS.write(tmp_path / "l.parquet")
    assert not list(tmp_path.iterdir())
