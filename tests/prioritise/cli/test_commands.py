"""The commands as they are meant to be used, on small tables."""

import csv
import inspect
import io
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace

import pytest
import torch

import mvgp
from mvgp.prioritise.baselines import BASELINE_NAMES
from mvgp.prioritise.cli import commands, entry, options
from mvgp.prioritise.cli import streams as notes
from mvgp.prioritise.ranking.outputs import HEADER
from mvgp.prioritise.ranking.rows import ASSESSED
from mvgp.prioritise.studies import Study, load_study
from mvgp.prioritise.tables import read_links
from mvgp.prioritise.tables.reader import MAX_BYTES
from mvgp.prioritise.tuning.settings import DEFAULT_MODEL, OF_ONE_LIST, SPLITS, TOP
from mvgp.prioritise.tuning.tune import MODELS
from tests import randomness
from tests.prioritise.cli.runner import command
from tests.prioritise.cli.tables import N, inputs, write_tables

QUICK = ["--model", "trace", "--strength", "0.3", "--negatives", "2"]
PROGRAM = [sys.executable, "-c", "from mvgp.prioritise.cli import main; main()"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("tables"))


def read(text):
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))


def test_version_and_help(capsysbinary):
    assert command(capsysbinary, "--version").out == f"mvgp {mvgp.__version__}\n"
    for arguments in (
        [],
        ["--help"],
        ["rank", "--help"],
        ["study", "--help"],
        ["report", "--help"],
        ["demo", "--help"],
    ):
        found = command(capsysbinary, *arguments)
        assert found.code == 0
        assert "Usage" in found.out
        assert found.err == ""


@pytest.mark.parametrize("arguments", [["--help"], ["rank", "--help"], ["rank", "--magic"], ["study", "--folds", "x"]])
def test_help_and_mistakes_in_options_import_nothing_heavy(arguments):
    """Not even what typer imports to draw help (rich) or to read the values of options (pydantic), but for a wrong value."""
    code = (
        "import sys, typer, rich\nbefore = set(sys.modules)\n"
        "from mvgp.prioritise.cli.entry import run\nrun(sys.argv[1:])\n"
        "added = set(sys.modules) - before\nforeign = {name.partition('.')[0] for name in added} - {'mvgp', 'typer'}\n"
        "print(len(added), *sorted(foreign - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, *foreign = done.stdout.splitlines()[-1].split()
    assert not {"torch", "gpytorch", "pandas", "matplotlib", "scipy", "numpy", "tqdm"} & set(foreign)
    if arguments[-1] != "x":
        assert foreign == []
        assert int(count) <= 30  # 16 when this was written; rich and pydantic are more than 100 each


def test_the_options_state_the_defaults_of_the_library():
    """They are written out, so that help needs nothing of the library."""
    given = {name: option.default for name, option in inspect.signature(commands.study).parameters.items()}
    study = Study()
    for name in ("folds", "run_folds", "lowest", "metric", "subsample", "within_rows", "top", "title", "seed"):
        assert given[name] == getattr(study, name)
    assert given["negatives"] == study.negative_sets
    assert SPLITS[given["split"]] == study.split
    assert given["models"] == ",".join(study.models)
    assert given["strengths"] == str(study.strengths)
    assert tuple(map(float, given["trace_shares"].split(","))) == study.trace_shares
    assert given["calibration_rows"] == study.calibration_rows
    assert given["candidate_rows"] == study.candidate_rows
    assert f"{commands.OWN_MODELS}, {commands.BASELINES}" == ", ".join(MODELS)
    assert ", ".join(BASELINE_NAMES) == commands.BASELINES
    rank = inspect.signature(commands.rank).parameters
    assert rank["model"].default == DEFAULT_MODEL
    assert f"[default: {OF_ONE_LIST['negative_sets']}]" in rank["negatives"].annotation
    assert given["filters"] == rank["filters"].default == inspect.signature(read_links).parameters["filters"].default
    assert f"[default: {study.noise:g};" in options.NOISE
    for text, value in ((options.TIME, study.time), (options.SHIFT, study.shift), (options.RATIO, study.ratio)):
        assert f"[default: {value:g}]" in text
    assert (commands.TOP, commands.MAX_MIB * 2**20) == (TOP, MAX_BYTES)


def test_rank_shows_a_table_for_each_row(tables, capsysbinary):
    found = command(capsysbinary, "rank", *inputs(tables), *QUICK, "--row", "D03", "--row", "Disease 4", "--top", "3")
    assert found.code == 0, found.err
    first, second, one, two, _ = found.out.split("\n\n")  # scores alone come first
    assert [part.splitlines()[0] for part in (first, second)] == ["D03  disease 3", "D04  disease 4"]
    assert not re.search(r"std|P\(top", first + second)
    assert "with standard deviations and P(top 3), which takes seconds to minutes" in found.err
    assert one.splitlines()[0] == "D03  disease 3"
    assert two.splitlines()[0] == "D04  disease 4"
    assert "P(top 3)" in one
    assert len(two.splitlines()) == 5
    assert "12 rows x 20 columns" in found.err


@pytest.fixture(scope="module")
def enough(tmp_path_factory):
    """Tables with enough links to choose by: two blocks in which half of the pairs are links."""
    folder, rng = tmp_path_factory.mktemp("enough"), randomness.numpy_generator(1)
    pairs = [(f"D{m}", f"g{n}") for m in range(40) for n in range(60) if m % 2 == n % 2 and rng.random() < 0.5]
    edges = [[(f"{name}{i}", f"{name}{(i + 2) % size}") for i in range(size)] for name, size in (("D", 40), ("g", 60))]
    for name, lines in (("pairs", pairs), ("rows", edges[0]), ("cols", edges[1])):
        (folder / f"{name}.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    return [
        part
        for option, name in (("pairs", "pairs"), ("row-edges", "rows"), ("col-edges", "cols"))
        for part in (f"--{option}", folder / f"{name}.tsv")
    ]


def test_rank_has_probabilities_and_lengths(enough, tmp_path, capsysbinary):
    kept, ask = tmp_path / "kept.mvgp", ["--row", "D3", "--top", "3", "--coverage", "0.8", "--coverage", "0.5"]
    found = command(capsysbinary, "rank", *enough, *ask, "--save", kept)
    assert found.code == 0, found.err
    assert re.search(r"\d %? ?\(.* to .*\)", found.out) or "order only" in found.out
    for words in ("is among the first", "with probability 0.8", "with probability 0.5"):
        assert words in found.out
    assert "a fifth of the links of a row was hidden at a time" in found.err
    again = command(capsysbinary, "rank", "--load", kept, *ask)
    assert again.out == found.out
    lines = read(command(capsysbinary, "rank", "--load", kept, *ask, "--no-uncertainty", "--quiet", "--out", "-").out)
    assert all((line["probability"] == "") == (line["class"] == "") for line in lines)
    plain = command(capsysbinary, "rank", *enough, *ask[:4], "--no-probabilities", "--no-uncertainty", "--save", kept)
    assert plain.code == 0
    assert "hidden" not in plain.err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--coverage", "1"], "--coverage: expected"),
        (["--coverage", "0.9", "--no-probabilities"], "--coverage: expected it without --no-probabilities"),
    ],
)
def test_coverage_that_makes_no_sense(enough, capsysbinary, more, words):
    found = command(capsysbinary, "rank", *enough, "--row", "D3", *more)
    assert found.code == 2
    assert words in found.err


