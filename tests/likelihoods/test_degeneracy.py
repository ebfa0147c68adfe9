"""The ordered simplex with a row bias is fitted best by a constant; the order cone with a margin is not. See docs/ranking.md."""

import functools

import numpy as np
import pytest
import torch
from linear_operator import to_linear_operator

from mvgp.likelihoods import BipartiteRankingLikelihood, OrderCone, OrderedSimplex, RetargetedLoss, SquaredLoss
from mvgp.linalg.pairs import Pattern
from mvgp.mean import MeanProblem, SpectralElasticNet, solve_proximal
from mvgp.mean.factored import solve_alternating
from tests import randomness
from tests.mean.rankings import fixed_ranking, rate_limit, watch_means

M, N = 6, 10


def ranking(seed=0):
    """A problem whose loss holds the labels: lists of 5 to 9 items, each with a positive and a negative."""
    rng = randomness.numpy_generator(seed)
    rows = np.repeat(np.arange(M), rng.integers(5, N, M))
    cols = np.concatenate([np.sort(rng.choice(N, n, replace=False)) for n in np.bincount(rows)])
    truth = rng.normal(size=(M, 2)) @ rng.normal(size=(2, N))
    truth -= np.median(truth, axis=1, keepdims=True)
    labels = np.where(truth[rows, cols] > 0, 1.0, -1.0)
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    labels[first], labels[first + 1] = 1.0, -1.0
    ops = []
    for size in (M, N):
        a = rng.normal(size=(size, size))
        ops.append(to_linear_operator(torch.from_numpy(a @ a.T / size + 0.3 * np.eye(size))))
    pattern = Pattern(torch.from_numpy(rows), torch.from_numpy(cols), (M, N))
    return MeanProblem(*ops, pattern, SquaredLoss(torch.from_numpy(labels)))


def lists_of(problem):
    """Labels (T,), tasks (T,), and the length of each entry's list (T,)."""
    labels, task = problem.loss.targets, problem.pattern.rows
    return labels, task, torch.bincount(task)[task].double()


def test_a_constant_attains_the_smallest_objective_there_is():
    """B = 0 and bias 1 / T_m: loss 0, penalty 0, whatever the labels."""
    labels, task, length = lists_of(ranking())
    simplex = BipartiteRankingLikelihood(target=OrderedSimplex())
    for some in (labels, -labels):
        assert float(simplex.loss(1 / length, some, task)) < 1e-30
        torch.testing.assert_close(simplex.retarget(1 / length, some, task), 1 / length, rtol=1e-14, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("lam", "alpha"), [(0.05, 1.0), (0.5, 1.0), (0.5, 0.5)])
def test_algorithm_1_with_a_row_bias_ends_at_the_constant(lam, alpha):
    """From the labels, which it forgets."""
    problem = ranking()
    labels, task, length = lists_of(problem)
    retarget = BipartiteRankingLikelihood(target=OrderedSimplex()).retargeting(labels, task)
    penalty = SpectralElasticNet(lam, alpha)
    found = solve_alternating(problem, penalty, retarget, start=labels, rounds=40, tolerance=1e-6, row_bias=True)
    assert found.objectives[0] > 1e-2
    assert found.objective < 1e-20
    assert found.solution.mean.rank == 0
    torch.testing.assert_close(found.row_bias[task], 1 / length, rtol=1e-8, atol=0)


def test_without_a_bias_the_first_gradient_carries_no_label():
    """At B = 0 the ordered simplex retargets to 1 / T_m, so that other labels give the same gradient."""
    labels, task, length = lists_of(ranking())
    zero = torch.zeros_like(labels)
    simplex = BipartiteRankingLikelihood(target=OrderedSimplex())
    gradients = [
        RetargetedLoss(simplex.retargeting(some, task))(zero).gradient
        for some in (labels, -labels, labels[torch.randperm(len(labels))])
    ]
    for gradient in gradients:
        torch.testing.assert_close(gradient, -1 / length, rtol=1e-12, atol=0)


