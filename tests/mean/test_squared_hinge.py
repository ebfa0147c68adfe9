import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mvgp.likelihoods.thresholds import bracketed_newton
from mvgp.linalg import PairIndex, PairLinearOperator
from mvgp.mean.support_vectors import best_bias, solve_hinge, solve_squared_hinge
from tests import randomness

M, N, T = 9, 12, 40


def problem(seed=0, rank=None, dtype=torch.float64, draw=randomness.numpy_generator):
    """K (T, T) of full or low rank, labels of both classes, and uneven costs."""
    rng = draw(seed)
    roots = [rng.normal(size=(size, rank or size + 2)) / size**0.5 for size in (M, N)]
    row_op, col_op = (torch.from_numpy(root @ root.T).to(dtype) for root in roots)
    cells = np.sort(rng.choice(M * N, T, replace=False))
    pairs = PairIndex(torch.from_numpy(cells // N), torch.from_numpy(cells % N), (M, N))
    labels = torch.from_numpy(rng.choice([-1.0, 1.0], T, p=[0.7, 0.3])).to(dtype)
    costs = torch.from_numpy(rng.uniform(0.2, 3.0, T)).to(dtype)
    return PairLinearOperator(row_op, col_op, pairs), labels, costs


def conic_optimum(op, labels, costs, power):
    """Smallest objective and the bias, by an interior-point solver."""
    values, vectors = torch.linalg.eigh(op.to_dense().double())
    root = (vectors * values.clamp(min=0).sqrt()).numpy()
    w, b = cp.Variable(T), cp.Variable()
    slack = cp.pos(1 - cp.multiply(labels.numpy(), root @ w + b))
    loss = cp.sum(cp.multiply(costs.numpy(), slack if power == 1 else cp.square(slack) / 2))
    task = cp.Problem(cp.Minimize(cp.sum_squares(w) / 2 + loss))
    task.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return float(task.value), root @ w.value + b.value


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("factor", [0.01, 1.0, 1000.0])
def test_newton_equals_a_conic_solver(rank, factor):
    op, labels, costs = problem(rank=rank, draw=randomness.fixed_numpy_generator)
    found = solve_squared_hinge(op, labels, factor * costs, tolerance=1e-11)
    optimum, scores = conic_optimum(op, labels, factor * costs, power=2)
    assert found.certificate.converged
    assert found.certificate.iterations < 40
    assert found.certificate.primal == pytest.approx(optimum, rel=1e-8)
    assert found.certificate.dual == pytest.approx(optimum, rel=1e-8)
    np.testing.assert_allclose(found.scores.numpy(), scores, atol=2e-5)
    torch.testing.assert_close(found.scores, op @ found.coefficients + found.bias, atol=1e-8, rtol=0)


def objective(op, labels, costs, coefficients, scores):
    slack = (1 - labels * scores).clamp(min=0)
    return float(coefficients @ (op @ coefficients) / 2 + (costs * slack.square()).sum() / 2)


def test_optimality_conditions():
    r"""The coefficients a are the gradient theta of the loss, as far as the gap says.

    Both sum to 0. With :math:`Q = \|\theta\|_K^2 + \sum \theta_t^2 / c_t` the gap from the dual point theta is
    :math:`g = \frac12 \|a - \theta\|_K^2`. The best multiple of theta has a gap that is smaller by
    :math:`\langle\theta, a - \theta\rangle_K^2 / 2Q \le g \|\theta\|_K^2 / Q`, so that
    :math:`g \le gap \cdot Q / \sum \theta_t^2 / c_t`.
    """
    op, labels, costs = problem(3)
    found = solve_squared_hinge(op, labels, costs, tolerance=1e-14)
    theta = costs * labels * (1 - labels * found.scores).clamp(min=0)
    apart, own = found.coefficients - theta, float((theta.square() / costs).sum())
    gap = found.certificate.gap + 1e-14 * found.certificate.primal  # and rounding
    limit = gap * (float(theta @ (op @ theta)) + own) / own
    assert float(apart @ (op @ apart)) / 2 <= limit
    assert limit < 1e-11 * found.certificate.primal
    for sums_to_zero in (found.coefficients, theta):
        assert abs(float(sums_to_zero.sum())) <= 1e-9 * float(sums_to_zero.abs().sum())


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_svc_equals_a_conic_solver(factor):
    op, labels, costs = problem(1, draw=randomness.fixed_numpy_generator)
    found = solve_hinge(op, labels, factor * costs, tolerance=1e-5)
    optimum, _ = conic_optimum(op, labels, factor * costs, power=1)
    assert found.certificate.converged
    assert found.certificate.dual <= optimum * (1 + 1e-7)
    assert found.certificate.primal == pytest.approx(optimum, rel=1e-5)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(-3, 3))
def test_the_certificate_bounds_the_distance_at_every_step(seed, exponent):
    op, labels, costs = problem(seed)
    if labels.abs().sum() == labels.sum().abs():
        return  # one class only
    costs = 10.0**exponent * costs
    best = solve_squared_hinge(op, labels, costs, tolerance=1e-12)
    assert best.certificate.converged
    last = float("inf")
    for steps in range(4):
        early = solve_squared_hinge(op, labels, costs, tolerance=1e-12, max_iterations=steps).certificate
        assert early.iterations <= steps
        assert early.dual <= best.certificate.primal * (1 + 1e-9)
        assert early.primal >= best.certificate.dual * (1 - 1e-9)
        if exponent < -1:  # a single stage: monotone
            assert early.primal <= last * (1 + 1e-12)
        last = early.primal


def test_single_precision():
    """In double precision its objective is within its gap of the optimum, up to rounding. Scores may differ by more."""
    op, labels, costs = problem(2)
    double = solve_squared_hinge(op, labels, costs, tolerance=1e-10).certificate
    single = solve_squared_hinge(*problem(2, dtype=torch.float32), tolerance=1e-4)
    assert single.certificate.converged
    assert single.scores.dtype == torch.float32
    coefficients = single.coefficients.double()
    scores = op @ coefficients + single.bias
    torch.testing.assert_close(single.scores.double(), scores, atol=1e-5, rtol=1e-5)
    assert double.dual <= objective(op, labels, costs, coefficients, scores) <= double.primal * (1 + 1.01e-4)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_best_bias(seed):
    rng = randomness.numpy_generator(seed)
    image = torch.from_numpy(rng.normal(scale=3.0, size=7))
    labels = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0], dtype=torch.float64)
    costs = torch.from_numpy(rng.uniform(0.1, 10, 7))

    def loss(b):
        return float((costs * (1 - labels * (image + b)).clamp(min=0).square()).sum())

    found = best_bias(image, labels, costs)
    assert loss(found) <= min(loss(b) for b in np.linspace(found - 2, found + 2, 401)) + 1e-12


def test_bracketed_newton_on_a_broken_line():
    def broken(t, _):  # flat, then steep
        steep = (t >= 0.9).double()
        return torch.where(t < 0.9, t - 1.0, -0.1 + 1000 * (t - 0.9)), 999 * steep, torch.ones_like(t)

    def root(function, low, high):
        return float(bracketed_newton(function, *(torch.tensor([end], dtype=torch.float64) for end in (low, high))))

    assert root(broken, -5.0, 50.0) == pytest.approx(0.9001)
    assert root(lambda t, _: (0 * t, 0 * t, 0 * t), 0.0, 2.0) == 1.0
