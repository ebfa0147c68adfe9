"""``mvgp rank`` with --report, --json and --parquet: what is written, and what is refused before the fit."""

import csv
import importlib.util
import json

import pytest

from mvgp.prioritise.ranking import outputs
from mvgp.prioritise.report.record import COLUMNS
from tests.prioritise.cli.runner import command
from tests.prioritise.cli.tables import M, inputs, write_tables

QUICK = ["--model", "popularity", "--top", "3"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def refused(capsysbinary, tmp_path):
    """Runs a command that has to fail with one line that holds all the words, and to leave everything as it is."""

    def check(*arguments, words):
        before = sorted(tmp_path.rglob("*"))
        found = command(capsysbinary, *arguments)
        assert (found.code, found.out) == (2, "")
        assert found.err.count("\n") == 1, found.err
        for word in words:
            assert word in found.err, found.err
        assert sorted(tmp_path.rglob("*")) == before

    return check


def test_a_page_of_chosen_rows(tables, tmp_path, capsysbinary):
    given = ["rank", *inputs(tables), *QUICK, "--row", "D03", "--row", "D04"]
    found = command(capsysbinary, *given, "--report", tmp_path / "page", "--json", tmp_path / "l.json")
    assert found.code == 0, found.err
    assert "GENE" in found.out  # the lists are shown, too
    assert f"wrote {tmp_path / 'page' / 'report.html'}" in found.err
    record = json.loads((tmp_path / "l.json").read_text())
    assert [entry["row_id"] for entry in record["lists"]] == ["D03", "D04"]
    assert json.loads((tmp_path / "page" / "lists.json").read_text())["lists"] == record["lists"]
    page = (tmp_path / "page" / "report.html").read_text(encoding="utf-8")
    assert "Genes for 2 diseases" in page


def test_a_page_of_all_rows_and_a_table(tables, tmp_path, capsysbinary):
    given = ["rank", *inputs(tables), *QUICK, "--row-word", "patient", "--col-word", "drug"]
    found = command(capsysbinary, *given, "--report", tmp_path / "page", "--quiet")
    assert (found.code, found.out, found.err) == (0, "", "")
    record = json.loads((tmp_path / "page" / "lists.json").read_text())
    assert len(record["lists"]) == M
    assert record["words"] == {"row": "patient", "col": "drug"}
    assert "Drugs for 12 patients" in (tmp_path / "page" / "report.html").read_text(encoding="utf-8")
    both = command(capsysbinary, *given, "--report", tmp_path / "page", "--out", tmp_path / "l.tsv", "--quiet")
    assert both.code == 0, both.err
    with open(tmp_path / "l.tsv") as plain, open(tmp_path / "page" / "lists.tsv") as beside:
        ours, theirs = (list(csv.DictReader(file, delimiter="\t")) for file in (plain, beside))
    assert list(theirs[0]) == list(COLUMNS)
    assert [line["col_id"] for line in ours] == [line["col_id"] for line in theirs]
    assert [line["score"] for line in ours] == [line["score"] for line in theirs]


@pytest.mark.slow
def test_a_kept_model_has_a_page(tables, tmp_path, capsysbinary):
    kept = tmp_path / "kept.mvgp"
    assert command(capsysbinary, "rank", *inputs(tables), "--save", kept, "--quiet").code == 0
    found = command(capsysbinary, "rank", "--load", kept, "--row", "D03", "--report", tmp_path / "page", "--top", "5")
    assert found.code == 0, found.err
    (entry,) = json.loads((tmp_path / "page" / "lists.json").read_text())["lists"]
    assert len(entry["candidates"]) == 5
    assert entry["network"]["edges"]  # of the graph that auto keeps


def test_what_cannot_be_written_is_refused_before_the_fit(tables, tmp_path, refused, monkeypatch):
    given = ["rank", *inputs(tables), *QUICK]
    (tmp_path / "file").write_text("")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.json").write_text("{}")
    refused(*given, "--report", tmp_path / "file", words=["--report", "directory"])
    refused(*given, "--report", tmp_path / "my.html", words=["--report", "directory", "name of a file"])
    refused(*given, "--report", tmp_path / "study", words=["--report", "study"])
    refused(*given, "--json", tmp_path / "no" / "l.json", words=["--json", "existing directory"])
    refused(*given, "--json", tables / "pairs.tsv", words=["--json", "read or written"])
    refused(*given, "--json", tmp_path / "x", "--out", tmp_path / "x", words=["--json", "read or written"])
    refused(*given, "--json", "-", words=["--json", "path of a file"])
    refused(*given, "--row-word", "x", "--row", "D01", words=["--row-word", "--report"])
    refused(*given, "--report", tmp_path / "p", "--col-word", " ", words=["--col-word", "a word"])
    refused(
        *given, "--out", "l.tsv", "--format", "xml", words=["--format: expected 'tsv', 'jsonl', 'parquet' or 'pheval'"]
    )
    refused(*given, "--row", "D01", "--format", "jsonl", words=["--format: expected a file to write", "without --out"])
    refused(*given, "--out", "-", "--format", "parquet", words=["--format: expected a file for parquet, got -"])
    monkeypatch.setattr(outputs, "has_pyarrow", lambda: False)
    for option in ("--parquet", "--out"):
        refused(
            *given, option, tmp_path / "l.parquet", words=[f"{option}: expected pyarrow", "pip install 'mvgp[parquet]'"]
        )


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow")
def test_parquet(tables, tmp_path, capsysbinary):
    from pyarrow import parquet

    found = command(capsysbinary, "rank", *inputs(tables), *QUICK, "--parquet", tmp_path / "l.parquet", "--quiet")
    assert found.code == 0, found.err
    assert parquet.read_table(tmp_path / "l.parquet").num_rows == 3 * M


def test_out_follows_its_ending_and_format(tables, tmp_path, capsysbinary):
    given = ["rank", *inputs(tables), *QUICK, "--row", "D03", "--quiet"]
    table, lines, genes = tmp_path / "l.tsv", tmp_path / "l.jsonl", tmp_path / "genes.tsv"
    for more in (["--out", table], ["--out", lines], ["--out", genes, "--format", "pheval"]):
        found = command(capsysbinary, *given, *more)
        assert (found.code, found.out, found.err) == (0, "", "")
    with open(table) as file:
        plain = list(csv.DictReader(file, delimiter="\t"))
    entries = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [entry["col_id"] for entry in entries] == [line["col_id"] for line in plain]
    assert [entry["std"] for entry in entries] == [None] * 3
    with open(genes) as file:
        results = list(csv.DictReader(file, delimiter="\t"))
    assert list(results[0]) == ["gene_symbol", "gene_identifier", "score", "grouping_id"]
    assert {one["grouping_id"] for one in results} == {"D03"}
    assert [one["gene_identifier"] for one in results] == [line["col_id"] for line in plain]
    shown = command(capsysbinary, *given, "--out", "-", "--format", "jsonl")
    assert shown.out == lines.read_text()


def test_words_of_a_report(tmp_path, capsysbinary, refused):
    study = {"format": 1, "title": "T", "settings": {}, "data": {"source": "s", "rows": 3}, "versions": {}}
    study |= {"finished": True, "units": {"done": 0, "total": 0}, "seconds": 0.0}
    (tmp_path / "study.json").write_text(json.dumps(study))
    refused("report", tmp_path, "--row-word", "", words=["--row-word", "a word"])
    found = command(capsysbinary, "report", tmp_path, "--row-word", "city")
    assert found.code == 0, found.err
    assert "cities" in (tmp_path / "report.html").read_text(encoding="utf-8")
