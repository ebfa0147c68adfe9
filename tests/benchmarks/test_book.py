"""The benchmark book: its words and numbers, results that go on, and the page."""

import json
import re

import pytest

from benchmarks.book import __main__ as command
from benchmarks.book.__main__ import main
from benchmarks.book.chapter import Chapter, Section
from benchmarks.book.chapters import CHAPTERS
from benchmarks.book.figures import Figure, Line, Panel, draw_figures, load_figures, save_figures
from benchmarks.book.machine import ROOT
from benchmarks.book.measurement import DONE, FAILED, LARGE, OVER, Measurement, Outcome
from benchmarks.book.page import write_page
from benchmarks.book.results import Results
from benchmarks.book.run import wanted
from benchmarks.book.sweep import Contestant, Size, Sweep, total_seconds
from benchmarks.book.text import (
    bars,
    beside,
    error,
    exponent,
    factor,
    growth,
    missing_row,
    paired,
    reason,
    seconds,
    table,
    times_as_long,
)

ABOUT = {
    "identity": {"code": "1"},
    "date": "2026-01-02",
    "commit": "abc",
    "chapters": ["one", "two"],
    "machine": {"cores": "2"},
    "versions": {"torch": "2"},
    "quick": False,
    "threads": 2,
    "memory_gib": 10.0,
    "rounds": 5,
}


def outcome(name, seconds=1.0, status=DONE, **values):
    return Outcome(name, "key", status, seconds, 1, 150.0, 100.0, 2.0, values, "" if status == DONE else "why")


class TestText:
    @pytest.mark.parametrize(
        ("value", "text"), [(0.00123, "1.2 ms"), (0.0456, "46 ms"), (1.234, "1.23 s"), (65.4, "65 s"), (None, "")]
    )
    def test_seconds(self, value, text):
        assert seconds(value) == text

    @pytest.mark.parametrize(("value", "text"), [(1.26, "1.3"), (123.4, "120"), (45678, "46,000")])
    def test_factor(self, value, text):
        assert factor(value) == text

    def test_errors(self):
        assert [error(value) for value in (None, 0.0, 0.00123)] == ["", "0", "1.2e\u201103"]

    def test_who_needs_less_follows_from_the_numbers(self):
        amounts = {"time": (1.0, 20.0), "memory": (30.0, 10.0), "space": (1.0, 1.05), "money": (None, 1.0)}
        assert beside("ours", "theirs", amounts) == (
            "Beside theirs, ours needs 20 times less time, 3.0 times as much memory and about the same space."
        )
        assert beside("ours", "theirs", {"time": (None, 1.0)}) == ""

    def test_exponents_of_powers(self):
        sizes = [10, 20, 40]
        assert exponent(sizes, [size**1.5 for size in sizes]) == pytest.approx(1.5)
        assert exponent(sizes[:2], [1, 2]) is None
        assert growth("time", "T", sizes, 1.52) == "time grows like $T^{1.5}$ from 10 to 40"
        assert growth("time", "T", sizes, None) == ""

    def test_paired_differences(self):
        assert paired("a", [0.5, 0.6, 0.7, 0.9], "b", [0.1, 0.2, 0.4, 0.5]).startswith("a is ahead of b: +0.3750")
        assert paired("a", [0.1, 0.2, 0.4], "b", [0.5, 0.6, 0.7]).startswith("a is behind b")
        assert paired("a", [0.1, 0.9], "b", [0.9, 0.2]).startswith("a and b cannot be told apart")
        assert "too few" in paired("a", [0.1, float("nan")], "b", [0.9, 0.2])

    def test_bars_are_judged(self):
        rows = bars([("a", 4.5, "at least", 4), ("b", 4.5, "at most", 4), ("c", None, "at least", 1)]).splitlines()[2:]
        assert [row.split("|")[4].strip() for row in rows] == ["yes", "**no**", "not measured"]

    def test_times_as_long(self):
        ours, theirs = outcome("a", 2.0), outcome("b", 5.0)
        assert times_as_long(theirs, ours) == "2.5"
        assert (
            times_as_long(ours, ours)
            == times_as_long(None, ours)
            == times_as_long(outcome("c", None, OVER), ours)
            == ""
        )

    def test_tables_stay_tables(self):
        broken = Outcome("x", "", FAILED, message="a | b\nc")
        assert reason(broken) == "failed: a / b c"
        lines = table(["a", "b", "c"], [missing_row(["1"], broken, 3), missing_row(["1"], None, 3)]).splitlines()
        assert {line.count("|") for line in lines} == {4}