def test_a_kept_model_without_probabilities_has_no_coverage(enough, tmp_path, capsysbinary):
    kept = tmp_path / "kept.mvgp"
    assert command(capsysbinary, "rank", *enough, "--no-probabilities", "--save", kept, "--quiet").code == 0
    found = command(capsysbinary, "rank", "--load", kept, "--row", "D3", "--coverage", "0.9")
    assert found.code == 2
    assert "saved with probabilities" in found.err


def test_auto_says_how_good_it_is(enough, tmp_path, capsysbinary):
    ask = ["rank", *enough, "--row", "D3", "--top", "3"]
    found = command(capsysbinary, *ask, "--out", tmp_path / "list.tsv")
    assert found.code == 0, found.err
    for words in (
        "rows with held-out links, which had no part",
        "auto ahead in MAP@100",
        "where links are expected",
        "the best of the simple baselines, in MAP@100",
    ):
        assert words in found.err
    lines = read((tmp_path / "list.assessment.tsv").read_text())
    assert [line["model"] for line in lines] == ["auto", "popularity", "neighbours", "propagation"]
    own, popularity = lines[:2]
    assert own["ahead"] == ""
    assert float(popularity["ahead"]) == pytest.approx(float(own["value"]) - float(popularity["value"]), abs=1e-8)
    assert float(popularity["low"]) <= float(popularity["ahead"]) <= float(popularity["high"])
    assert ("not better than popularity" in found.err) == (float(popularity["low"]) <= 0)
    assert f"{float(own['value']):.3f}" in found.err
    quiet = command(capsysbinary, *ask, "--out", tmp_path / "quiet.tsv", "--quiet")
    assert (quiet.out, quiet.err) == ("", "")
    assert (tmp_path / "quiet.assessment.tsv").read_text() == (tmp_path / "list.assessment.tsv").read_text()
    shown = command(capsysbinary, *ask)
    first, second = shown.out.split("\n\n")[:2]  # P(top 3) needs no samples
    assert all("P(top 3)" in part for part in (first, second))
    assert ["std" in part for part in (first, second)] == [False, True]
    assert re.search(r"next the same with standard deviations, which takes about \d+ s", shown.err)
    assert "calibration error of P(top 20)" in shown.err
    assert "rows with held-out links" not in shown.out


