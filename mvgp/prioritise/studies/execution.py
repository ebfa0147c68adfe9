"""Where tasks are done: in this process, on the cores of this machine, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import signal
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from tqdm import tqdm

from ...checks import check_whole_number, free_memory
from ...errors import InputError
from .directory import Failure, Outcome, Unit
from .work import Task, work

PER_CORE = 4  # processes, at most
PROCESS_BYTES = 2**29  # of a process that has read its libraries, and has some data
PAUSE = 0.5  # seconds between two looks of a worker at its parent
RESTARTS = 2  # of the worker processes of this machine after one of them has died
TAKEN_PAUSE = 0.001  # seconds between two looks at what the executor has taken
LIBRARIES = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMBA", "NUMEXPR")
THREADS = ("VECLIB_MAXIMUM_THREADS", *(f"{name}_NUM_THREADS" for name in LIBRARIES))  # what libraries look at


def check_execution(jobs: Any, dask: Any) -> int:
    """Processes of this machine, or a cluster."""
    jobs = check_jobs(jobs)
    check_address(dask)
    if dask is not None and jobs != 1:
        raise InputError(f"jobs, dask: expected one of them, got {jobs} jobs and the cluster {dask!r}")
    if jobs > 1 and importlib.util.find_spec("joblib") is None:
        raise InputError("jobs: more than one needs the package joblib: pip install 'mvgp[cli]'")
    return jobs


def check_jobs(jobs: Any) -> int:
    """A number of processes that cores and memory can bear; one always is."""
    jobs = check_whole_number(jobs, "jobs")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = free_memory()
    if jobs > PER_CORE * cores:
        raise InputError(f"jobs: expected at most {PER_CORE * cores}, {PER_CORE} for each of {cores} cores, got {jobs}")
    if jobs > 1 and free is not None and jobs * PROCESS_BYTES > free:
        raise InputError(
            f"jobs: {jobs} processes need {jobs * PROCESS_BYTES / 2**30:.1f} GiB (half a GiB each), got "
            f"{free / 2**30:.1f} GiB of free memory; take fewer"
        )
    return jobs


def check_address(address: Any) -> None:
    """Text that may be the address of a scheduler, or None."""
    if address is not None and (not isinstance(address, str) or not address.strip()):
        raise InputError(f"dask: expected the address of a scheduler, as 'tcp://10.0.0.1:8786', got {address!r}")


def results(tasks: Sequence[Task], jobs: int, client: Any = None) -> Generator[Outcome | Failure, None, None]:
    """Yields results as tasks finish, from a Dask cluster, or from processes (one is this process itself).

    It is to be closed by a caller that does not wait for its end.
    """
    if client is not None:
        yield from _on_cluster(tasks, client)
    elif jobs > 1:
        yield from _on_cores(tasks, jobs)
    else:
        yield from map(work, tasks)


def _on_cores(tasks: Sequence[Task], jobs: int) -> Generator[Outcome | Failure, None, None]:
    """On processes of joblib; when one dies (of too little memory, say) what is left goes to new ones."""
    import joblib  # type: ignore[import-untyped]
    from joblib.externals.loky.process_executor import BrokenProcessPool  # type: ignore[import-untyped]

    left, why = {task.unit: task for task in tasks}, ""
    for _ in range(RESTARTS + 1):
        with joblib.parallel_config("loky"):
            workers = joblib.effective_n_jobs(min(jobs, max(2, len(left))))  # 1 where processes may not have children
        if workers == 1:
            yield from map(work, list(left.values()))
            return
        try:
            with contextlib.closing(_from_workers(list(left.values()), workers)) as outcomes:
                for outcome in outcomes:
                    del left[outcome.unit]
                    yield outcome
            return
        except BrokenProcessPool as error:
            why = " ".join(str(error).split())
    why = f"a worker process died {RESTARTS + 1} times, the last time with: {why}"
    yield from (Failure(unit, why) for unit in left)


def _from_workers(tasks: Sequence[Task], workers: int) -> Generator[Outcome | Failure, None, None]:
    """Yields results as tasks finish; the processes stay for the next call, unless this one ends early."""
    from joblib.executor import get_memmapping_executor  # type: ignore[import-untyped]

    with _quiet_trackers():  # the first one is started here
        executor = get_memmapping_executor(
            workers,
            initializer=begin_worker,
            initargs=(os.getpid(),),
            env=dict.fromkeys(THREADS, "1"),
            max_nbytes=None,  # no memory maps: they would be read-only
        )
    waiting, running = iter(tasks), set[Future[Outcome | Failure]]()

    def submit() -> None:
        """One task more than there are processes, so that none of them waits."""
        with _quiet_trackers():
            for task in itertools.islice(waiting, workers + 1 - len(running)):
                running.add(executor.submit(work, task))

    try:
        submit()
        while running:
            ended = wait(running, return_when=FIRST_COMPLETED).done
            running -= ended
            failed = {future for future in ended if future.exception() is not None}
            if not failed:
                submit()
            for future in (*(ended - failed), *failed):  # what is done is not lost when a process has died
                yield future.result()
    finally:
        # Kill the processes. The thread of the executor must have taken all tasks from its queue before: when it ends,
        # it forgets the tasks, but not their numbers in the queue, and dies of a KeyError.
        try:
            while not all(future.running() or future.done() for future in running):
                time.sleep(TAKEN_PAUSE)
        finally:
            if running:
                executor.shutdown(kill_workers=True)


@contextlib.contextmanager
def _quiet_trackers() -> Iterator[None]:
    """Processes that are started here and clear up after the others give no warnings: their parent has said it."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (before, "ignore:resource_tracker:UserWarning")))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def begin_worker(parent: int) -> None:
    """Called once in each worker, before its first task: a worker whose parent was killed must end.

    It is no child of ``parent`` then any more, so it looks at times; on Windows it stays one, and ends when it has been
    idle. (The signal that Linux could send comes when the thread that started the worker ends, not the process.)
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    tqdm.set_lock(threading.RLock())  # its own is a semaphore, which outlives a worker that is killed

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PAUSE)
        os._exit(1)

    threading.Thread(target=watch, name="mvgp parent", daemon=True).start()


def _on_cluster(tasks: Sequence[Task], client: Any) -> Generator[Outcome | Failure, None, None]:
    """Through futures of Dask itself: joblib's back end for it does not come back from a task that kills its workers.

    Each task is sent with all that it needs, so that a worker can die without anyone missing its data.
    """
    from distributed import as_completed

    waiting, running = iter(tasks), as_completed(loop=client.loop, with_results=True, raise_errors=False)
    unit_of: dict[Any, Unit] = {}

    def submit() -> None:
        """Two tasks for each core there is now; while there is none, one task waits for it."""
        limit = max(1, 2 * sum(client.ncores().values()))
        for task in itertools.islice(waiting, max(0, limit - len(unit_of))):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
                future = client.submit(work, task, pure=False)
            unit_of[future] = task.unit
            running.add(future)

    submit()
    try:
        for future, result in running:
            unit = unit_of.pop(future)
            if future.status == "finished":
                yield result
            else:
                error = result[1] if isinstance(result, tuple) else result
                line = " ".join(f"{type(error).__name__}: {error}".split())
                yield Failure(unit, f"lost by the cluster ({line})")
            submit()
    finally:
        client.cancel(list(unit_of))


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """A client of the Dask cluster at an address; None for none."""
    if address is None:
        yield None
        return
    try:
        from dask.config import get
        from dask.utils import parse_timedelta
        from distributed import Client
    except ImportError:
        raise InputError("dask: expected the package distributed: pip install 'mvgp[distributed]'") from None
    seconds = parse_timedelta(get("distributed.comm.timeouts.connect"))  # also for the first worker
    try:
        client = Client(address, timeout=seconds, set_as_default=False)
    except Exception as error:  # addresses can be wrong in more ways than there are names for
        line = " ".join(str(error).split())
        raise InputError(f"dask: expected the address of a scheduler, got {address!r} ({line})") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=seconds)
        except TimeoutError:
            raise InputError(f"dask: {address} has no worker after {seconds:g} seconds") from None
        yield client