class TestSweep:
    sweep = Sweep(
        [Contestant("a", "m:a"), Contestant("b", "m:b", {"fast": True}, gib=lambda x: x)],
        [Size(1, "one", {"n": 1}), Size(2, "two", {"n": 2})],
    )

    def test_contestants_take_turns(self):
        plan = self.sweep.plan()
        assert [one.name for one in plan] == ["a, one", "b, one", "a, two", "b, two"]
        assert [one.after for one in plan] == [None, None, "a, one", "b, one"]
        assert plan[3].settings == {"n": 2, "fast": True}
        assert plan[3].needs_gib == 2

    def test_what_was_not_done_is_left_out_and_told(self):
        found = {"a, one": outcome("a, one"), "b, one": outcome("b, one", 3.0), "b, two": outcome("b, two", None, OVER)}
        first, second = self.sweep.contestants
        assert self.sweep.line(found, second, total_seconds) == Line("b", [1], [3.0])
        assert self.sweep.largest(found, first, second) == self.sweep.sizes[0]
        assert self.sweep.largest({}, first) is None
        assert self.sweep.stopped(found) == "Stopped, and not tried at larger sizes: b at two (why)."


class TestResults:
    def test_an_interrupted_run_goes_on(self, tmp_path):
        work = Measurement("x", "m:f", {"n": 1})
        first = Results.begin(tmp_path, ABOUT, fresh=False)
        first.add("one", Outcome("x", work.key, DONE, seconds=1.0, process_seconds=2.0))
        again = Results.begin(tmp_path, {**ABOUT, "date": "2026-01-03"}, fresh=False)
        assert again.find("one", work) == first.of("one")["x"]
        assert again.about["date"] == "2026-01-02"
        assert again.seconds == 2.0
        assert again.find("two", work) is None
        assert again.find("one", Measurement("x", "m:f", {"n": 2})) is None

    @pytest.mark.parametrize(("status", "kept"), [(DONE, True), (OVER, True), (LARGE, True), (FAILED, False)])
    def test_only_failures_are_measured_again(self, tmp_path, status, kept):
        work = Measurement("x", "m:f")
        results = Results.begin(tmp_path, ABOUT, fresh=False)
        results.add("one", Outcome("x", work.key, status))
        assert (Results.load(tmp_path).find("one", work) is not None) == kept

    @pytest.mark.parametrize(("about", "fresh"), [(ABOUT, True), ({**ABOUT, "identity": {"code": "2"}}, False)])
    def test_other_code_or_a_wish_begins_anew(self, tmp_path, about, fresh):
        Results.begin(tmp_path, ABOUT, fresh=False).add("one", outcome("x"))
        (tmp_path / "mine.json").write_text("{}")
        assert Results.begin(tmp_path, about, fresh=fresh).of("one") == {}
        assert (tmp_path / "mine.json").exists()


class TestPage:
    @pytest.mark.slow
    def test_chapters_figures_and_failures(self, tmp_path):
        def tell(outcomes, quick):
            panel = Panel("Time", "T", "seconds", [Line("a", [1.0, 2.0], [3.0, 4.0]), Line("b", [], [])])
            return Section("It took this long.\n\n{time}\n", {"time": Figure("time against T", [panel])})

        def cannot(outcomes, quick):
            raise KeyError("x")

        chapters = [Chapter("one", "Good", lambda _: [], tell), Chapter("two", "Bad", lambda _: [], cannot)]
        results = Results.begin(tmp_path / "results", ABOUT, fresh=False)
        results.add("one", outcome("x"))
        assert write_page(chapters, results, tmp_path) == ["Bad"]
        page = (tmp_path / "benchmark_book.md").read_text()
        assert "**Chapters that failed in this run: Bad.**" in page
        assert "2026-01-02, commit abc" in page
        assert "| versions | torch 2 |" in page
        assert "This chapter could not be written: KeyError" in page
        for image in re.findall(r"```\{image\} (.*)", page):
            assert "<svg" in (tmp_path / image).read_text()

    def test_a_failed_contestant_fails_its_chapter(self, tmp_path):
        results = Results.begin(tmp_path / "results", ABOUT, fresh=False)
        results.add("one", outcome("x", None, FAILED))
        chapter = Chapter("one", "Good", lambda _: [], lambda *_: Section("Text.", {}))
        assert write_page([chapter], results, tmp_path) == ["Good"]
        assert "**Failed**: x (why)." in (tmp_path / "benchmark_book.md").read_text()

    def test_figures_can_be_drawn_from_their_numbers(self, tmp_path):
        figure = Figure("alt", [Panel("t", "x", "y", [Line("a", [1.0, 2.0], [3.0, 4.0]), Line("b", [], [])])])
        save_figures({"bench-one": figure}, tmp_path / "bench.json")
        assert load_figures(tmp_path / "bench.json") == {"bench-one": figure}
        assert [path.name for path in draw_figures(tmp_path / "bench.json")] == [
            "bench-one-light.svg",
            "bench-one-dark.svg",
        ]

    def test_the_numbers_of_every_figure_on_the_page_are_there(self):
        docs = ROOT / "docs"
        stems = set(re.findall(r"figures/(bench-[\w-]+)-light\.svg", (docs / "benchmark_book.md").read_text()))
        assert stems == set(load_figures(docs / "figures" / "bench.json"))

    def test_figures_are_the_same_again(self, tmp_path):
        results = Results.begin(tmp_path / "results", ABOUT, fresh=False)
        figure = Figure("", [Panel("", "", "", [Line("a", [1.0, 2.0], [3.0, 4.0])])])
        chapter = Chapter("one", "Good", lambda _: [], lambda *_: Section("{f}", {"f": figure}))
        drawn = []
        for _ in range(2):
            write_page([chapter], results, tmp_path)
            drawn.append((tmp_path / "figures" / "bench-one-f-dark.svg").read_bytes())
        assert drawn[0] == drawn[1]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)
