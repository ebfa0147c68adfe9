import copy
import math
import warnings

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import KernelChoiceInterrupted, choose, choose_kernels, learn_grid, split_pairs
from mvgp.hyperparameters.kernel_search import gain, with_parameters
from mvgp.kernels import DiffusionKernel, Graph
from tests.hyperparameters.planted import (
    PRIOR,
    M,
    N,
    gaussian_model,
    make_links,
    make_numbers,
    make_truth,
    ranking_model,
)

NUMBERS = make_numbers()
ROW, COL = "row_axis.kernel.time", "col_axis.kernel.time"
PATH = {"trace_shares": (0.9,), "strengths": (0.4, 0.2, 0.1), "metric": "-MSE", "progress": False}


def far_off(model=mvgp.TraceGP):
    """The planted problem, begun with hardly any diffusion."""
    found = copy.deepcopy(gaussian_model(model, tolerance=1e-3))
    found.prior.initialize(**{ROW: 0.02, COL: 0.02})
    return found


@pytest.fixture(scope="module")
def searched():
    return choose_kernels(far_off(), NUMBERS, {ROW: (0.3, 2.0), COL: (0.3, 2.0)}, folds=2, **PATH)


@pytest.mark.slow
def test_times_of_the_planted_kernels_are_found(searched):
    assert searched.best.parameters[ROW] == 2.0
    assert searched.best.parameters[COL] > 0.1  # from 0.3 on the data cannot tell
    first, best = searched.candidates[0], searched.best
    assert first.parameters == pytest.approx({ROW: 0.02, COL: 0.02}, rel=1e-5)
    assert first.taken
    assert math.isnan(first.gain)
    assert best.choice.best.mean > first.choice.best.mean + 0.05
    kernels = [searched.model.prior.row_axis.kernel, searched.model.prior.col_axis.kernel.base_kernel]
    assert [kernel.time.item() for kernel in kernels] == pytest.approx(list(best.parameters.values()), rel=1e-5)
    assert searched.model.strength == best.choice.best.strength


@pytest.mark.slow
def test_the_table_tells_every_candidate(searched):
    frame = searched.to_frame()
    assert list(frame.columns) == [ROW, COL, "trace_share", "strength", "rank", "-MSE", "gain", "gain_error", "taken"]
    assert (
        len(frame) == len(searched.candidates) == len({tuple(one.parameters.values()) for one in searched.candidates})
    )
    assert "KernelChoice(best: row_axis.kernel.time 2" in repr(searched)


@pytest.mark.slow
def test_each_candidate_is_a_choice_on_the_same_splits(searched):
    splits = split_pairs(NUMBERS, folds=2, seed=0)
    for one in (searched.candidates[0], searched.best):
        alone = choose(with_parameters(far_off(), one.parameters, keep_variance=True), NUMBERS, folds=splits, **PATH)
        assert [record.score.value for record in alone.records] == [r.score.value for r in one.choice.records]


@pytest.mark.slow
def test_taken_gains_exceed_their_errors(searched):
    stand = searched.candidates[0]
    for one in searched.candidates[1:]:
        assert (one.gain, one.gain_error) == pytest.approx(gain(one.choice, stand.choice))
        assert one.taken == (one.gain > one.gain_error)
        stand = one if one.taken else stand
    assert stand is searched.best


@pytest.mark.slow
def test_a_gain_that_may_be_luck_is_not_taken():
    found = choose_kernels(far_off(), NUMBERS, {ROW: (2.0,)}, sweeps=1, errors=1e6, **PATH)
    assert found.best is found.candidates[0]
    assert found.candidates[1].gain > 0
    assert not math.isnan(found.candidates[1].gain_error)  # over tasks, with one split


@pytest.mark.slow
def test_a_jump_changes_several_parameters_at_once():
    found = choose_kernels(far_off(), NUMBERS, {}, jumps=[{ROW: 2.0, COL: 2.0}], sweeps=0, **PATH)
    assert [one.parameters[COL] for one in found.candidates] == pytest.approx([0.02, 2.0], rel=1e-5)
    assert found.best is found.candidates[1]


@pytest.mark.slow
def test_the_weight_of_a_graph_that_says_nothing_goes_down():
    """Nothing is drawn here: it would fail if weights did not reach the kernels, or if the worse candidate were taken."""
    true = PRIOR.row_axis.kernel.graph
    wrong = Graph([(i, (i + 7) % M) for i in range(M)], M)  # a quarter of a wave apart: neighbours are uncorrelated
    parts = [gpytorch.kernels.ScaleKernel(DiffusionKernel(graph, 2.0, 0.1)).double() for graph in (true, wrong)]
    cols = DiffusionKernel(Graph([(i, (i + 1) % N) for i in range(N)], N), 2.0, 0.1)
    model = mvgp.TraceGP(mvgp.MatrixGP(parts[0] + parts[1], cols), gaussian_model().likelihood, tolerance=1e-3)
    names = [f"row_axis.kernel.kernels.{place}.outputscale" for place in (0, 1)]
    row, col = torch.arange(M)[:, None], torch.arange(N)
    data = mvgp.ObservedMatrix.from_mask(make_truth(), (row * row + 3 * row * col + col) % 5 < 2)
    found = choose_kernels(model, data, {name: (0.03, 1.0) for name in names}, folds=3, **PATH)
    weights = [found.best.parameters[name] for name in names]
    assert weights[0] > 10 * weights[1]


