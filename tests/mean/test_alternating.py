"""Algorithm 1 against the joint solver, and the joint solver's certificate against a conic solver in (B, r)."""

import functools

import numpy as np
import pytest
import torch
from linear_operator import to_linear_operator

from mvgp.errors import InputError
from mvgp.likelihoods import OrderCone, OrderedSimplex, RankingLists, RetargetedLoss, SquaredLoss
from mvgp.linalg.pairs import Pattern
from mvgp.mean import MeanProblem, SpectralElasticNet, TraceBall, solve_proximal
from mvgp.mean.factored import solve_alternating
from tests import randomness
from tests.likelihoods.instances import pairs_in_order
from tests.mean.rankings import SHAPE, fixed_ranking, rate_limit, watch_means

(M, N), T = SHAPE, 24
ROUNDS = 40
ROUNDING = 1e-12


def covariance(rng, size):
    a = rng.normal(size=(size, size))
    return torch.from_numpy(a @ a.T / size + 0.3 * np.eye(size))


def random_ranking(seed, weighted=False, draw=randomness.numpy_generator):
    """Random kernels, labels by the sign of a noisy matrix of rank 2; the loss holds labels and weights."""
    rng = draw(seed)
    cells = torch.from_numpy(np.sort(rng.choice(M * N, T, replace=False)))
    truth = rng.normal(size=(M, 2)) @ rng.normal(size=(2, N)) + 0.3 * rng.normal(size=(M, N))
    labels = torch.from_numpy(np.where(truth > 0, 1.0, -1.0)).flatten()[cells]
    weights = torch.from_numpy(rng.random(T) + 0.5) if weighted else None
    ops = [to_linear_operator(covariance(rng, size)) for size in (M, N)]
    return MeanProblem(*ops, Pattern(cells // N, cells % N, (M, N)), SquaredLoss(labels, weights))


def projection(problem, target):
    lists = RankingLists.from_labels(problem.loss.targets, problem.pattern.rows)
    return target.projection(lists, problem.loss.weights)


def joint(problem, retarget):
    return MeanProblem(problem.row_op, problem.col_op, problem.pattern, RetargetedLoss(retarget, problem.loss.weights))


def conic_joint_optimum(problem, target, penalty):
    """The smallest objective over B and r together, r in the target set, by an interior-point solver."""
    import cvxpy as cp

    rows, cols, labels = problem.pattern.rows.tolist(), problem.pattern.cols.tolist(), problem.loss.targets.numpy()
    weights = np.ones(T) if problem.loss.weights is None else problem.loss.weights.numpy()
    g_rows, g_cols = (np.linalg.cholesky(op.to_dense().numpy()) for op in (problem.row_op, problem.col_op))
    b, r = cp.Variable((M, N)), cp.Variable(T)
    psi = g_rows @ b @ g_cols.T
    picked = cp.hstack([psi[m, n] for m, n in zip(rows, cols, strict=True)])
    limits = []
    for row in set(rows):
        own = np.flatnonzero(np.array(rows) == row)
        limits += [r[own[i]] >= r[own[j]] + target.margin for i, j, _ in pairs_in_order(labels[own] > 0)]
        if isinstance(target, OrderedSimplex):
            limits += [r[own] >= 0, cp.sum(r[own]) == target.total]
    loss = 0.5 * cp.sum(cp.multiply(weights, cp.square(picked - r)))
    whole = loss + penalty.ridge / 2 * cp.sum_squares(b) + penalty.trace * cp.normNuc(b)
    program = cp.Problem(cp.Minimize(whole), limits)
    program.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-11, tol_feas=1e-10)
    return float(program.value)


def assert_descends(objectives, tolerance):
    """From the first retargeting on: only then are the targets in the set.

    :param tolerance: relative gap of the means, by which a step may end above where it began.
    """
    steps = np.diff(objectives[1:])
    assert (steps <= (ROUNDING + tolerance) * np.abs(objectives[1:-1])).all(), steps.max()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "lam", "alpha", "weighted"),
    [(0, 0.5, 0.5, False), (1, 2.0, 0.5, True), (2, 0.5, 1.0, False), (3, 1.0, 1.0, True), (4, 1.0, 0.0, False)],
)
@pytest.mark.parametrize("from_labels", [True, False])
def test_algorithm_1_reaches_the_joint_optimum(seed, lam, alpha, weighted, from_labels, monkeypatch):
    problem, penalty = random_ranking(seed, weighted), SpectralElasticNet(lam, alpha)
    retarget = projection(problem, OrderCone(1.0))
    start = problem.loss.targets if from_labels else torch.zeros(T, dtype=torch.float64)
    best = solve_proximal(joint(problem, retarget), penalty, tolerance=1e-8, max_iterations=3000)
    run = functools.partial(solve_alternating, problem, penalty, retarget, start=start, tolerance=1e-8)
    first, gaps = run(rounds=1, max_iterations=3000), watch_means(monkeypatch)
    found = run(rounds=ROUNDS, max_iterations=3000)
    assert best.certificate.converged
    assert len(found.objectives) == 2 * ROUNDS
    assert_descends(found.objectives, 1e-8)
    assert found.objective >= best.certificate.dual * (1 - 1e-9)
    weights = torch.ones(T) if problem.loss.weights is None else problem.loss.weights
    apart = float((weights * (first.solution.psi - best.psi).square()).sum()) ** 0.5
    assert found.objective - best.certificate.primal <= rate_limit(apart, ROUNDS - 1, max(gaps))
    # the evidence is about the joint problem, at the mean that was reached
    assert found.certificate.primal == pytest.approx(found.objective, rel=1e-12)
    assert found.certificate.dual <= best.certificate.primal * (1 + 1e-9)
    assert found.certificate.gap >= found.objective - best.certificate.primal - 1e-9 * found.objective
    torch.testing.assert_close(found.targets, retarget(found.solution.psi))
    assert not found.row_bias.any()


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_algorithm_1_ends_at_the_joint_optimum_of_a_fixed_problem(alpha):
    """The rate above holds for any problem and is slow. Nothing is drawn here, and the end is close."""
    problem = fixed_ranking()
    penalty, retarget = SpectralElasticNet(1.0, alpha), projection(problem, OrderCone(1.0))
    best = solve_proximal(joint(problem, retarget), penalty, tolerance=1e-8, max_iterations=3000)
    found = solve_alternating(problem, penalty, retarget, start=problem.loss.targets, rounds=ROUNDS, tolerance=1e-8)
    assert best.certificate.converged
    assert found.objective == pytest.approx(best.certificate.primal, rel=1e-6)
    assert found.certificate.relative_gap < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("target", [OrderCone(1.0), OrderedSimplex(), OrderedSimplex(3.0, 0.2)])