class TestChapters:
    @pytest.mark.parametrize("quick", [True, False])
    def test_plans(self, chapter, quick):
        plan = chapter.plan(quick)
        names = [one.name for one in plan]
        assert len(set(names)) == len(names)
        assert all(one.after in names[:place] for place, one in enumerate(plan) if one.after)
        json.dumps([one.settings for one in plan])

    @pytest.mark.parametrize("status", [OVER, LARGE, FAILED])
    def test_can_be_told_when_nothing_was_done(self, chapter, status):
        found = {one.name: outcome(one.name, None, status) for one in chapter.plan(False)}
        assert "why" in chapter.tell(found, False).text

    def test_can_be_told_before_anything_is_measured(self, chapter):
        assert chapter.tell({}, False).text


def test_the_whole_book_has_its_limits():
    """Their sum is what a run takes at the very worst: all are done, each at the last moment."""
    plans = [one for chapter in wanted(CHAPTERS, [], quick=False) for one in chapter.plan(False)]
    assert sum(one.limit for one in plans if one.needs_gib <= 10) < 105 * 60


class TestSlowChapters:
    def test_they_are_measured_when_they_are_named_and_at_tiny_sizes(self):
        slow = {chapter.name for chapter in CHAPTERS if chapter.slow}
        assert {"trace_path", "paper_scale", "mesh"} <= slow
        assert not slow & {chapter.name for chapter in wanted(CHAPTERS, [], quick=False)}
        assert [chapter.name for chapter in wanted(CHAPTERS, ["trace_path"], quick=False)] == ["trace_path"]
        assert wanted(CHAPTERS, [], quick=True) == CHAPTERS

    def test_those_that_were_not_measured_are_not_on_the_page(self, tmp_path):
        chapters = [
            Chapter(name, name.title(), lambda _: [], lambda *_: Section("Text.", {}), slow=True)
            for name in ABOUT["chapters"]
        ]
        results = Results.begin(tmp_path / "results", ABOUT, fresh=False)
        results.add("two", outcome("x"))
        write_page(chapters, results, tmp_path)
        assert "## 1. Two" in (tmp_path / "benchmark_book.md").read_text()
        assert ". One" not in (tmp_path / "benchmark_book.md").read_text()

    @pytest.mark.parametrize("whole", [True, False])
    def test_a_part_of_the_book_does_not_replace_its_page(self, whole, tmp_path, monkeypatch, capsys):
        chapters = [Chapter(name, name, lambda _: [], lambda *_: Section("Text.", {})) for name in ABOUT["chapters"]]

        def measure(given, folder, **options):
            results = Results.begin(folder, ABOUT, fresh=False)
            for name in ABOUT["chapters"] if whole else ["one"]:
                results.add(name, outcome("x"))
            return results

        for name, value in {"CHAPTERS": chapters, "ROOT": tmp_path, "run_book": measure}.items():
            monkeypatch.setattr(command, name, value)
        assert main(["--chapters", "one"]) == 0
        assert (tmp_path / "docs" / "benchmark_book.md").exists() == whole
        assert (tmp_path / "benchmarks" / "results" / "benchmark_book.md").exists() != whole
        assert "Text." in capsys.readouterr().out


@pytest.mark.slow
def test_every_chapter_runs_at_tiny_sizes(tmp_path):
    pytest.importorskip("resource", reason="measuring processes are forked, which Windows cannot")
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    assert "not measured" not in (tmp_path / "benchmark_book.md").read_text()


def test_tiny_sizes_do_not_reach_the_documentation(capsys):
    with pytest.raises(SystemExit):
        main(["--quick"])
    assert "--out" in capsys.readouterr().err
