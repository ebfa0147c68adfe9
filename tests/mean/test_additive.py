"""The mean of a sum of Kronecker terms against an independent conic solver, closed forms, and its own certificate."""

import numpy as np
import pytest
import torch
from linear_operator import to_linear_operator
from linear_operator.operators import ZeroLinearOperator

from mvgp.errors import InputError
from mvgp.likelihoods import SquaredLoss, project_order
from mvgp.likelihoods.losses import LossValue, RetargetedLoss, WholeListSquaredLoss
from mvgp.likelihoods.thresholds import WholeListRankingLoss
from mvgp.linalg.pairs import CompleteRows, Pattern
from mvgp.mean import MeanProblem, SpectralElasticNet, TraceBall, solve_additive, solve_proximal, solve_ridge
from tests import randomness
from tests.oracles import conic_additive

M, N = 6, 9
MARGIN, LIST_WEIGHT = 0.5, 0.2
TERMS = {  # kernels of rows and columns, and the penalty, of each term
    "trace + ridge": [("full", "full", (1.0, 1.0)), ("full", "full", (0.8, 0.0))],
    "trace + trace": [("full", "smooth", (0.7, 1.0)), ("smooth", "full", (0.6, 0.6))],
    "trace + ridge + popularity": [
        ("smooth", "full", (0.5, 0.9)),
        ("full", "full", (1.5, 0.0)),
        ("flat", "full", (2.0, 0.0)),
    ],
}


def kernel(rng, size, kind):
    if kind == "flat":
        return torch.ones(size, size, dtype=torch.float64)
    if kind == "smooth":
        at = torch.from_numpy(np.sort(rng.random(size)))
        return torch.exp(-(at[:, None] - at).square() / (2 * 0.3**2))
    a = rng.normal(size=(size, size))
    return torch.from_numpy(a @ a.T / size + 0.3 * np.eye(size))


