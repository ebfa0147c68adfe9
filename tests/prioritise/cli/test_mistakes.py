"""A user's mistake: one clear line, exit code 2, no traceback, no output file."""

import gzip
import json
import os
import subprocess
import sys

import pytest

from tests.prioritise.cli.mistakes import MISTAKES, filled, hostile, seen
from tests.prioritise.cli.runner import command
from tests.prioritise.cli.tables import inputs, write_tables

FAST = ["--model", "popularity"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def assert_refused(capsysbinary, tmp_path):
    """Runs a command that has to fail with one line that holds all the words; nothing may be left in tmp_path."""

    def check(*arguments, words, code=2):
        before = sorted(tmp_path.rglob("*"))
        found = command(capsysbinary, *arguments)
        assert found.code == code, found.err
        assert found.out == ""
        assert found.err.startswith("mvgp: ")
        assert found.err.count("\n") == 1, found.err
        assert "Traceback" not in found.err
        for word in words:
            assert word in found.err, found.err
        assert sorted(tmp_path.rglob("*")) == before

    return check


BAD_PAIRS = {
    "empty file": (b"", ["empty"]),
    "comments only": (b"# a comment\n", ["pairs.tsv", "only comments"]),
    "header only": (b"disease\tgene\n", ["pairs.tsv", "below the header"]),
    "one column": (b"D00\nD01\nD02\n", ["line 1"]),
    "wrong encoding": (b"D00\tg00\nD01\tg\xff\xfe\n", ["UTF-8", "line 2"]),
    "binary": (b"\x00\x01\x02\x03" * 100, ["pairs.tsv"]),
    "ids that match nothing": (b"X1\tY1\nX2\tY2\n", ["X1", "D00"]),
    "empty id": (b"D00\tg00\n\tg01\n", ["line 2"]),
}


@pytest.mark.parametrize("kind", BAD_PAIRS)
def test_pairs(kind, tables, tmp_path, assert_refused):
    content, words = BAD_PAIRS[kind]
    (tmp_path / "pairs.tsv").write_bytes(content)
    given = inputs(tables)
    given[1] = tmp_path / "pairs.tsv"
    assert_refused("rank", *given, *FAST, "--out", tmp_path / "out.tsv", words=words)


BAD_EDGES = {
    "non-numeric weight": (b"D00\tD01\t0.5\nD01\tD02\tmuch\n", ["line 2", "much"]),
    "negative weight": (b"D00\tD01\t0.5\nD01\tD02\t-1\n", ["line 2", "-1"]),
    "nan weight": (b"D00\tD01\t0.5\nD01\tD02\tnan\n", ["line 2", "nan"]),
}


@pytest.mark.parametrize("kind", BAD_EDGES)
def test_edges(kind, tables, tmp_path, assert_refused):
    content, words = BAD_EDGES[kind]
    (tmp_path / "rows.tsv").write_bytes(content)
    assert_refused(
        "rank",
        "--pairs",
        tables / "pairs.tsv",
        "--row-edges",
        tmp_path / "rows.tsv",
        "--out",
        tmp_path / "o",
        words=words,
    )


def test_gzip(tables, tmp_path, assert_refused):
    whole = gzip.compress((tables / "pairs.tsv").read_bytes())
    for name, content, words in (("cut.tsv.gz", whole[:-12], ["cut.tsv.gz"]), ("not.tsv.gz", b"D0\tg0\n", ["gzip"])):
        (tmp_path / name).write_bytes(content)
        assert_refused("rank", "--pairs", tmp_path / name, "--out", tmp_path / "out.tsv", words=words)


def test_files_that_are_not_there(tables, tmp_path, assert_refused):
    assert_refused("rank", "--pairs", tmp_path / "none.tsv", "--out", tmp_path / "out.tsv", words=["none.tsv"])
    assert_refused("rank", "--pairs", tmp_path, "--out", tmp_path / "out.tsv", words=["directory"])
    assert_refused("study", "--pairs", tmp_path / "none.tsv", "--out", tmp_path / "study", words=["none.tsv"])


TRACE = ["--model", "trace"]
OPTIONS = {
    "unknown row": (["--row", "diseas 3"], ["did you mean", "'disease 3'"]),
    "ambiguous name": (["--row", "twin"], ["D10, D11"]),
    "unknown model": (["--model", "magic"], ["magic", "trace"]),
    "top 0": (["--top", "0"], ["--top", "at least 1"]),
    "top too large": (["--top", "1000", "--row", "D01"], ["at most 20", "1000"]),
    "top in words": (["--top", "ten"], ["--top", "integer"]),
    "negative seed": (["--seed", "-1"], ["--seed"]),
    "negatives -1": ([*TRACE, "--negatives", "-1"], ["negatives", "-1"]),
    "negatives 0": ([*TRACE, "--negatives", "0"], ["whole"]),
    "negatives for popularity": ([*FAST, "--negatives", "3"], ["popularity"]),
    "strength 0": ([*TRACE, "--strength", "0"], ["strength", "positive"]),
    "strength nan": ([*TRACE, "--strength", "nan"], ["strength"]),
    "strength for popularity": ([*FAST, "--strength", "0.1"], ["popularity"]),
    "trace share 2": ([*TRACE, "--trace-share", "2"], ["trace_share", "from 0 to 1"]),
    "whole lists without a trace norm": (["--model", "whole", "--trace-share", "0"], ["trace norm"]),
    "uncertainty of popularity": ([*FAST, "--row", "D01", "--uncertainty"], ["no uncertainty"]),
    "filters": (["--filters", "some"], ["filters", "'linked'", "'paper'"]),
    "time of popularity": ([*FAST, "--row-time", "2"], ["--row-time", "trace", "popularity"]),
    "shift of neighbours": (["--model", "neighbours", "--col-shift", "2"], ["--col-shift", "neighbours"]),
    "noise of prodige": (["--model", "prodige", "--noise", "2"], ["--noise", "full", "prodige"]),
    "ratio of whole": (["--model", "whole", "--ratio", "2"], ["--ratio", "trace", "whole"]),
    "time 0": ([*TRACE, "--col-time", "0"], ["--col-time", "positive"]),
    "shift -1": ([*TRACE, "--row-shift", "-1"], ["--row-shift", "not negative"]),
    "noise nan": ([*TRACE, "--noise", "nan"], ["--noise", "positive"]),
    "ratio inf": ([*TRACE, "--ratio", "inf"], ["--ratio", "positive"]),
    "unknown option": (["--magic"], ["--magic", "mvgp rank --help"]),
    "stray argument": (["stray"], ["stray"]),
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_options_of_rank(kind, tables, tmp_path, assert_refused):
    given, words = OPTIONS[kind]
    assert_refused("rank", *inputs(tables), *given, "--out", tmp_path / "out.tsv", "--quiet", words=words)


def test_outputs(tables, tmp_path, assert_refused):
    given = ["rank", *inputs(tables), *FAST]
    assert_refused(*given, "--out", tmp_path / "no" / "out.tsv", words=["--out", "existing directory"])
    assert_refused(*given, "--out", tmp_path, words=["--out", "directory"])
    assert_refused(*given, "--out", tmp_path / "out.tsv", "--save", tmp_path, words=["--save", "directory"])
    assert_refused(*given, "--quiet", "--save", tmp_path / "kept", words=["popularity", "cannot be saved"])
    assert_refused(*given, words=["--out", "--row"])
    assert_refused("rank", "--row", "D01", words=["--pairs", "--load"])


def test_loading(tables, tmp_path, assert_refused):
    text, empty = tmp_path / "text.mvgp", tmp_path / "empty.mvgp"
    text.write_text("not a model")
    empty.write_text("")
    assert_refused("rank", "--load", text, "--row", "x", words=["text.mvgp", "saved"])
    assert_refused("rank", "--load", empty, "--row", "x", words=["empty"])
    assert_refused("rank", "--load", tmp_path / "none.mvgp", "--row", "x", words=["none.mvgp"])
    assert_refused("rank", "--load", text, *inputs(tables)[:2], "--row", "x", words=["--load", "--pairs"])
    assert_refused("rank", "--load", text, "--model", "best", "--row", "x", words=["--load", "--model"])


STUDIES = {
    "split": (["--split", "half"], ["split", "half"]),
    "one fold": (["--folds", "1"], ["folds", "1"]),
    "more folds than pairs": (["--folds", "5000"], ["folds", "5000"]),
    "unknown model": (["--models", "popularity,magic"], ["magic"]),
    "model twice": (["--models", "popularity,popularity"], ["popularity"]),
    "subsample 0": (["--subsample", "0"], ["subsample"]),
    "subsample 2": (["--subsample", "2"], ["subsample"]),
    "strengths": (["--strengths", "strong"], ["--strengths", "strong"]),
    "strengths with two signs": (["--strengths", "+-3"], ["--strengths", "+-3"]),
    "strengths as an exponent": (["--strengths", "²"], ["--strengths", "²"]),
    "increasing strengths": (["--strengths", "0.1,0.5"], ["strengths", "decreasing"]),
    "trace shares": (["--trace-shares", "1,2"], ["trace_shares"]),
    "metric": (["--metric", "luck"], ["metric", "luck"]),
    "jobs": (["--jobs", "0"], ["--jobs"]),
    "negatives": (["--negatives", "0"], ["negative"]),
    "seed": (["--seed", "-3"], ["seed"]),
    "dask": (["--dask", "nonsense://nowhere"], ["dask", "nonsense"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", STUDIES)
def test_options_of_study(kind, tables, tmp_path, assert_refused):
    given, words = STUDIES[kind]
    assert_refused("study", *inputs(tables), "--models", "popularity", "--out", tmp_path / "study", *given, words=words)


def test_directories(tables, tmp_path, assert_refused, capsysbinary):
    given = ["study", *inputs(tables), "--models", "popularity", "--folds", "2", "--quiet"]
    (tmp_path / "file").write_text("")
    assert_refused(*given, "--out", tmp_path / "file" / "study", words=["directory"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    assert_refused(*given, "--out", tmp_path / "other", words=["other files"])
    done = command(capsysbinary, *given, "--out", tmp_path / "study")
    assert done.code == 0, done.err
    assert_refused(*given, "--out", tmp_path / "study", "--seed", "1", words=["another", "seed"])
    assert_refused(
        "study", "--pairs", tables / "pairs.tsv", *given[11:], "--out", tmp_path / "study", words=["other data"]
    )


def test_reports(tables, tmp_path, assert_refused):
    assert_refused("report", tmp_path / "none", words=["none"])
    assert_refused("report", tmp_path, words=["study.json"])
    study = tmp_path / "study"
    (study / "tables").mkdir(parents=True)
    description = {"format": 1, "title": "", "settings": {}, "data": {}, "versions": {}, "finished": True}
    (study / "study.json").write_text(json.dumps(description | {"units": {"done": 1, "total": 1}, "seconds": 1.0}))
    (study / "tables" / "metrics.tsv").write_text(
        "model\tmetric\tmean\tstd\tfolds\tfold_0\ntrace\tAUC\thigh\t\t1\t0.5\n"
    )
    assert_refused("report", study, words=["metrics.tsv", "line 2", "mean"])
    assert_refused("report", words=["DIR"])


def test_missing_and_unknown(tmp_path, assert_refused):
    assert_refused("study", "--out", tmp_path / "study", words=["--pairs"])
    assert_refused("magic", words=["magic"])
    assert_refused("demo", "--seed", "-1", "--out", tmp_path / "demo", words=["--seed"])
    assert_refused("demo", "--jobs", "0", "--out", tmp_path / "demo", words=["--jobs"])
    (tmp_path / "file").write_text("")
    assert_refused("demo", "--out", tmp_path / "file", words=["--out", "file"])


@pytest.mark.slow
def test_in_a_process_of_its_own(tables, tmp_path):
    """The same through the entry point: nothing more on stderr than that one line."""
    program = [sys.executable, "-c", "from mvgp.prioritise.cli import main; main()"]
    out = tmp_path / "out.tsv"
    given = [*program, "rank", *map(str, inputs(tables)), "--row", "nobody", "--out", str(out)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("mvgp: row: expected")
    assert done.stderr.count("\n") == 1
    assert not out.exists()


def test_a_row_that_the_filters_dropped(tables, tmp_path, assert_refused):
    (tmp_path / "pairs.tsv").write_text((tables / "pairs.tsv").read_text() + "X77\tg00\n")
    given = ["rank", "--pairs", tmp_path / "pairs.tsv", "--row-edges", tables / "rows.tsv", "--row", "X77", *FAST]
    assert_refused(
        *given, "--filters", "paper", words=["'X77' was dropped", "1 known link with it", "--filters linked keeps it"]
    )
    (tmp_path / "rows.tsv").write_text((tables / "rows.tsv").read_text() + "Y\tY\t1\n")
    (tmp_path / "names.tsv").write_text("X77\tRetinitis pigmentosa\nY\tGout\n")
    given = ["rank", "--pairs", tmp_path / "pairs.tsv", "--row-edges", tmp_path / "rows.tsv", *FAST]
    given += ["--row-names", tmp_path / "names.tsv", "--row", "D01", "--row"]
    words = ["'Retinitis pigmentosa' (X77) was dropped", "--filters linked"]
    assert_refused(*given, "retinitis pigmentosa", "--filters", "paper", words=words)
    assert_refused(*given, "gout", words=["'Gout' (Y) was dropped by --filters linked", "--filters none keeps it"])
    assert_refused(*given, "D77", "--filters", "paper", words=["did you mean"])


def test_a_row_with_a_link_is_kept_by_default(tables, tmp_path, capsysbinary):
    (tmp_path / "pairs.tsv").write_text((tables / "pairs.tsv").read_text() + "X77\tg00\n")
    given = ["rank", "--pairs", tmp_path / "pairs.tsv", "--row-edges", tables / "rows.tsv", "--row", "X77", *FAST]
    found = command(capsysbinary, *given)
    assert found.code == 0, found.err
    assert found.out.startswith("X77\n")
    assert "13 rows x " in found.err
    assert "filters linked dropped 0 rows, 0 columns and 0 links" in found.err


BAD_FEATURES = {
    "a word": (b"id\tx\nD00\t1\nD01\tmuch\n", ["line 3, column x", "'much'"]),
    "nan": (b"id\tx\nD00\t1\nD01\tnan\n", ["line 3, column x", "'nan'"]),
    "constant": (b"id\tx\ty\nD00\t1\t2\nD01\t1\t3\n", ["column x", "1 for each of 2 ids"]),
    "other ids": (b"id\tx\nz1\t1\nz2\t2\n", ["z1", "D00"]),
    "columns' ids": (b"id\tx\ng00\t1\ng02\t2\n", ["the other way round"]),
    "twice": (b"id\tx\nD00\t1\nD01\t2\nD00\t3\n", ["line 4", "'D00'", "line 2"]),
    "no numbers": (b"id\nD00\nD01\n", ["line 1", "at least one number"]),
    "ragged": (b"id\tx\ty\nD00\t1\nD01\t2\t3\n", ["line 2", "3 fields"]),
}


@pytest.mark.parametrize("kind", BAD_FEATURES)
@pytest.mark.parametrize("what", ["rank", "study"])
def test_features(kind, what, tables, tmp_path, assert_refused):
    content, words = BAD_FEATURES[kind]
    (tmp_path / "f.tsv").write_bytes(content)
    given = [what, "--pairs", tables / "pairs.tsv", "--row-features", tables / "row_features.tsv"]
    given += ["--row-features", tmp_path / "f.tsv", "--out", tmp_path / "o"]
    assert_refused(*given, words=["f.tsv", *words])


def test_a_time_needs_a_graph(tables, assert_refused):
    given = ["rank", "--pairs", tables / "pairs.tsv", "--row-edges", tables / "rows.tsv", "--row", "D01", "--quiet"]
    assert_refused(*given, *TRACE, "--col-time", "2", words=["--col-time", "graph of the columns", "got none"])


@pytest.mark.parametrize("option", ["--out", "--save"])
def test_a_place_that_cannot_be_written_is_refused_before_the_fit(
    option, tables, tmp_path, assert_refused, monkeypatch
):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mvgp.prioritise.ranking.prioritiser.fit_prioritiser", lambda *_, **__: pytest.fail("fitted"))
    given = ["rank", *inputs(tables), "--row", "D01", "--quiet", option]
    assert_refused(*given, tmp_path / "no" / "x", words=[option, "existing directory"])
    assert_refused(*given, tmp_path, words=[option, "got a directory"])
    with monkeypatch.context() as patched:
        patched.setattr("mvgp.storage.files.tempfile.TemporaryFile", refuse)
        assert_refused(*given, tmp_path / "x", words=[option, "can be written to", str(tmp_path), "Permission denied"])
    (tmp_path / "kept").write_text("kept")
    with monkeypatch.context() as patched:
        patched.setattr("mvgp.storage.files.os.access", lambda _, mode: mode != os.W_OK)
        assert_refused(*given, tmp_path / "kept", words=[option, "read-only"])


def test_a_place_for_the_assessment_is_looked_at_before_the_fit(tables, tmp_path, assert_refused, monkeypatch):
    monkeypatch.setattr("mvgp.prioritise.ranking.prioritiser.fit_prioritiser", lambda *_, **__: pytest.fail("fitted"))
    (tmp_path / "list.assessment.tsv").mkdir()
    given = ["rank", *inputs(tables), "--row", "D01", "--quiet", "--out", tmp_path / "list.tsv"]
    assert_refused(*given, words=["--out", "list.assessment.tsv", "got a directory"])


def test_a_directory_that_cannot_be_written_is_refused_before_the_study(tables, tmp_path, assert_refused, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mvgp.storage.files.tempfile.TemporaryFile", refuse)
    given = ["study", *inputs(tables), "--models", "popularity", "--out", tmp_path / "new" / "study"]
    assert_refused(*given, words=["--out", "can be written to", f"{tmp_path}: Permission denied"])


@pytest.mark.parametrize("option", ["--out", "--save"])
def test_inputs_are_not_written_over(option, tables, tmp_path, assert_refused):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text((tables / "pairs.tsv").read_text())
    given = ["rank", "--pairs", pairs, "--row", "D01", option, tmp_path / "." / "pairs.tsv"]
    assert_refused(*given, words=[option, "pairs.tsv", "is read"])
    assert pairs.read_text() == (tables / "pairs.tsv").read_text()


@pytest.fixture(scope="module")
def place(tmp_path_factory, tables):
    """Hostile things, and a finished study."""
    from mvgp.prioritise.cli.entry import run

    where = hostile(tmp_path_factory.mktemp("hostile"))
    options = ["--models", "popularity", "--folds", "2", "--quiet", "--out", str(where / "study")]
    assert run(["study", *inputs(tables), *options]) == 0
    return where


@pytest.mark.parametrize("kind", MISTAKES)
def test_every_kind(kind, tables, place, capsysbinary):
    """One clear line that a terminal can bear, exit code 2, and every file as it was."""
    given, words = filled(kind, tables, place)
    before = seen(place), seen(tables)
    found = command(capsysbinary, *given)
    assert (found.code, found.out) == (2, ""), found.err
    assert found.err.startswith("mvgp: ")
    assert found.err.count("\n") == 1, found.err
    assert found.err[:-1].isprintable(), found.err
    for word in words:
        assert word in found.err, found.err
    assert (seen(place), seen(tables)) == before