def test_trials_are_kept_and_belong_to_one_search(enough, tmp_path, capsysbinary):
    ask = ["rank", *enough, "--row", "D3", "--top", "3", "--no-probabilities", "--quiet"]
    plain = command(capsysbinary, *ask)
    first, second = (command(capsysbinary, *ask, "--trials", tmp_path / "trials.json") for _ in range(2))
    assert first.code == second.code == 0, first.err
    assert plain.out == first.out == second.out
    content = (tmp_path / "trials.json").read_bytes()
    other = command(capsysbinary, *ask, "--trials", tmp_path / "trials.json", "--seed", "1")
    assert other.code == 2
    assert "name a new file" in other.err
    assert other.err.count("\n") == 1
    assert (tmp_path / "trials.json").read_bytes() == content
    wrong = command(capsysbinary, *ask, "--trials", tmp_path / "more.json", "--model", "popularity")
    assert (wrong.code, "trials: they are of auto" in wrong.err) == (2, True)


@pytest.mark.parametrize("low", [-0.1, 0.0, 0.1])
def test_a_list_that_is_no_better_than_popularity_has_a_warning(low, capsysbinary):
    test = SimpleNamespace(difference=0.2, interval=(low, 0.3))
    scores = SimpleNamespace(per_task=lambda _: torch.ones(5))
    judged = SimpleNamespace(
        metric="MAP@100",
        scores={"auto": scores},
        table=lambda: (["model"], [["auto"]]),
        in_words=lambda: "in words",
        comparisons=lambda: {"popularity": test},
    )
    notes.log_assessment(SimpleNamespace(assessment=judged, rankers=()))
    err = capsysbinary.readouterr().err.decode()
    assert ("warning: on held-out links auto is not better than popularity" in err) == (low <= 0)
    assert err.count("\n") == 4 + (low <= 0)


def test_too_few_links_to_choose_by(tables, tmp_path, capsysbinary):
    few = tmp_path / "pairs.tsv"
    few.write_text("D1\tg1\nD1\tg2\nD2\tg2\nD3\tg3\n")
    found = command(capsysbinary, "rank", "--pairs", few, "--row", "D1", "--out", tmp_path / "list.tsv")
    assert found.code == 0, found.err
    assert found.err.count("too few links to choose by") == 1
    assert (tmp_path / "list.assessment.tsv").read_text() == "\t".join(ASSESSED) + "\n"


def test_a_kept_auto_ranks_without_tables(enough, tmp_path, capsysbinary):
    kept, ask = tmp_path / "kept.mvgp", ["--row", "D5", "--out", "-", "--top", "5", "--quiet"]
    fresh = command(capsysbinary, "rank", *enough, "--save", kept, *ask)
    loaded = command(capsysbinary, "rank", "--load", kept, *ask)
    assert fresh.code == loaded.code == 0, loaded.err
    assert loaded.out == fresh.out
    assert len(read(loaded.out)) == 5


def test_several_graphs_and_features(tables, capsysbinary):
    given = ["rank", *inputs(tables), "--model", "neighbours", "--row", "D01", "--top", "3", "--out", "-"]
    more = ["--row-edges", tables / "more_rows.tsv", "--row-features", tables / "row_features.tsv"]
    more += ["--col-features", tables / "col_features.tsv"]
    plain, several = command(capsysbinary, *given), command(capsysbinary, *given, *more)
    assert plain.code == several.code == 0, several.err
    assert plain.out != several.out
    for words in ("row edges: more_rows.tsv", "row features: row_features.tsv", "column features: col_features.tsv"):
        assert words in several.err
    assert "12 rows x 20 columns" in several.err


@pytest.mark.slow
@pytest.mark.parametrize("option", ["row-time", "row-shift", "col-time", "col-shift", "noise", "ratio"])
def test_settings_of_kernels_noise_and_ratio_take_effect(option, tables, capsysbinary):
    for model in ("full", "trace"):
        given = ["rank", *inputs(tables), "--model", model, "--row", "D01", "--out", "-", "--quiet"]
        given += ["--negatives", "1", *(["--strength", "0.3"] if model == "trace" else [])]
        found = [command(capsysbinary, *given, f"--{option}", value) for value in ("0.4", "1.5")]
        assert [one.code for one in found] == [0, 0], found[0].err
        assert found[0].out != found[1].out


