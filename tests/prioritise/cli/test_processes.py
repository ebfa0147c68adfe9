"""What only a process of its own can show: signals, workers, closed and narrow streams. It waits for states."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.prioritise.cli.tables import inputs, write_tables

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="signals and shells of POSIX")]
PROGRAM = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nfrom mvgp.prioritise.cli import main\nmain()"
LONG = ["--models", "trace,hilbert,best", "--negatives", "40", "--strengths", "30", "--quiet", "--out"]
PATIENCE = 7200  # seconds until something is called a hang, on however busy a machine


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("tables"))


def start(*arguments, **options):
    given = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    one = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads that wait for one another are slow on a busy machine
    return subprocess.Popen(given, text=True, start_new_session=True, env=one, **options)


def wait_until(true):
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def children(pid):
    """Processes that a process has started."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(one) for one in file.read().split()]


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="children are found in /proc")
@pytest.mark.parametrize(
    ("number", "code", "word", "whole_group"),
    [
        (signal.SIGTERM, 143, "terminated", False),
        (signal.SIGINT, 130, "interrupted", True),  # as a terminal sends it
        (signal.SIGKILL, -9, "", False),
    ],
)
def test_a_signal_ends_a_study_and_its_workers(number, code, word, whole_group, tables, tmp_path):
    pytest.importorskip("joblib")
    study = tmp_path / "study"
    running = start("study", *inputs(tables), *LONG, study, "--jobs", "2")
    wait_until(lambda: running.poll() is not None or next(study.glob("units/*/*.unit"), None))
    workers = children(running.pid)
    assert workers
    (os.killpg if whole_group else os.kill)(running.pid, number)
    out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, out) == (code, ""), err
    wait_until(lambda: not any(map(lives, workers)))
    if word:
        assert err.startswith(f"mvgp: {word}; finished units are kept")
        assert err.count("\n") == 1, err
        assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_ends_rank(number, code, word, tables, tmp_path):
    """In the middle of writing: the draft is there, and then is not."""
    out = tmp_path / "out.tsv"
    out.write_text("before")
    ask = ["--model", "trace", "--strength", "0.3", "--negatives", "100", "--uncertainty", "--quiet", "--out", out]
    running = start("rank", *inputs(tables), *ask)
    wait_until(lambda: running.poll() is not None or next(tmp_path.glob(".mvgp-*"), None))
    os.kill(running.pid, number)
    shown, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, shown, err) == (code, "", f"mvgp: {word}\n")
    assert [one.name for one in tmp_path.iterdir()] == ["out.tsv"]
    assert out.read_text() == "before"


@pytest.mark.parametrize("arguments", [["--out", "-"], ["--row", "D01"]])
def test_a_pipe_that_nobody_reads(arguments, tables):
    """As ``mvgp rank ... | head -1`` after the first line."""
    ends = os.pipe()
    running = start("rank", *inputs(tables), "--model", "popularity", "--quiet", *arguments, stdout=ends[1])
    for end in ends:
        os.close(end)
    _, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, err) == (141, "")


def shell(line, tables, **environment):
    program = f"{sys.executable} -c 'from mvgp.prioritise.cli import main; main()'"
    given = " ".join(inputs(tables))
    text = line.replace("MVGP", program).replace("TABLES", given)
    return subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def test_streams(tables, tmp_path):
    """Closed, full, not read to its end, and without letters."""
    rank = "MVGP rank TABLES --model popularity --quiet"
    done = shell(f"{rank} --row D01 > /dev/full", tables)
    assert (done.returncode, done.stderr) == (2, "mvgp: output: No space left on device\n")
    done = shell(f"{rank} --row D01 >&-", tables)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("mvgp: standard output")
    done = shell(f"{rank} --row nobody 2>&-", tables)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
    study = f"MVGP study TABLES --models popularity --folds 2 --quiet --out {tmp_path / 'study'}"
    done = shell(study, tables, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, "")
    assert " +- " in done.stdout