@pytest.mark.parametrize("margin", [1.0, 0.3])
@pytest.mark.parametrize("offset", [0.0, 0.7])
def test_with_a_margin_constants_are_penalised_and_the_first_gradient_separates_the_labels(margin, offset):
    """A constant loses d^2 p q / 2 (p + q) in a list of p positives and q negatives, whatever the constant."""
    labels, task, length = lists_of(ranking())
    positives = torch.bincount(task[labels > 0])[task].double()
    negatives = length - positives
    bias = offset * torch.randn(M, dtype=torch.float64)
    found = RetargetedLoss(BipartiteRankingLikelihood(margin).retargeting(labels, task))(bias[task])
    expected = torch.where(labels > 0, -margin * negatives / length, margin * positives / length)
    torch.testing.assert_close(found.gradient, expected, rtol=1e-10, atol=1e-12)
    value = float((margin**2 * positives * negatives / (2 * length) / length).sum())
    assert found.value == pytest.approx(value, rel=1e-10)
    assert found.value > 0.1 * margin**2


def test_a_margin_within_the_simplex_helps_too():
    """No constant is in the set, so even the best one has a loss; found by a fine grid of constants."""
    labels, task = torch.tensor([1, 1, -1, -1, -1]), torch.zeros(5, dtype=torch.long)
    for margin, constant_fits in ((0.0, True), (0.3, False)):
        likelihood = BipartiteRankingLikelihood(target=OrderedSimplex(1.0, margin))
        grid = torch.linspace(-1, 1, 201, dtype=torch.float64)
        best = min(float(likelihood.loss(c.expand(5), labels, task)) for c in grid)
        assert (best < 1e-12) == constant_fits


def in_turns(problem, monkeypatch):
    """With a margin of 1, the joint solver and Algorithm 1 with a free row bias: its 1st round, 40 rounds, their gap."""
    penalty, (labels, task, _) = SpectralElasticNet(0.3, 0.5), lists_of(problem)
    retarget = BipartiteRankingLikelihood(target=OrderCone(1.0)).retargeting(labels, task)
    whole = MeanProblem(problem.row_op, problem.col_op, problem.pattern, RetargetedLoss(retarget))
    best = solve_proximal(whole, penalty, tolerance=1e-7, max_iterations=2000)
    run = functools.partial(solve_alternating, problem, penalty, retarget, start=labels, tolerance=1e-7, row_bias=True)
    first, gaps = run(rounds=1), watch_means(monkeypatch)
    return best, first, run(rounds=40), max(gaps)


@pytest.mark.slow
def test_the_joint_solver_with_a_margin_ranks_the_labels(monkeypatch):
    """Nothing is drawn. A row bias is free in Algorithm 1 and of no use to the joint solver; both learn the order."""
    problem = fixed_ranking()
    labels, task, _ = lists_of(problem)
    best, _, turns, _ = in_turns(problem, monkeypatch)
    assert best.certificate.converged
    assert best.certificate.dual > 0
    assert turns.objective == pytest.approx(best.certificate.primal, rel=1e-6)
    for psi in (best.psi, turns.solution.psi):
        for m in task.unique():
            own = task == m
            assert psi[own & (labels > 0)].min() > psi[own & (labels < 0)].max()


@pytest.mark.slow
def test_in_turns_is_no_slower_than_its_rate(monkeypatch):
    """Same data for both: whatever they are. The set may be shifted, so scores may be compared up to a row bias."""
    problem = ranking()
    _, task, _ = lists_of(problem)
    best, first, turns, gap = in_turns(problem, monkeypatch)
    off = first.solution.psi - best.psi
    off -= (torch.zeros(M, dtype=torch.float64).index_add_(0, task, off) / torch.bincount(task))[task]
    assert turns.objective >= best.certificate.dual * (1 - 1e-9)
    assert turns.objective - best.certificate.primal <= rate_limit(float(off.norm()), 39, gap)