@pytest.mark.slow
def test_rank_writes_the_same_numbers_to_a_file_and_to_stdout(tables, tmp_path, capsysbinary):
    given = ["rank", *inputs(tables), *QUICK, "--top", "4", "--row", "D01", "--quiet", "--out"]
    shown = command(capsysbinary, *given, "-")
    assert shown.err == ""
    written = command(capsysbinary, *given, tmp_path / "out.tsv")
    assert (written.out, written.err) == ("", "")
    assert (tmp_path / "out.tsv").read_text() == shown.out
    lines = read(shown.out)
    assert tuple(lines[0]) == HEADER
    assert all(0 <= float(line["p_top"]) <= 1 and float(line["std"]) > 0 for line in lines)
    assert command(capsysbinary, *given, "-", "--seed", "1").out != shown.out


@pytest.mark.slow
def test_rank_with_negatives_within_rows(tables, capsysbinary):
    ask = ["rank", *inputs(tables), *QUICK, "--row", "D01", "--out", "-", "--no-uncertainty", "--quiet"]
    within, over = (command(capsysbinary, *ask, *more) for more in (["--within-rows"], []))
    assert within.code == over.code == 0
    assert within.out != over.out


@pytest.mark.slow
def test_rank_of_all_rows(tables, capsysbinary):
    given = ["rank", *inputs(tables), *QUICK, "--out", "-", "--top", "2"]
    found = command(capsysbinary, *given)
    lines = read(found.out)
    assert len(lines) == 24
    assert {line["p_top"] for line in lines} == {""}
    assert "--uncertainty adds them" in found.err
    full = read(command(capsysbinary, *given, "--uncertainty", "--quiet").out)
    assert [line["col_id"] for line in full] == [line["col_id"] for line in lines]
    assert all(line["p_top"] for line in full)


def test_known_links_are_left_out_unless_asked_for(tables, capsysbinary):
    given = ["rank", *inputs(tables), "--model", "popularity", "--row", "D01", "--out", "-", "--quiet", "--top", N]
    linked = {line["gene"] for line in read((tables / "pairs.tsv").read_text()) if line["disease"] == "D01"}
    assert linked
    without, every = (read(command(capsysbinary, *given, *more).out) for more in ([], ["--known"]))
    assert not linked & {line["col_id"] for line in without}
    assert {line["col_id"] for line in every if line["known"] == "1"} == linked


