"""Every solver against an independent conic solver, and against its own certificate."""

import numpy as np
import pytest
import torch
from linear_operator import to_linear_operator

from mvgp.errors import InputError
from mvgp.likelihoods import BiasedSquaredLoss, SquaredLoss
from mvgp.linalg.pairs import Pattern
from mvgp.mean import MeanProblem, SpectralElasticNet, TraceBall, solve_dense, solve_hybrid, solve_proximal, solve_ridge
from tests import randomness
from tests.oracles import conic_optimum

M, N = 6, 9


def covariance(rng, size):
    a = rng.normal(size=(size, size))
    return torch.from_numpy(a @ a.T / size + 0.3 * np.eye(size))


def random_problem(seed, weighted, rows_used=M - 1, draw=randomness.numpy_generator):
    """Random kernels and targets; the last row is empty."""
    rng = draw(seed)
    k_rows, k_cols = covariance(rng, M), covariance(rng, N)
    cells = torch.from_numpy(np.sort(rng.choice(rows_used * N, rng.integers(5, rows_used * N), replace=False)))
    low_rank = rng.normal(size=(M, 2)) @ rng.normal(size=(2, N))
    targets = torch.from_numpy(low_rank + rng.normal(size=(M, N))).flatten()[cells]
    weights = torch.from_numpy(rng.random(len(cells)) + 0.5) if weighted else None
    pattern = Pattern(cells // N, cells % N, (M, N))
    problem = MeanProblem(
        to_linear_operator(k_rows), to_linear_operator(k_cols), pattern, SquaredLoss(targets, weights)
    )
    return problem, k_rows, k_cols


def optimum(problem, k_rows, k_cols, penalty):
    loss = problem.loss
    weights = torch.ones_like(loss.targets) if loss.weights is None else loss.weights
    parts = (k_rows, k_cols, problem.pattern.rows, problem.pattern.cols, loss.targets, weights)
    if isinstance(penalty, TraceBall):
        return conic_optimum(*parts, ridge=penalty.ridge, radius=penalty.radius)
    return conic_optimum(*parts, ridge=penalty.ridge, trace=penalty.trace)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("kind", ["penalty, strong", "penalty, weak", "ball", "tight ball"])
@pytest.mark.parametrize("draw", [randomness.fixed_numpy_generator, randomness.numpy_generator], ids=["fixed", "drawn"])
def test_objectives_equal_a_conic_solver_and_each_other(kind, alpha, weighted, draw):
    """A conic solver where nothing is drawn; one another always, as no objective is below a lower bound."""
    seed = int(100 * alpha) + len(kind) + weighted
    problem, *kernels = random_problem(seed, weighted, draw=draw)
    lam = {"penalty, strong": 2.0, "penalty, weak": 0.3}.get(kind, 0.5)
    penalty = SpectralElasticNet(lam, alpha)
    if "ball" in kind:
        penalty = TraceBall(0.7 if kind == "tight ball" else 3.0, lam * (1 - alpha))
    solvers = [solve_dense, solve_proximal] + ([] if "ball" in kind else [solve_hybrid])
    every = []
    for solve in solvers:
        options = {"max_iterations": 5000} if solve is solve_proximal else {}
        every.append(solve(problem, penalty, tolerance=1e-7, **options).certificate)
        assert every[-1].converged, every[-1]
    assert max(found.dual for found in every) <= min(found.primal for found in every) * (1 + 1e-12)
    if draw is randomness.fixed_numpy_generator:
        truth = optimum(problem, *kernels, penalty)
        for found in every:
            assert abs(found.primal - truth) <= 1e-6 * truth, found
            assert found.dual - 1e-8 * truth <= truth <= found.primal + 1e-8 * truth, found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_certificate_holds_at_every_stage(seed):
    """Stopped early, the bounds are loose but true."""
    problem, *kernels = random_problem(seed, seed % 2 == 0, draw=randomness.fixed_numpy_generator)
    penalty = SpectralElasticNet(0.5, [0.3, 1.0][seed % 2])
    truth = optimum(problem, *kernels, penalty)
    for steps in (1, 3, 10, 30):
        found = solve_proximal(problem, penalty, tolerance=1e-12, max_iterations=steps).certificate
        assert found.dual <= truth * (1 + 1e-7)
        assert truth <= found.primal * (1 + 1e-7)
        assert found.gap == pytest.approx(found.primal - found.dual)


def test_above_lam_max_the_solution_is_exactly_zero():
    problem, *_ = random_problem(0, False)
    gradient = problem.pattern.matrix(problem.loss(torch.zeros_like(problem.loss.targets)).gradient).to_dense()
    roots = [torch.linalg.cholesky(op.to_dense()) for op in (problem.row_op, problem.col_op)]
    lam_max = torch.linalg.svdvals(roots[0].T @ gradient @ roots[1])[0].item()
    for alpha in (1.0, 0.5):
        above = solve_proximal(problem, SpectralElasticNet(1.0001 * lam_max / alpha, alpha), tolerance=1e-6)
        below = solve_proximal(problem, SpectralElasticNet(0.999 * lam_max / alpha, alpha), tolerance=1e-9)
        assert above.mean.rank == 0
        assert above.certificate.relative_gap < 1e-9
        assert below.mean.rank >= 1


@pytest.mark.slow
def test_warm_starts_reach_the_same_point_sooner():
    problem, *_ = random_problem(3, False)
    near = solve_proximal(problem, SpectralElasticNet(0.55, 0.9), tolerance=1e-7, max_iterations=5000)
    cold = solve_proximal(problem, SpectralElasticNet(0.5, 0.9), tolerance=1e-7, max_iterations=5000)
    warm = solve_proximal(problem, SpectralElasticNet(0.5, 0.9), tolerance=1e-7, max_iterations=5000, start=near)
    assert warm.certificate.primal == pytest.approx(cold.certificate.primal, rel=1e-6)
    ball = solve_proximal(problem, TraceBall(0.1), tolerance=1e-7, start=near)  # outside the ball
    assert ball.certificate.converged


def test_ridge_is_kernel_regression_for_any_loss():
    problem, k_rows, k_cols = random_problem(4, True)
    pattern, loss = problem.pattern, problem.loss
    k = k_rows[pattern.rows][:, pattern.rows] * k_cols[pattern.cols][:, pattern.cols]
    truth = torch.linalg.solve(k + torch.diag(0.4 / loss.weights), loss.targets)
    direct = solve_ridge(problem, 0.4, tolerance=1e-9)
    torch.testing.assert_close(direct.coefficients, truth, atol=1e-8, rtol=0)
    assert direct.certificate.relative_gap < 1e-9

    class Plain:  # the same loss, not recognised as squared
        curvature = loss.curvature

        def __call__(self, psi):
            return loss(psi)

    general = solve_ridge(MeanProblem(problem.row_op, problem.col_op, pattern, Plain()), 0.4, tolerance=1e-10)
    assert general.certificate.converged
    # the objective is strongly convex in the coefficients with the constant 0.4 times the smallest eigenvalue of k, and
    # that is at least 0.3^2, see covariance()
    assert (general.coefficients - truth).norm() <= (2 * general.certificate.gap / (0.4 * 0.09)) ** 0.5 + 1e-9


@pytest.mark.parametrize(
    ("row_penalty", "col_penalty"), [(0.0, None), (0.7, None), (None, 0.5), (0.0, 0.5), (0.3, 0.5)]
)
def test_biases_are_optimised_out(row_penalty, col_penalty):
    """Value, gradient, biases and conjugate against brute force over the biases."""
    problem, *_ = random_problem(5, True)
    pattern, targets, weights = problem.pattern, problem.loss.targets, problem.loss.weights
    loss = BiasedSquaredLoss(targets, weights, pattern.rows, pattern.cols, (M, N), row_penalty, col_penalty)
    psi = torch.randn(len(targets), dtype=torch.float64)
    design = []
    penalties = []
    if row_penalty is not None:
        design.append(torch.nn.functional.one_hot(pattern.rows, M))
        penalties += [row_penalty] * M
    if col_penalty is not None:
        design.append(torch.nn.functional.one_hot(pattern.cols, N))
        penalties += [col_penalty] * N
    e = torch.cat(design, dim=1).double()
    normal = e.T @ (weights.unsqueeze(1) * e) + torch.diag(torch.tensor(penalties, dtype=torch.float64))
    best = torch.linalg.pinv(normal) @ (e.T @ (weights * (targets - psi)))
    off = psi + e @ best - targets
    value = 0.5 * (weights * off**2).sum() + 0.5 * (torch.tensor(penalties, dtype=torch.float64) * best**2).sum()
    found = loss(psi)
    assert found.value == pytest.approx(value.item(), rel=1e-9)
    torch.testing.assert_close(found.gradient, weights * off, atol=1e-8, rtol=0)
    row_bias, col_bias = loss.biases(psi)
    torch.testing.assert_close(e @ best, row_bias[pattern.rows] + col_bias[pattern.cols], atol=1e-8, rtol=0)
    # Fenchel: f(psi) + f*(theta) = <theta, psi> at the gradient, and >= for any other psi
    assert found.value + found.conjugate(1.0) == pytest.approx((found.gradient * psi).sum().item(), rel=1e-8)
    other = torch.randn(len(targets), dtype=torch.float64)
    assert loss(other).value + found.conjugate(0.6) >= 0.6 * (found.gradient * other).sum().item() - 1e-9


@pytest.mark.slow
def test_a_biased_fit_is_certified_and_equals_the_dense_judge():
    problem, *_ = random_problem(6, False)
    pattern, targets = problem.pattern, problem.loss.targets + 5.0
    loss = BiasedSquaredLoss(targets, None, pattern.rows, pattern.cols, (M, N), 0.0, 1.0)
    biased = MeanProblem(problem.row_op, problem.col_op, pattern, loss)
    penalty = SpectralElasticNet(0.5, 0.8)
    one, two = (f(biased, penalty, tolerance=1e-7) for f in (solve_dense, solve_proximal))
    assert one.certificate.converged
    assert two.certificate.converged
    assert one.certificate.primal == pytest.approx(two.certificate.primal, rel=1e-6)


def test_penalties_convert_and_refuse():
    net = SpectralElasticNet.from_noise(0.5, 3.0)
    assert (net.noise, net.mu) == (pytest.approx(0.5), pytest.approx(3.0))
    assert SpectralElasticNet(2.0, 1.0).mu == float("inf")
    for call, message in (
        (lambda: SpectralElasticNet(-1.0, 0.5), "lam"),
        (lambda: SpectralElasticNet(1.0, 1.5), "alpha"),
        (lambda: SpectralElasticNet.from_noise(0.0, 1.0), "noise"),
        (lambda: TraceBall(-1.0), "radius"),
        (lambda: TraceBall(1.0, float("nan")), "ridge"),
        (lambda: solve_hybrid(random_problem(0, False)[0], TraceBall(1.0), tolerance=1e-3), "hybrid"),
        (lambda: BiasedSquaredLoss(torch.ones(1), None, torch.zeros(1), torch.zeros(1), (1, 1), None, None), "penalty"),
        (
            lambda: BiasedSquaredLoss(torch.ones(1), None, torch.zeros(1), torch.zeros(1), (1, 1), None, 0.0),
            "col_penalty",
        ),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_projection_onto_the_ball_is_exact():
    ball = TraceBall(1.5, 0.4)
    values = torch.tensor([3.0, 1.0, 0.2]).double()
    shrunk = ball.shrink(values, 0.5)
    assert shrunk.sum().item() == pytest.approx(1.5)
    inside = torch.tensor([0.5, 0.2]).double()
    torch.testing.assert_close(ball.shrink(inside, 0.5), inside / 1.2)
    # conjugate by brute force over a fine grid of one singular value
    grid = torch.linspace(0, 1.5, 20001).double()
    for y in (0.1, 0.5, 2.0):
        best = (y * grid - 0.2 * grid**2).max().item()
        assert ball.conjugate(torch.tensor([y]).double(), 1.0) == pytest.approx(best, rel=1e-6, abs=1e-9)


class BareLoss:
    """A loss with a value and a curvature, and nothing else."""

    def __init__(self, loss):
        self.loss, self.curvature = loss, loss.curvature

    def __call__(self, psi):
        return self.loss(psi)


class BarePenalty:
    """A penalty without a proximal operator."""

    ridge, trace = 0.0, 1.0

    def value(self, values):
        return float(values.sum())

    def conjugate(self, values, scale):
        return 0.0


def test_a_mismatch_of_solver_loss_and_penalty_names_what_is_missing():
    problem = random_problem(0, weighted=False)[0]
    bare = MeanProblem(problem.row_op, problem.col_op, problem.pattern, BareLoss(problem.loss))
    penalty = SpectralElasticNet(1.0, 0.5)
    with pytest.raises(InputError, match=r"^loss: solve_proximal needs .* a BareLoss lacks quadratic_bound$"):
        solve_proximal(bare, penalty, tolerance=1e-6)
    assert solve_dense(bare, penalty, tolerance=1e-6).certificate.converged  # which does not need it
    for solve in (solve_proximal, solve_dense):
        with pytest.raises(InputError, match=rf"^penalty: {solve.__name__} needs .* a BarePenalty lacks shrink$"):
            solve(problem, BarePenalty(), tolerance=1e-6)
    with pytest.raises(InputError, match="the class SpectralElasticNet lacks shrink, value, conjugate, ridge"):
        solve_proximal(problem, SpectralElasticNet, tolerance=1e-6)
