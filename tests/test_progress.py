"""Progress of long work: bars on terminals, plain lines where they are asked for, nothing elsewhere."""

import io
import re
import threading
from types import SimpleNamespace

import gpytorch
import pytest
import torch

import mvgp
from mvgp import progress
from mvgp.errors import InputError
from mvgp.kernels import PrecomputedKernel
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.progress import check_progress, progress_bar, report_step
from tests.randomness import generator


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Standard error is a terminal, and bars are shown at once."""
    stream = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))  # pytest replaces that of sys itself
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "REDRAW", 0.0)
    return stream


@pytest.fixture
def log(monkeypatch):
    """Standard error is a file, and a line is due at every update."""
    stream = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))  # pytest replaces that of sys itself
    monkeypatch.setattr(progress, "EVERY", 0.0)
    return stream


def work(count=3, value="auto", **options):
    with progress_bar("work", count, unit="pieces", progress=value, **options) as bar:
        for _ in range(3):
            bar.update()


class TestWhatIsShown:
    @pytest.mark.parametrize("value", ["auto", False])
    def test_a_log_file_gets_nothing_unless_it_is_asked_for(self, log, value):
        work(value=value)
        assert log.getvalue() == ""

    def test_plain_lines_on_request(self, log):
        work(value=True)
        first, second, last = log.getvalue().splitlines()
        assert "\r" not in log.getvalue()
        assert re.fullmatch(r"work: 1 of 3 pieces in \d\d:\d\d, about \d\d:\d\d left", first)
        assert second.startswith("work: 2 of 3 pieces")
        assert re.fullmatch(r"work: 3 of 3 pieces in \d\d:\d\d", last)

    def test_lines_are_rare(self, log, monkeypatch):
        monkeypatch.setattr(progress, "EVERY", 5.0)
        work(value=True)
        assert log.getvalue().splitlines() == ["work: 3 of 3 pieces in 00:00"]

    @pytest.mark.parametrize("value", ["auto", True])
    def test_a_bar_on_a_terminal(self, terminal, value):
        work(value=value)
        assert "work: 2 of 3 pieces |" in terminal.getvalue()
        assert " left" in terminal.getvalue()
        assert "\r" in terminal.getvalue()

    def test_no_bar_when_it_is_refused(self, terminal):
        work(value=False)
        assert terminal.getvalue() == ""

    def test_short_work_shows_no_bar(self, terminal, monkeypatch):
        monkeypatch.setattr(progress, "DELAY", 60.0)
        work()
        assert terminal.getvalue() == ""

    def test_an_unknown_total(self, terminal):
        work(count=None)
        assert "work: 3 pieces, 00:00" in terminal.getvalue()

    def test_a_closed_stream(self, monkeypatch):
        monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=None))
        work(value=True)

    def test_units_that_were_finished_before_do_not_count_for_the_time(self, log):
        with progress_bar("work", 4, progress=True) as bar:
            bar.skip(3)
            assert bar._seconds_left() is None  # nothing was done yet
            bar.rename("last")
            bar.update(1, "note")
        assert log.getvalue().splitlines() == ["last: 4 of 4 steps in 00:00; note"]


class TestNesting:
    def test_inner_work_is_silent_and_reports_to_the_bar_of_the_whole(self, log):
        with progress_bar("outer", 2, progress=True):
            with progress_bar("inner"):
                report_step("gap", 1e-2, 1e-4)
            report_step("certificate")
        text = log.getvalue()
        assert "inner" not in text
        assert "gap 1.0e-02, ends at 1.0e-04" in text
        assert "outer: 0 of 2 steps" in text
        assert text.rstrip().endswith("certificate")

    def test_refusing_the_whole_silences_its_parts(self, terminal):
        with progress_bar("outer", 2, progress=False):
            work()
        assert terminal.getvalue() == ""

    def test_what_others_do_aside_is_their_own(self, terminal):
        with progress_bar("outer", 2, progress=False) as bar, bar.aside():
            work()
        assert "work: 3 of 3" in terminal.getvalue()

    def test_threads_show_nothing_by_themselves(self, terminal):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert terminal.getvalue() == ""

    def test_an_error_ends_the_work(self):
        with pytest.raises(ZeroDivisionError), progress_bar("work"):
            raise ZeroDivisionError
        assert progress._OPEN.bars == []


def test_time_left_follows_from_how_the_gap_closes(log):
    with progress_bar("fit", progress=True) as bar:
        report_step("gap", 1e-1, 1e-5)
        bar._began -= 10.0  # seconds
        report_step("gap", 1e-3, 1e-5)  # half of the digits
        left = bar._seconds_left()
        assert 9.9 <= left <= 20.0  # as long again; a slow machine may have taken longer
    assert re.search(r"gap 1.0e-03, ends at 1.0e-05, about 00:1\d left|about 00:20 left", log.getvalue())


@pytest.mark.parametrize("value", [None, 1, "yes", "True", [True]])
def test_other_values_are_refused(value):
    with pytest.raises(InputError, match="progress: expected True, False or 'auto'"):
        check_progress(value)


# Public calls --------------------------------------------------------------------------------------

KERNELS = [PrecomputedKernel((torch.eye(size) + 1).double()) for size in (4, 6)]
PRIOR = mvgp.MatrixGP(*KERNELS)
NOISE = gpytorch.likelihoods.GaussianLikelihood().double()
CELLS = torch.randperm(24, generator=generator(0))[:10]
DATA = mvgp.ObservedMatrix(CELLS // 6, CELLS % 6, torch.randn(10, generator=generator(1)), (4, 6))
LABELS = DATA.with_values(torch.where(torch.arange(10) % 2 == 0, 1.0, -1.0).double())
POSTERIOR = mvgp.FullGP(PRIOR, NOISE).fit(DATA)
CALLS = {
    "fit: trace": lambda **own: mvgp.TraceGP(PRIOR, NOISE).fit(DATA, **own),
    "fit: full": lambda **own: mvgp.FullGP(PRIOR, NOISE).fit(DATA, **own),
    "fit: ranking": lambda **own: mvgp.FullGP(PRIOR, BipartiteRankingLikelihood()).fit(LABELS, **own),
    "fit: factor": lambda **own: mvgp.FactorGP(PRIOR, NOISE, 2).fit(DATA, **own),
    "fit: svm": lambda **own: mvgp.PairwiseSVM(PRIOR, solver="newton").fit(LABELS, **own),
    "path: 2 of 2 points": lambda **own: list(mvgp.TraceGP(PRIOR, NOISE).path(DATA, [0.5, 0.2], **own)),
    "variances: 4 of 4 rows": lambda **own: POSTERIOR.variances(**own),
    "samples": lambda **own: POSTERIOR.sample([0], [1], **own),
    "samples: top": lambda **own: POSTERIOR.top(0, k=2, **own),
    "samples: intervals": lambda **own: POSTERIOR.rank_interval(0, **own),
}


@pytest.mark.parametrize("name", CALLS)
def test_long_calls_say_what_they_do(name, log):
    CALLS[name](progress=True)
    label = name if name[0] in "pv" else name.partition(":")[0]
    assert log.getvalue().splitlines()[-1].startswith(label)
    before = log.getvalue()
    CALLS[name]()
    assert log.getvalue() == before  # silent by default where nobody looks
    with pytest.raises(InputError, match="progress: expected True, False or 'auto'"):
        CALLS[name](progress="always")


def test_a_path_that_is_given_up_leaves_no_bar_behind():
    points = mvgp.TraceGP(PRIOR, NOISE).path(DATA, [0.5, 0.2])
    next(points)
    assert progress._OPEN.bars == []
    points.close()
    assert progress._OPEN.bars == []


def test_solvers_report_to_a_function_and_to_a_bar(log):
    setup = mvgp.TraceGP(PRIOR, NOISE)._setup(DATA)
    seen = []
    penalty = mvgp.SpectralElasticNet(0.3 * setup.lam_max, 1.0)
    mvgp.mean.solve_proximal(setup.problem, penalty, tolerance=1e-6, watch=seen.append, progress=True)
    assert len(seen) > 0
    assert "gap" in log.getvalue()