@pytest.mark.slow
def test_a_kept_model_ranks_without_tables(tables, tmp_path, capsysbinary):
    kept = tmp_path / "kept.mvgp"
    done = command(capsysbinary, "rank", *inputs(tables), *QUICK, "--save", kept, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    ask = ["--row", "disease 5", "--out", "-", "--top", "5", "--quiet"]
    fresh = command(capsysbinary, "rank", *inputs(tables), *QUICK, *ask)
    loaded = command(capsysbinary, "rank", "--load", kept, *ask)
    assert loaded.out == fresh.out
    content = bytearray(kept.read_bytes())
    content[-200] ^= 255
    kept.write_bytes(content)
    broken = command(capsysbinary, "rank", "--load", kept, *ask)
    assert broken.code == 2
    assert broken.err.count("\n") == 1


@pytest.mark.slow
def test_study_and_report(tables, tmp_path, capsysbinary):
    given = ["study", *inputs(tables), "--out", tmp_path / "study", "--models", "popularity,neighbours", "--folds", "2"]
    found = command(capsysbinary, *given)
    assert found.code == 0, found.err
    assert found.out.startswith("2 of 2 folds")
    assert {"popularity", "neighbours"} <= set(found.out.split())
    tables_before = (tmp_path / "study" / "tables" / "metrics.tsv").read_bytes()
    again = command(capsysbinary, *given, "--quiet")
    assert (again.out, again.err) == (found.out, "")
    assert (tmp_path / "study" / "tables" / "metrics.tsv").read_bytes() == tables_before
    for more, place in ([], tmp_path / "study"), (["--out", tmp_path / "page"], tmp_path / "page"):
        done = command(capsysbinary, "report", tmp_path / "study", *more)
        assert done.code == 0, done.err
        assert str(place / "report.html") in done.err
        assert "popularity" in (place / "report.html").read_text()


def test_settings_of_a_study_are_those_of_the_options(tables, tmp_path, capsysbinary):
    given = ["study", *inputs(tables), "--out", tmp_path / "study", "--models", "popularity", "--folds", "2"]
    found = command(capsysbinary, *given, "--within-rows", "--negatives", "3", "--split", "new", "--quiet")
    assert found.code == 0, found.err
    study = load_study(tmp_path / "study").study
    assert (study.within_rows, study.negative_sets, study.split) == (True, 3, "rows")
    refused = command(capsysbinary, *given, "--negatives", "3", "--split", "new", "--quiet")
    assert refused.code == 2
    assert "within_rows" in refused.err


def test_an_interrupt_ends_in_one_line_and_130(tables, tmp_path, capsysbinary, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mvgp.prioritise.studies.run.run_study", interrupted)
    found = command(
        capsysbinary, "study", *inputs(tables), "--out", tmp_path / "s", "--models", "popularity", "--quiet"
    )
    assert found.code == 130
    assert found.err.startswith("mvgp: interrupted; finished units are kept in ")
    assert found.err.count("\n") == 1
    monkeypatch.setattr("mvgp.prioritise.ranking.prioritiser.fit_prioritiser", interrupted)
    given = ["rank", *inputs(tables), "--quiet", "--out", tmp_path / "out.tsv"]
    found = command(capsysbinary, *given)
    assert (found.code, found.err) == (130, "mvgp: interrupted\n")
    assert not (tmp_path / "out.tsv").exists()


@pytest.mark.slow
def test_a_real_interrupt_keeps_finished_units(tables, tmp_path):
    """Ctrl-C in the middle of a study; the same command then finishes it."""
    given = [*PROGRAM, "study", *map(str, inputs(tables)), "--out", str(tmp_path / "study"), "--quiet"]
    given += [
        "--models",
        "popularity,trace",
        "--folds",
        "5",
        "--negatives",
        "500",  # it would take minutes to its end, and is interrupted after seconds
        "--strengths",
        "0.5,0.2,0.1,0.05,0.02",
    ]
    running = subprocess.Popen(
        given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a background job of a shell has interrupts ignored, and so have its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    units, until = tmp_path / "study" / "units", time.monotonic() + 7200  # only against hanging
    while len(list(units.rglob("*.unit"))) < 2 and running.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=7200)
    assert (running.returncode, out) == (130, ""), err
    assert err.startswith("mvgp: interrupted; finished units are kept")
    assert err.count("\n") == 1
    assert len(list(units.rglob("*.unit"))) >= 2


def test_warnings_are_notes_and_those_alike_are_counted(capsysbinary):
    with notes.notes_in_one_line():
        for gap in (1e-2, 3e-3, 0.5):
            warnings.warn(f"the gap is {gap:.1e}\nafter 7 steps", RuntimeWarning, stacklevel=1)
        warnings.warn("something old", DeprecationWarning, stacklevel=1)
    text = capsysbinary.readouterr().err.decode()
    assert text == "mvgp: note: the gap is 1.0e-02 after 7 steps\nmvgp: note: 2 more like that\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left on device", "out.tsv"), "mvgp: out.tsv: No space left on device\n"),
        (MemoryError(), "mvgp: not enough memory"),
        (mvgp.errors.ConvergenceError("one\ntwo"), "mvgp: one two\n"),
    ],
)
def test_other_errors(error, line, monkeypatch, capsysbinary):
    def failing(*_, **__):
        raise error

    monkeypatch.setattr(entry, "app", failing)
    found = command(capsysbinary, "rank")
    assert found.code == 2
    assert found.err.startswith(line)
    assert found.err.count("\n") == 1


def test_a_short_row_is_listed_whole_unless_a_length_is_given(tmp_path, capsysbinary):
    (tmp_path / "pairs.tsv").write_text("D1\tg1\nD1\tg2\nD2\tg2\nD2\tg3\n")
    given = ["rank", "--pairs", tmp_path / "pairs.tsv", "--model", "popularity", "--row", "D1", "--out", "-", "-q"]
    found = command(capsysbinary, *given)
    assert found.code == 0, found.err
    assert [line["col_id"] for line in read(found.out)] == ["g3"]


def test_a_list_does_not_begin_within_the_bar(tables, capsysbinary, monkeypatch):
    """On a terminal both are on the same screen: the bar is cleared before the table."""
    said = []
    monkeypatch.setattr("mvgp.prioritise.cli.streams.show_row", lambda row: said.append(capsysbinary.readouterr().err))
    monkeypatch.setattr("mvgp.progress.DELAY", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    command(capsysbinary, "rank", *inputs(tables), "--model", "popularity", "--row", "D03", "--top", "3")
    assert len(said) == 1
    assert said[0].endswith(b"\r")