@pytest.mark.parametrize("row_bias", [False, True])
def test_the_objective_does_not_increase(target, row_bias):
    """Whatever the tolerance of the mean, as long as it starts from the one before."""
    problem = random_ranking(5)
    retarget = projection(problem, target)
    scale = 1.0 if isinstance(target, OrderCone) else 0.02
    for penalty in (SpectralElasticNet(scale, 0.7), TraceBall(2 * scale, 0.1)):
        for tolerance in (1e-2, 1e-6):
            found = solve_alternating(
                problem,
                penalty,
                retarget,
                start=problem.loss.targets,
                rounds=8,
                tolerance=tolerance,
                row_bias=row_bias,
            )
            assert_descends(found.objectives, tolerance)
            assert (found.certificate is None) == row_bias
            scores = found.solution.psi + found.row_bias[problem.pattern.rows]
            value = 0.5 * float((scores - retarget(scores)).square().sum())
            assert found.objective == pytest.approx(value + penalty.value(found.solution.mean.values), rel=1e-12)


@pytest.mark.slow
def test_a_bias_adds_nothing_to_a_set_that_may_be_shifted():
    """The order cone: with and without a row bias the same optimum, so the joint solver needs none."""
    problem, penalty = fixed_ranking(), SpectralElasticNet(1.0, 0.5)
    retarget = projection(problem, OrderCone(1.0))
    solve = functools.partial(
        solve_alternating, problem, penalty, retarget, start=problem.loss.targets, rounds=60, tolerance=1e-8
    )
    assert solve(row_bias=True).objective == pytest.approx(solve(row_bias=False).objective, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.5, 1.0])
@pytest.mark.parametrize(
    ("target", "lam"), [(OrderCone(1.0), 0.7), (OrderedSimplex(), 0.03), (OrderedSimplex(3.0, 0.2), 0.1)]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_joint_certificate_holds_at_every_stage(seed, target, lam, alpha):
    """The gap is at least the true distance from the optimum; at the end both are nil."""
    problem = random_ranking(seed, isinstance(target, OrderCone), randomness.fixed_numpy_generator)
    penalty = SpectralElasticNet(lam, alpha)
    truth = conic_joint_optimum(problem, target, penalty)
    whole = joint(problem, projection(problem, target))
    for steps in (0, 1, 3, 12):
        early = solve_proximal(whole, penalty, tolerance=1e-12, max_iterations=steps).certificate
        assert early.gap >= early.primal - truth - 1e-7 * truth
        assert early.dual <= truth * (1 + 1e-7)
        assert early.primal >= truth * (1 - 1e-7)
    end = solve_proximal(whole, penalty, tolerance=1e-7, max_iterations=3000).certificate
    assert end.converged
    assert end.primal == pytest.approx(truth, rel=1e-6)
    few = solve_alternating(
        problem, penalty, projection(problem, target), start=problem.loss.targets, rounds=3, tolerance=1e-8
    )
    assert few.certificate.gap >= few.objective - truth - 1e-7 * truth
    assert few.certificate.dual <= truth * (1 + 1e-7)


@pytest.mark.slow
def test_what_fits_exactly():
    """Targets that a mean of zero meets, and a ranking that the mean has met: gradients that are exactly zero."""
    problem, nothing = random_ranking(7), torch.zeros(T, dtype=torch.float64)
    still = solve_alternating(
        problem, SpectralElasticNet(1.0, 0.5), torch.clone, start=nothing, rounds=3, tolerance=1e-6
    )
    assert still.objectives == (0.0,) * 6
    assert still.solution.mean.rank == 0
    retarget = projection(problem, OrderCone(1e-3))
    met = solve_alternating(
        problem, SpectralElasticNet(1e-3, 0.5), retarget, start=problem.loss.targets, rounds=1, tolerance=1e-6
    )
    torch.testing.assert_close(met.targets, met.solution.psi)
    assert met.certificate.dual == 0.0
    assert met.certificate.primal == pytest.approx(met.objective)


def test_bad_input():
    problem = random_ranking(0)
    ready = functools.partial(solve_alternating, problem, SpectralElasticNet(1.0, 0.5), tolerance=1e-3)
    for rounds in (0, 2.0, True):
        with pytest.raises(InputError, match="rounds: expected a positive whole number"):
            ready(torch.clone, start=problem.loss.targets, rounds=rounds)
    with pytest.raises(InputError, match=r"start: expected targets of shape \(24,\), got \(3,\)"):
        ready(torch.clone, start=torch.zeros(3), rounds=1)
    with pytest.raises(InputError, match="retarget"):
        ready(lambda psi: psi[:2], start=problem.loss.targets, rounds=1)
