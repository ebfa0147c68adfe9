"""The meter: answers, limits of time and memory, contestants that fail or die."""

import itertools

import pytest
import torch

pytest.importorskip("resource", reason="measuring processes are forked, which Windows cannot")
from benchmarks.book import server
from benchmarks.book.measure import Meter
from benchmarks.book.measurement import DONE, FAILED, LARGE, OVER, Measurement, Outcome

pytestmark = pytest.mark.slow

MODULES = ["tests.benchmarks.contestants"]


@pytest.fixture(scope="module")
def meter():
    with Meter(threads=1, memory_gib=2.0, rounds=3, modules=MODULES) as found:
        yield found


def run(meter, function, limit=600.0, **settings):  # only against hanging: no test waits so long
    return meter.run(Measurement(function, f"contestants:{function}", settings, limit))


def test_an_answer_with_time_and_memory(meter):
    found = run(meter, "quick", value=5)
    assert found.status == DONE
    assert found.values == {"value": 5, "threads": 1}
    assert 1 <= found.rounds <= 3  # how many, by a clock that stands still: below
    assert found.seconds <= found.process_seconds
    assert found.start_mib > 0


@pytest.mark.parametrize(("each", "rounds"), [(0.1, 5), (0.75, 3), (2.0, 1), (50.0, 1)])
def test_what_is_short_is_timed_again(each, rounds, monkeypatch):
    """Until it has taken two seconds, or the rounds are over. The clock is ours."""
    clock = itertools.accumulate(itertools.cycle([0.0, each]))  # it is read at the beginning and the end of a round
    monkeypatch.setattr(server.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(server, "_forget_peak", lambda: None)
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    job = {"function": "server:nothing", "settings": {}, "rounds": 5}
    found = server._timed(job, {"server": server})
    assert (found["seconds"], found["rounds"]) == (pytest.approx(each), rounds)


def test_memory_is_what_the_contestant_adds(meter):
    assert run(meter, "large", mib=200).own_mib == pytest.approx(200, abs=30)


def test_over_the_limit(meter):
    found = run(meter, "slow", limit=0.5)
    assert (found.status, found.message) == (OVER, "over the limit of 0 s")
    assert 0.5 <= found.process_seconds < 3600  # it was not waited for
    assert found.seconds is None


def test_too_large_is_stopped(meter):
    found = run(meter, "large", mib=2100, hold=3600)
    assert (found.status, found.message) == (LARGE, "needs more than 2 GiB")


def test_known_to_be_too_large_is_not_started(meter):
    found = meter.run(Measurement("large", "contestants:slow", needs_gib=3.4))
    assert (found.status, found.message, found.process_seconds) == (LARGE, "would need 3 GiB", 0.0)


@pytest.mark.parametrize("when", ["setting up", "running"])
def test_failure(meter, when):
    found = run(meter, "broken", when=when)
    assert found.status == FAILED
    assert found.message in ("ValueError: no such | problem", "RuntimeError: no\nanswer")


@pytest.mark.parametrize(("how", "told"), [("killed", "by signal 9"), ("left", "with status 3")])
def test_death_is_told_and_the_next_one_is_measured(meter, how, told):
    found = run(meter, "dies", how=how)
    assert (found.status, found.message) == (FAILED, f"ended {told} without an answer")
    assert run(meter, "quick", value=1).done


def test_an_answer_that_is_not_json_is_a_failure(meter):
    assert "not JSON serializable" in run(meter, "not_json").message


def test_what_a_contestant_prints_is_not_an_answer(meter):
    assert run(meter, "chatty").values == {"said": True}


@pytest.mark.parametrize("status", [OVER, LARGE, FAILED])
def test_not_started_after_a_smaller_one_that_was_not_done(meter, status):
    found = meter.run(Measurement("quick", "contestants:quick", {"value": 1}), Outcome("smaller", "", status))
    assert (found.status, found.message) == (status, f"not started: {status} at a smaller size")


def test_a_measuring_process_that_does_not_start_is_an_error():
    with (
        Meter(threads=1, memory_gib=1.0, rounds=1, modules=["tests.benchmarks.absent"]) as meter,
        pytest.raises(RuntimeError, match="could not be started"),
    ):
        run(meter, "quick", value=1)
