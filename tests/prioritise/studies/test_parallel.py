"""The same study on one core, on two, and on a cluster of which a worker is killed: identical tables."""

import os
import signal
import subprocess
import sys
from concurrent.futures import Future

import pytest

from mvgp.errors import InputError
from mvgp.prioritise.studies import StudyError, execution, run_study
from mvgp.prioritise.studies.directory import StudyDirectory
from tests.prioritise.studies.planted import planted_links, tables_of, tiny_study

pytestmark = pytest.mark.slow

LINKS = planted_links()
STUDY = tiny_study(models=("popularity", "hilbert", "trace"), negative_sets=2)


def local_cluster(distributed, workers):
    """Without a dashboard. Its HTTP server takes any free port: another cluster of this machine may have the usual one."""
    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address=None,
        scheduler_kwargs={"dashboard": False},
    )


@pytest.fixture(scope="module")
def one_core(tmp_path_factory):
    directory = tmp_path_factory.mktemp("one") / "study"
    run_study(LINKS, STUDY, directory, progress=False)
    return tables_of(directory)


def test_two_cores(one_core, tmp_path):
    run_study(LINKS, STUDY, tmp_path, jobs=2, progress=False)
    assert tables_of(tmp_path) == one_core


def test_two_cores_one_killed(one_core, tmp_path, monkeypatch):
    from joblib.externals.loky import reusable_executor

    real, saved = StudyDirectory.save, []

    def save(self, outcome):
        real(self, outcome)
        saved.append(outcome.unit)
        if len(saved) == 3:
            os.kill(next(iter(reusable_executor._executor._processes)), signal.SIGKILL)

    monkeypatch.setattr(StudyDirectory, "save", save)
    run_study(LINKS, STUDY, tmp_path, jobs=2, progress=False)
    assert len(saved) == len(set(saved))
    assert tables_of(tmp_path) == one_core


def test_a_full_disk_with_two_cores(one_core, tmp_path, monkeypatch):
    real, saved = StudyDirectory.save, []

    def save(self, outcome):
        if len(saved) == 3:
            raise InputError("No space left on device")
        real(self, outcome)
        saved.append(outcome.unit)

    monkeypatch.setattr(StudyDirectory, "save", save)
    with pytest.raises(InputError, match="No space"):
        run_study(LINKS, STUDY, tmp_path, jobs=2, progress=False)
    monkeypatch.setattr(StudyDirectory, "save", real)
    assert len(list(tmp_path.rglob("*.unit"))) == 3
    run_study(LINKS, STUDY, tmp_path, progress=False)
    assert tables_of(tmp_path) == one_core


def test_processes_are_not_killed_before_their_executor_knows_its_tasks(monkeypatch):
    """Its thread would die of a KeyError. Here it needs three looks for each task but the first, which is done."""
    pytest.importorskip("joblib")
    futures, killed = [], []

    class Slow(Future):
        looks = 0

        def running(self):
            self.looks += 1
            return self.looks > 3

    class Executor:
        def submit(self, function, task):
            futures.append(Slow())
            if task == 0:
                futures[0].set_result("first")
            return futures[-1]

        def shutdown(self, kill_workers):
            killed.append(kill_workers)
            assert min(future.looks for future in futures[1:]) > 3

    monkeypatch.setattr("joblib.executor.get_memmapping_executor", lambda *sizes, **options: Executor())
    found = execution._from_workers(range(10), 2)
    assert next(found) == "first"
    assert len(futures) == 4  # the one that is done, and one more than there are processes
    found.close()
    assert killed == [True]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_cluster_with_a_killed_worker(one_core, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    real, saved = StudyDirectory.save, []
    with local_cluster(distributed, 2) as cluster:

        def save(self, outcome):
            real(self, outcome)
            saved.append(outcome.unit)
            if len(saved) == 2:
                os.kill(cluster.workers[0].pid, signal.SIGKILL)

        monkeypatch.setattr(StudyDirectory, "save", save)
        run_study(LINKS, STUDY, tmp_path, dask=cluster.scheduler_address, progress=False)
    assert len(saved) == len(set(saved))
    assert tables_of(tmp_path) == one_core


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x", "not an address"])
def test_a_cluster_that_is_not_there(tmp_path, address):
    pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    quick = dask.config.set({"distributed.comm.timeouts.connect": "0.5s"})
    with quick, pytest.raises(InputError, match="dask: expected the address of a scheduler") as raised:
        run_study(LINKS, STUDY, tmp_path / "new", dask=address, progress=False)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "new").exists()


def test_workers_that_die_again_and_again_are_given_up(tmp_path, monkeypatch):
    """Units that take their process down with them are named; the others are kept."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    def broken(tasks, workers):
        yield from ()
        raise TerminatedWorkerError("killed")

    monkeypatch.setattr(execution, "_from_workers", broken)
    with pytest.raises(StudyError, match="a worker process died 3 times"):
        run_study(LINKS, tiny_study(models=("popularity",)), tmp_path, jobs=2, progress=False)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_cluster_whose_workers_are_all_away_for_a_moment(tmp_path, monkeypatch):
    """Without a core there is still something to wait for: a study must not end with nothing."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed.Client, "ncores", lambda self: {})
    with local_cluster(distributed, 1) as cluster:
        study = tiny_study(models=("popularity",))
        found = run_study(LINKS, study, tmp_path, dask=cluster.scheduler_address, progress=False)
    assert {entry["model"] for entry in found.metrics} == {"popularity"}


TRACKER = """
import time

from mvgp.prioritise.studies import execution

if __name__ == "__main__":
    list(execution._from_workers([], 2))
    from joblib.externals.loky.backend.resource_tracker import _resource_tracker

    until, found = time.monotonic() + 60, ""
    while not found and time.monotonic() < until:  # there is none yet while the process starts
        found = open(f"/proc/{_resource_tracker._pid}/environ").read()
        time.sleep(0.01)
    print(found.replace("\\0", "\\n"))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="the environment of a process is found in /proc")
def test_who_clears_up_after_workers_is_quiet_from_the_first_one_on(tmp_path):
    """A signal may come before locks are taken off its list. A study that was ended says one line, and no warnings."""
    pytest.importorskip("joblib")
    given = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    code = [sys.executable, "-c", TRACKER]
    found = subprocess.run(code, capture_output=True, text=True, cwd=tmp_path, env=given, check=False)
    assert "PYTHONWARNINGS=ignore:resource_tracker:UserWarning\n" in found.stdout, found.stderr
