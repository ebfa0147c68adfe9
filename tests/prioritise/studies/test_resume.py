"""What may happen to a study on the way: kills, other settings, damage, full disks; nothing finished is lost."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mvgp.errors import InputError
from mvgp.prioritise.studies import load_study, run, run_study
from mvgp.prioritise.studies.directory import locked
from mvgp.prioritise.studies.work import work
from tests.prioritise.studies.planted import planted_links, tables_of, tiny_study

pytestmark = pytest.mark.slow

LINKS = planted_links()
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole") / "study"
    run_study(LINKS, tiny_study(), directory, progress=False)
    return directory


def counted(monkeypatch):
    """The units that are done from now on."""
    done = []

    def results(tasks, jobs, client):
        for task in tasks:
            done.append(str(task.unit))
            yield work(task)

    monkeypatch.setattr(run, "results", results)
    return done


def test_killed_ten_times_at_random_moments(tmp_path):
    command = [sys.executable, "-m", "tests.prioritise.studies.killed_at_random", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == 10
    assert told["ends"] >= 1
    assert len(set(told["moments"])) > 1  # not always at the same place


def test_a_finished_study_repeats_nothing(whole, monkeypatch):
    before, done = tables_of(whole), counted(monkeypatch)
    run_study(LINKS, tiny_study(), whole, progress=False)
    assert done == []
    assert tables_of(whole) == before


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_an_interrupted_study_goes_on_where_it_was(whole, tmp_path, monkeypatch, after):
    every = []

    def results(tasks, jobs, client):
        for task in tasks:
            if len(every) == after:
                raise KeyboardInterrupt
            every.append(str(task.unit))
            yield work(task)

    monkeypatch.setattr(run, "results", results)
    with pytest.raises(KeyboardInterrupt):
        run_study(LINKS, tiny_study(), tmp_path, progress=False)
    told = load_study(tmp_path)
    assert not told.finished
    assert told.description["units"]["done"] >= after
    done = counted(monkeypatch)
    run_study(LINKS, tiny_study(), tmp_path, progress=False)
    assert not set(done) & set(every)
    assert len(done) + len(every) == 4
    assert tables_of(tmp_path) == tables_of(whole)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 3}, "seed is 0 there and 3 here"),
        ({"folds": 4}, "folds is 3 there and 4 here"),
        ({"negative_sets": 2}, "negative_sets is 1 there and 2 here"),
        ({"strengths": (0.5, 0.3)}, r"strengths is \[0.5, 0.2\] there and \[0.5, 0.3\] here"),
        ({"split": "new"}, "split is 'pairs' there and 'rows' here"),
        ({"subsample": 0.5}, "subsample is 1.0 there and 0.5 here"),
    ],
)
def test_the_directory_of_another_study_is_refused(whole, change, told):
    before = (whole / "study.json").read_text()
    with pytest.raises(InputError, match=told):
        run_study(LINKS, tiny_study(**change), whole, progress=False)
    assert (whole / "study.json").read_text() == before


def test_other_data_are_refused(whole):
    with pytest.raises(InputError, match="other data.*" + LINKS.digest()):
        run_study(planted_links(seed=1), tiny_study(), whole, progress=False)


def test_a_directory_with_other_things_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="other files"):
        run_study(LINKS, tiny_study(), tmp_path, progress=False)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(InputError, match="got a file"):
        run_study(LINKS, tiny_study(), tmp_path / "thesis.txt", progress=False)


@pytest.mark.parametrize("stage", ["choice", "score"])
@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "swapped"])
def test_a_damaged_unit_is_told_and_done_again(whole, tmp_path, monkeypatch, stage, damage):
    run_study(LINKS, tiny_study(models=("popularity",)), tmp_path, progress=False)
    wanted = tables_of(tmp_path)
    file = next(iter((tmp_path / "units" / stage).glob("*.unit")))
    content = file.read_bytes()
    other = next(iter((tmp_path / "units" / ("score" if stage == "choice" else "choice")).glob("*.unit"))).read_bytes()
    middle = len(content) // 2
    changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    file.write_bytes({"cut": content[:middle], "changed": changed, "empty": b"", "swapped": other}[damage])
    done = counted(monkeypatch)
    with pytest.warns(RuntimeWarning, match="it is done again"):
        run_study(LINKS, tiny_study(models=("popularity",)), tmp_path, progress=False)
    assert len(done) == 1
    assert tables_of(tmp_path) == wanted


def test_drafts_of_a_killed_process_are_cleared(tmp_path):
    run_study(LINKS, tiny_study(models=("popularity",)), tmp_path, progress=False)
    draft = tmp_path / "units" / "score" / ".mvgp-0123456789abcdef.tmp"
    draft.write_bytes(b"half of a")
    run_study(LINKS, tiny_study(models=("popularity",)), tmp_path, progress=False)
    assert not draft.exists()


def test_two_processes_at_once(whole):
    with locked(str(whole / "lock")), pytest.raises(InputError, match=f"process {os.getpid()} on "):
        run_study(LINKS, tiny_study(), whole, progress=False)
    run_study(LINKS, tiny_study(), whole, progress=False)  # the lock has gone


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    path = tmp_path / "lock"
    code = "import sys, time\nfrom mvgp.prioritise.studies.directory import locked\nwith locked(sys.argv[1]):\n print('held', flush=True)\n time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"process {other.pid} on "), locked(str(path)):
            pass
        other.kill()
        other.wait()
        with locked(str(path)):
            assert json.loads(path.read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("number", [3, 5, 9, 13])  # even ones are of directories
def test_a_full_disk_is_one_line_and_loses_nothing(whole, tmp_path, monkeypatch, number):
    count, real = [0], os.fsync

    def full(handle):
        count[0] += 1
        if count[0] == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device; units that are finished are kept") as raised:
        run_study(LINKS, tiny_study(), tmp_path, progress=False)
    assert "\n" not in str(raised.value)
    monkeypatch.setattr(os, "fsync", real)
    assert not list(tmp_path.rglob("*.tmp"))
    kept = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.unit")}
    done = counted(monkeypatch)
    run_study(LINKS, tiny_study(), tmp_path, progress=False)
    choices = {file.name for file in (whole / "units" / "choice").glob("*.unit")}
    assert len(done) <= 4 - len(kept & {f"units/choice/{name}" for name in choices})
    assert tables_of(tmp_path) == tables_of(whole)


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 48 KiB, where the system lets us mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(place)]
    try:
        made = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        made = False
    if not made:
        pytest.skip("mounting a small file system is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full(small_disk, whole):
    study = tiny_study()
    with pytest.raises(InputError, match="No space left on device"):
        run_study(LINKS, study, small_disk / "study", progress=False)
    assert not list(small_disk.rglob("*.tmp"))
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    run_study(LINKS, study, small_disk / "study", progress=False)
    assert tables_of(small_disk / "study") == tables_of(whole)


def test_a_disk_that_may_only_be_read(small_disk, whole):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(InputError, match="Read-only file system") as raised:
        run_study(LINKS, tiny_study(), small_disk / "study", progress=False)
    assert "\n" not in str(raised.value)


def test_a_place_where_nothing_can_be_made():
    with pytest.raises(InputError, match="/proc/nothing"):
        run_study(LINKS, tiny_study(), "/proc/nothing/here", progress=False)