class Sum:
    """A random problem: some cells with weights, or whole lists; values, or labels to be ranked."""

    def __init__(self, seed, terms, data, loss, draw=randomness.numpy_generator):
        rng = draw(seed)
        self.kernels = [(kernel(rng, M, rows), kernel(rng, N, cols)) for rows, cols, _ in terms]
        self.penalties = [SpectralElasticNet(*penalty) for *_, penalty in terms]
        truth = torch.from_numpy(rng.normal(size=(M, 2)) @ rng.normal(size=(2, N)) + rng.normal(size=(M, N)))
        self.margin = MARGIN if loss == "ranking" else None
        if data == "whole lists":
            chosen = torch.tensor([0, 2, 3, 5])
            pattern = CompleteRows(chosen, (M, N))
            positive = (truth[chosen] > truth[chosen].median(1).values.unsqueeze(1)).flatten()
            self.values = positive.double()
            self.weights = torch.where(positive, torch.ones((), dtype=torch.float64), LIST_WEIGHT)
            positions = positive.nonzero().squeeze(1)
            self.loss = (
                WholeListSquaredLoss(positions, LIST_WEIGHT)
                if self.margin is None
                else WholeListRankingLoss(positions, N, LIST_WEIGHT, MARGIN)
            )
        else:
            cells = torch.from_numpy(np.sort(rng.choice((M - 1) * N, 30, replace=False)))  # the last row is empty
            pattern = Pattern(cells // N, cells % N, (M, N))
            self.weights = torch.from_numpy(rng.random(len(cells)) + 0.5)
            self.values = truth.flatten()[cells]
            self.loss = SquaredLoss(self.values, self.weights)
            if self.margin is not None:
                self.values = (self.values > 0).double()
                self.loss = RetargetedLoss(self._retarget, self.weights)
        self.pattern = pattern
        self.problems = [MeanProblem(*map(to_linear_operator, pair), pattern, self.loss) for pair in self.kernels]

    def _retarget(self, psi):
        return project_order(psi, self.values > 0, self.pattern.rows, margin=MARGIN, weight=self.weights)

    def solve(self, tolerance=1e-7, **options):
        return solve_additive(self.problems, self.penalties, tolerance=tolerance, **options)

    def optimum(self):
        """Objective, and psi and theta (T,), of a conic solver."""
        pattern = self.pattern
        return conic_additive(
            self.kernels, self.penalties, pattern.rows, pattern.cols, self.values, self.weights, margin=self.margin
        )


def every_kind(function):
    for name, choices in (
        ("terms", TERMS.values()),
        ("data", ["some cells", "whole lists"]),
        ("loss", ["squared", "ranking"]),
    ):
        ids = list(TERMS) if name == "terms" else None
        function = pytest.mark.parametrize(name, list(choices), ids=ids)(function)
    return function


PATHS = {"direct": {}, "iterated": {"exact_limit": 0, "dense_cells": 0}, "single first": {"single_from": 0}}


@pytest.mark.slow
@every_kind
def test_objective_and_mean_equal_a_conic_solver(terms, data, loss):
    problem = Sum(3, terms, data, loss, randomness.fixed_numpy_generator)
    truth, psi, theta = problem.optimum()
    for options in PATHS.values():
        found = problem.solve(**options)
        certificate = found.certificate
        assert certificate.converged, certificate
        assert abs(certificate.primal - truth) <= 1e-6 * truth
        assert certificate.dual - 1e-8 * truth <= truth <= certificate.primal + 1e-8 * truth
        # f* is strongly convex, with the inverse weights, at the gradient, and f with the weights if it is squared
        reach = (2 * (certificate.gap + 1e-8 * truth)) ** 0.5
        assert (found.loss.gradient - theta).div(problem.weights.sqrt()).norm() <= 2 * reach
        if loss == "squared":
            assert (found.psi - psi).mul(problem.weights.sqrt()).norm() <= 2 * reach


@every_kind
@pytest.mark.parametrize("path", PATHS)
def test_the_ways_to_solve_agree_on_any_problem(terms, data, loss, path):
    """No objective is below a lower bound; the parts add up; ridge terms are - K theta / l2."""
    problem = Sum(5, terms, data, loss)
    found, other = problem.solve(**PATHS[path], max_iterations=5000), problem.solve(1e-4)
    assert found.certificate.converged
    assert other.certificate.converged
    highest = max(found.certificate.dual, other.certificate.dual)
    assert highest <= min(found.certificate.primal, other.certificate.primal) * (1 + 1e-10)
    cells = problem.pattern.rows, problem.pattern.cols
    total, value = torch.zeros_like(found.psi), problem.loss(found.psi).value
    for part, (k_rows, k_cols), penalty, square in zip(
        found.parts, problem.kernels, problem.penalties, found.squares, strict=True
    ):
        if part.mean is not None:
            assert part.rank == part.mean.rank
            mean = part.mean
            dual = (mean.left * mean.values) @ mean.right.T
            value += penalty.value(mean.values)
        else:
            dual = problem.pattern.matrix(part.coefficients).to_dense()
            value += penalty.ridge / 2 * float((dual * (k_rows @ dual @ k_cols)).sum())
        scores = k_rows @ dual @ k_cols
        assert float((dual * scores).sum()) == pytest.approx(square, rel=1e-6, abs=1e-9)
        total += scores[cells]
    scale = 1 + found.psi.abs().max()
    torch.testing.assert_close(total / scale, found.psi / scale, atol=1e-7, rtol=0)
    assert value == pytest.approx(found.certificate.primal, rel=1e-7)


@pytest.mark.slow
@every_kind
def test_the_certificate_is_never_below_the_true_gap(terms, data, loss):
    problem = Sum(3, terms, data, loss, randomness.fixed_numpy_generator)
    truth, *_ = problem.optimum()
    for options in PATHS.values():
        for steps in (0, 1, 3, 10):
            found = problem.solve(1e-12, max_iterations=steps, **options).certificate
            assert found.dual <= truth * (1 + 1e-7)
            assert truth <= found.primal * (1 + 1e-7)
            assert found.failure_probability <= 1e-6


@pytest.mark.parametrize("path", ["direct", "iterated"])
@pytest.mark.parametrize("loss", ["squared", "ranking"])
def test_one_term_is_the_problem_of_the_other_solvers(loss, path):
    for penalty in ((0.7, 1.0), (0.7, 0.5)):
        problem = Sum(7, [("full", "full", penalty)], "some cells", loss)
        one = problem.solve(1e-8, max_iterations=5000, **PATHS[path])
        other = solve_proximal(problem.problems[0], problem.penalties[0], tolerance=1e-8, max_iterations=5000)
        assert one.certificate.primal == pytest.approx(other.certificate.primal, rel=2e-8)
        assert one.parts[0].rank == other.mean.rank or penalty[1] < 1
    problem = Sum(7, [("full", "full", (0.7, 0.0))], "some cells", loss)
    one = problem.solve(1e-8, max_iterations=5000, **PATHS[path])
    other = solve_ridge(problem.problems[0], 0.7, tolerance=1e-8, max_iterations=5000)
    assert one.certificate.converged
    assert one.certificate.primal == pytest.approx(other.certificate.primal, rel=2e-8)


class LogisticValue(LossValue):
    """At labels +-1: the conjugate is not quadratic."""

    def conjugate(self, scale):
        share = (scale * self.gradient.abs()).clamp(1e-300, 1 - 1e-16)
        return float((share * share.log() + (1 - share) * torch.log1p(-share)).sum())


class LogisticLoss:
    curvature = 0.25

    def __init__(self, labels):
        self.labels = labels

    def quadratic_bound(self, step):
        return 0.25 * float(step.square().sum())

    def __call__(self, psi):
        value = torch.nn.functional.softplus(-self.labels * psi).sum()
        return LogisticValue(float(value), -self.labels * torch.sigmoid(-self.labels * psi), 0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["direct", "iterated"])
@pytest.mark.parametrize("terms", TERMS.values(), ids=list(TERMS))
def test_a_loss_that_is_not_quadratic_is_certified_by_its_conjugate(terms, path):
    import cvxpy as cp

    problem = Sum(23, terms, "some cells", "squared", randomness.fixed_numpy_generator)
    labels = torch.where(problem.values > 0, 1.0, -1.0).double()
    loss, pattern = LogisticLoss(labels), problem.pattern
    penalties = [SpectralElasticNet(0.3 * each.lam, each.alpha) for each in problem.penalties]
    problems = [MeanProblem(each.row_op, each.col_op, pattern, loss) for each in problem.problems]
    found = solve_additive(problems, penalties, tolerance=1e-7, max_iterations=10_000, **PATHS[path])
    assert found.certificate.converged
    total, penalty = 0, 0
    for pair, net in zip(problem.kernels, penalties, strict=True):
        spectra = [torch.linalg.eigh(k) for k in pair]
        g_rows, g_cols = ((v * s.clamp_min(0).sqrt()).numpy() for s, v in spectra)
        b = cp.Variable((M, N))
        total = total + g_rows @ b @ g_cols.T
        penalty = penalty + net.trace * cp.normNuc(b) + net.ridge / 2 * cp.sum_squares(b)
    psi = cp.hstack([total[int(m), int(n)] for m, n in zip(pattern.rows, pattern.cols, strict=True)])
    conic = cp.Problem(cp.Minimize(cp.sum(cp.logistic(-cp.multiply(labels.numpy(), psi))) + penalty))
    conic.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    assert found.certificate.primal == pytest.approx(conic.value, rel=1e-6)
    assert found.certificate.dual <= conic.value * (1 + 1e-8)


def test_a_trace_term_and_a_ridge_term_on_the_same_kernels_are_huber_like():
    """Identity kernels, all cells: each singular value s of the data leaves min(l1, s l2 / (1 + l2))."""
    rng = randomness.numpy_generator(11)
    data = torch.from_numpy(rng.normal(size=(M, N)))
    cells = torch.arange(M * N)
    ops = [to_linear_operator(torch.eye(n, dtype=torch.float64)) for n in (M, N)]
    loss = SquaredLoss(data.flatten())
    problems = [MeanProblem(*ops, Pattern(cells // N, cells % N, (M, N)), loss) for _ in range(2)]
    l1, l2 = 0.6, 0.4
    found = solve_additive(problems, [SpectralElasticNet(l1, 1.0), SpectralElasticNet(l2, 0.0)], tolerance=1e-9)
    u, s, vt = torch.linalg.svd(data, full_matrices=False)
    left = torch.minimum(s * l2 / (1 + l2), torch.full_like(s, l1))
    torch.testing.assert_close(found.loss.gradient, -((u * left) @ vt).flatten(), atol=1e-4, rtol=0)
    assert found.parts[0].rank == int((s * l2 / (1 + l2) > l1).sum())


@pytest.mark.parametrize("empty", [0, 1])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_term_with_a_zero_kernel_has_a_zero_mean(alpha, empty):
    problem = Sum(13, [("full", "full", (0.5, 1.0))], "some cells", "squared")
    ops = list(map(to_linear_operator, problem.kernels[0]))
    ops[empty] = ZeroLinearOperator(*ops[empty].shape, dtype=torch.float64)
    nothing = MeanProblem(*ops, problem.pattern, problem.loss)
    alone, weight = problem.solve(), SpectralElasticNet(0.3, alpha)
    found = solve_additive([nothing, *problem.problems], [weight, *problem.penalties], tolerance=1e-7)
    assert found.certificate.converged
    assert found.certificate.primal == pytest.approx(alone.certificate.primal, rel=1e-6)
    part = found.parts[0]
    assert part.rank == 0 if alpha else not part.coefficients.any()
    only = solve_additive([nothing], [weight], tolerance=1e-7)
    assert only.certificate.relative_gap < 1e-9
    assert not only.psi.any()


def test_warm_starts_save_steps():
    problem = Sum(17, TERMS["trace + ridge"], "some cells", "squared")
    near = solve_additive(
        problem.problems, [SpectralElasticNet(1.01, 1.0), SpectralElasticNet(0.81, 0.0)], tolerance=1e-7
    )
    cold = problem.solve()
    warm = problem.solve(start=near)
    again = problem.solve(start=cold)
    assert again.certificate.iterations == 0
    assert warm.certificate.iterations <= cold.certificate.iterations
    assert warm.certificate.primal == pytest.approx(cold.certificate.primal, rel=1e-6)


def test_what_does_not_fit_together_is_refused():
    problem = Sum(19, TERMS["trace + ridge"], "some cells", "squared")
    other = Sum(20, TERMS["trace + ridge"], "some cells", "squared")
    first, penalties = problem.problems, problem.penalties
    solution = problem.solve(1e-2)
    for call, message in (
        (lambda: solve_additive([], [], tolerance=0.1), "one for each of 0"),
        (lambda: solve_additive(first, penalties[:1], tolerance=0.1), "one for each of 2 problems, got 1"),
        (
            lambda: solve_additive(first, [TraceBall(1.0)] * 2, tolerance=0.1),
            r"penalties\[0\]: expected mvgp.mean.Spec",
        ),
        (
            lambda: solve_additive(first, [*penalties[:1], SpectralElasticNet(0.0, 0.5)], tolerance=0.1),
            "penalty of zero",
        ),
        (
            lambda: solve_additive([first[0], other.problems[1]], penalties, tolerance=0.1),
            r"problems\[1\]: expected the",
        ),
        (lambda: solve_additive(first[:1], penalties[:1], tolerance=0.1, start=solution), "start: expected a solution"),
        (lambda: solve_additive(first, penalties, tolerance=0.0), "tolerance"),
    ):
        with pytest.raises(InputError, match=message):
            call()