def test_average_variance_is_kept_unless_told_otherwise():
    model = far_off()

    def variance(prior):
        product = prior.row_axis.covariance().diagonal().mean() * prior.col_axis.covariance().diagonal().mean()
        return product.item()

    kept, free = (with_parameters(model, {ROW: 3.0}, keep_variance=keep) for keep in (True, False))
    assert variance(kept.prior) == pytest.approx(variance(model.prior), rel=1e-9)
    assert variance(free.prior) < 0.9 * variance(model.prior)
    assert model.prior.row_axis.kernel.time.item() == pytest.approx(0.02, rel=1e-5)  # the given one is left alone


@pytest.mark.slow
def test_links_with_sampled_negatives_and_a_refit():
    links = make_links()
    path = {"trace_shares": (0.9,), "strengths": (0.5, 0.2), "metric": "MAP@10", "negatives": 2, "progress": False}
    found = choose_kernels(ranking_model(tolerance=1e-2), links, {ROW: (0.5,)}, sweeps=1, **path)
    assert found.refit(links).shape == (M, N)


@pytest.mark.slow
def test_an_interrupted_search_goes_on_where_it_was(searched, monkeypatch):
    calls = 0

    class Interrupting(mvgp.TraceGP):
        def path(self, data, *args, **options):
            nonlocal calls
            calls += 1
            if calls == 4:  # two paths for each candidate: in the middle of the second one
                raise KeyboardInterrupt
            return super().path(data, *args, **options)

    values = {ROW: (0.3, 2.0), COL: (0.3, 2.0)}
    with pytest.raises(KernelChoiceInterrupted) as stopped:
        choose_kernels(far_off(Interrupting), NUMBERS, values, folds=2, **PATH)
    partial = stopped.value.partial
    assert len(partial.candidates) == 1
    assert len(partial.unfinished.choice.finished) == 1
    before = calls
    found = choose_kernels(far_off(Interrupting), NUMBERS, values, folds=2, resume=partial, **PATH)
    assert calls - before == 2 * len(found.candidates) - 3  # three paths were there
    assert found.to_frame().equals(searched.to_frame())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"values": {"row_axis.kernel.tim": (1.0,)}}, "row_axis.kernel.tim.*expected the name of a parameter"),
        ({"values": {ROW: (-1.0,)}}, "row_axis.kernel.time: expected a value"),
        ({"values": {ROW: ("much",)}}, "row_axis.kernel.time: expected a value that is one number, got 'much'"),
        ({"values": {ROW: 2.0}}, "row_axis.kernel.time: expected a list of values to try, got 2.0"),
        ({"jumps": [{"likelihood.noise": 1.0}]}, "likelihood.noise.*expected the name of a parameter"),
        ({"jumps": {ROW: 2.0}}, "expected names with values"),
        ({"errors": -1.0}, "errors: expected a finite number that is not negative"),
        ({"values": {}}, "at least one parameter"),
        ({"values": [1.0]}, "expected names with values"),
        ({"sweeps": -1}, "sweeps: expected a whole number"),
        ({"resume": 3}, "resume: expected a KernelChoice"),
        ({"model": "trace"}, "model: expected mvgp.TraceGP"),
        ({"folds": 0}, "folds"),
    ],
)
def test_bad_input(change, expected):
    given = {"model": far_off(), "data": NUMBERS, "values": {ROW: (2.0,)}, **PATH, **change}
    with pytest.raises(InputError, match=expected):
        choose_kernels(**given)


def test_what_the_evidence_has_found_is_a_jump():
    """Names and tensors as learn_grid returns them; in single precision, too."""
    links = make_links()
    model = mvgp.TraceGP(copy.deepcopy(PRIOR).to(torch.float32), ranking_model().likelihood, tolerance=1e-2)
    learned = copy.deepcopy(PRIOR)
    density = len(links) / (M * N)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = density
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where it ends does not matter here
        evidence = learn_grid(learned, likelihood, links, max_steps=5).parameters
    jump = {name: value for name, value in evidence.items() if not name.startswith("likelihood")}
    path = {"trace_shares": (0.9,), "strengths": (0.5,), "metric": "AUC", "progress": False}
    found = choose_kernels(model, links, {}, jumps=[jump], sweeps=0, **path)
    assert [name.replace("axis.kernel", "kernel") for name in found.candidates[1].parameters] == list(jump)
    assert found.candidates[1].parameters[ROW] == pytest.approx(learned.row_axis.kernel.time.item(), rel=1e-6)
