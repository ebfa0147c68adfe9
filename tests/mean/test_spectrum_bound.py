"""Certificates do not flatter: bounds on the singular values of the gradient, exact and from random probes."""

import math

import numpy as np
import pytest
import torch
from linear_operator import to_linear_operator

from mvgp.likelihoods import SquaredLoss
from mvgp.linalg.pairs import Pattern
from mvgp.mean import MeanProblem, SpectralElasticNet, TraceBall, solve_hybrid, solve_proximal
from mvgp.mean.filtered_bound import ChebyshevFilter, bound_largest
from mvgp.mean.low_rank import StepOperator, random_images, subspace_pass
from mvgp.mean.problem import dual_bound
from mvgp.mean.spectrum_bound import LanczosRuns, bound_spectrum, exact_values, largest_value
from tests import randomness

M, N = 60, 150


def complete_problem(matrix, k_rows=None, k_cols=None, dtype=torch.float64):
    """Every cell observed; with no kernels given, Y at B = 0 is minus the matrix."""
    m, n = matrix.shape
    rows, cols = torch.arange(m).repeat_interleave(n), torch.arange(n).repeat(m)
    kernels = [
        to_linear_operator(torch.eye(size, dtype=dtype) if kernel is None else kernel.to(dtype))
        for size, kernel in ((m, k_rows), (n, k_cols))
    ]
    return MeanProblem(*kernels, Pattern(rows, cols, (m, n)), SquaredLoss(matrix.flatten().to(dtype)))


def gradient_at_zero(problem):
    return problem.loss(torch.zeros(len(problem.pattern), dtype=problem.dtype)).gradient


def hidden_direction(problem_of):
    """A matrix whose top right singular vector is orthogonal to every start block of fixed seed."""
    rng = randomness.numpy_generator(0)
    plain = problem_of(torch.zeros(M, N, dtype=torch.float64))
    blocks = torch.cat([random_images(plain, count, seed=0) for count in (60, 16, 8)], dim=1)  # (N, 84)
    basis, _ = torch.linalg.qr(torch.cat([blocks, torch.from_numpy(rng.normal(size=(N, 2)))], dim=1))
    hidden, seen = basis[:, -1], torch.from_numpy(rng.normal(size=N))
    seen = seen - hidden * (hidden @ seen)
    left, _ = torch.linalg.qr(torch.from_numpy(rng.normal(size=(M, 2))))
    return 101.5 * torch.outer(left[:, 0], hidden) + torch.outer(left[:, 1], seen / seen.norm())


@pytest.mark.parametrize("exact_limit", [0, 512])
def test_a_direction_that_fixed_seeds_never_meet_is_found(exact_limit):
    """Fixed start blocks gave lam_max 1.0 for 101.5, and a mean of rank 0 that claimed a gap of 0."""
    matrix = hidden_direction(complete_problem)
    problem = complete_problem(matrix)
    theta = gradient_at_zero(problem)
    assert math.isclose(largest_value(problem, theta, exact_limit=exact_limit), 101.5, rel_tol=1e-9)
    penalty = SpectralElasticNet(50.0, 1.0)
    solution = solve_proximal(problem, penalty, tolerance=1e-6, exact_limit=exact_limit)
    assert solution.certificate.rank == 1
    assert solution.certificate.converged
    torch.testing.assert_close(solution.mean.values, torch.tensor([51.5], dtype=torch.float64))
    assert solve_hybrid(problem, penalty, tolerance=1e-4).certificate.rank == 1


def spectra(rng):
    """Singular values that are easy and hard to bound: decaying, a bulk with an edge, clusters, one far above."""
    size = min(M, N)
    return {
        "decay": 2.0 ** -np.arange(size),
        "bulk": np.sort(rng.random(size))[::-1] + 1.0,
        "edge": np.concatenate([[1.001], np.linspace(1.0, 0.2, size - 1)]),
        "cluster": np.concatenate([np.full(10, 3.0), np.full(size - 10, 2.99)]),
        "spike": np.concatenate([[1e4], rng.random(size - 1)]),
        "one": np.eye(1, size)[0],
    }


def rotated(rng, values):
    left, _ = torch.linalg.qr(torch.from_numpy(rng.normal(size=(M, M))))
    right, _ = torch.linalg.qr(torch.from_numpy(rng.normal(size=(N, M))))
    return (left * torch.from_numpy(values)) @ right.T


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", sorted(spectra(randomness.numpy_generator(0))))
def test_random_probes_bound_the_largest_singular_value(kind, seed):
    """At every number of steps: never above from below, never below from above. (Chance of failure 1e-8 each.)"""
    rng = randomness.numpy_generator(seed)
    problem = complete_problem(rotated(rng, spectra(rng)[kind]))
    theta = gradient_at_zero(problem)
    truth = float(exact_values(problem, theta)[0][0]) ** 2
    runs = LanczosRuns(problem, theta, None, failure=1e-8)
    ratios = []
    for _ in range(10):
        runs.extend(4)
        assert runs.largest_square() <= truth * (1 + 1e-12)
        assert runs.upper_square() >= truth * (1 - 1e-12)
        ratios.append(runs.upper_square() / truth)
    assert ratios[-1] < 1.2, ratios  # and the bound is of use: the worst case is a bulk
    assert sorted(ratios, reverse=True) == pytest.approx(ratios, rel=1e-6)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", sorted(spectra(randomness.numpy_generator(0))))
def test_a_filter_bounds_the_largest_singular_value(kind, transposed):
    """At every number of steps, from an edge that is too low; and what it meets is never above the truth."""
    rng = randomness.numpy_generator(1)
    matrix = rotated(rng, spectra(rng)[kind])
    kernels = smooth_kernel(rng, M), smooth_kernel(rng, N)
    problem = complete_problem(matrix.T, *kernels[::-1]) if transposed else complete_problem(matrix, *kernels)
    theta = gradient_at_zero(problem)
    truth = float(exact_values(problem, theta)[0][0]) ** 2
    search = ChebyshevFilter(problem, theta, 0.99 * truth, failure=1e-8)
    ratios = []
    for _ in range(8):
        search.extend(15)
        squares, images = search.met()
        assert images.shape[0] == problem.shape[1]
        assert float(squares[0]) <= truth * (1 + 1e-9)
        ratios.append(search.upper_square() / truth)
    assert min(ratios) >= 1 - 1e-9
    assert ratios[-1] < 1.1, ratios


@pytest.mark.parametrize("share", [0.97, 1.0, 1.02])
def test_a_goal_is_shown_or_out_of_reach(share):
    """The triplets know all but the first singular value; the goal allows for ``share`` of it."""
    rng = randomness.numpy_generator(2)
    problem = complete_problem(rotated(rng, np.concatenate([[1.0], np.linspace(0.9, 0.1, M - 1)])))
    theta = gradient_at_zero(problem)
    exact = torch.linalg.svd(problem.pattern.matrix(theta).to_dense(), full_matrices=False)
    second = exact.Vh[1:2].T
    found = subspace_pass(problem, StepOperator(problem, theta), second)
    assert math.isclose(float(found.values[0]), 0.9, rel_tol=1e-9)
    bound = bound_largest(problem, theta, found, lambda values: -float(values.max()), -share, failure=1e-8)
    if share == 1 and (bound is None or not bound.is_sharp):  # as near as that nothing is shown by filters
        return
    assert float(bound.values.max()) >= 1 - 1e-9
    if share > 1:
        assert float(bound.values.max()) <= share
        assert bound.failure == 1e-8
    else:  # it has met what is missing; at 1 rounding decides whether that is above the goal
        assert bound.is_sharp
        known = subspace_pass(problem, StepOperator(problem, theta), bound.images)
        assert float(known.values[0]) > share - 1e-9 * (share == 1)


def test_no_filter_where_it_would_take_long():
    problem = complete_problem(torch.eye(M, N, dtype=torch.float64))
    theta = gradient_at_zero(problem)
    found = subspace_pass(problem, StepOperator(problem, theta), random_images(problem, 4, seed=0))
    worst = lambda values: -float(values.max())  # noqa: E731
    assert bound_largest(problem, theta, found, worst, -1 - 1e-9, failure=1e-8, max_steps=100) is None
    assert bound_largest(problem, theta, found, worst, -0.5, failure=1e-8) is None


def smooth_kernel(rng, size):
    points = torch.from_numpy(rng.random((size, 2)))
    return torch.exp(-(torch.cdist(points, points) ** 2) / 0.1) + 0.1 * torch.eye(size, dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [0.3, 0.8, 1.0, "ball", "ball with ridge"])
def test_certificates_from_probes_are_not_below_exact_ones(alpha, seed):
    rng = randomness.numpy_generator(seed)
    k_rows, k_cols = smooth_kernel(rng, M), smooth_kernel(rng, N)
    matrix = torch.from_numpy(rng.normal(size=(M, 3)) @ rng.normal(size=(3, N)) + rng.normal(size=(M, N)))
    problem = complete_problem(matrix, k_rows, k_cols)
    top = float(exact_values(problem, gradient_at_zero(problem))[0][0])
    penalty = (
        TraceBall(3.0, 0.5 if "ridge" in alpha else 0.0)
        if isinstance(alpha, str)
        else SpectralElasticNet(0.2 * top, alpha)
    )
    for steps in (0, 3, 2000):  # at the start, on the way, at the end
        found = solve_proximal(problem, penalty, tolerance=1e-5, max_iterations=steps, exact_limit=0)
        exact = dual_bound(found.loss, exact_values(problem, found.loss.gradient)[0], penalty)
        certificate = found.certificate
        # both are the best over c, which is searched for to some 10 digits
        assert certificate.dual <= exact + 1e-9 * abs(exact), (steps, certificate)
        assert 0 < certificate.failure_probability < 1e-5
    assert certificate.converged
    assert solve_proximal(problem, penalty, tolerance=1e-5).certificate.failure_probability == 0


@pytest.mark.parametrize("known", [0, 2, 5])
def test_bounds_with_a_known_part_are_upper_bounds_one_by_one(known):
    """Sorted, every value is at least the singular value in its place."""
    rng = randomness.numpy_generator(known)
    problem = complete_problem(rotated(rng, spectra(rng)["bulk"]) * 3, smooth_kernel(rng, M), smooth_kernel(rng, N))
    theta = gradient_at_zero(problem)
    truth = exact_values(problem, theta)[0]
    found = subspace_pass(problem, StepOperator(problem, theta), random_images(problem, 12, seed=1))  # far from settled
    edge = float(found.values[known]) if known else math.inf

    def dual_of(values):  # worse for larger values; a goal that is never reached
        return -float(values.sum())

    bound = bound_spectrum(problem, theta, found, edge, dual_of, -1.0, exact_limit=0, max_steps=24)
    values = bound.values.sort(descending=True).values
    size = min(len(values), len(truth))
    assert bool((values[:size] >= truth[:size] * (1 - 1e-10)).all())
    assert bound.failure == 1e-8


def test_single_precision_and_zero_gradients():
    rng = randomness.numpy_generator(0)
    matrix = rotated(rng, spectra(rng)["spike"])
    problem = complete_problem(matrix, dtype=torch.float32)
    assert math.isclose(largest_value(problem, gradient_at_zero(problem), exact_limit=0), 1e4, rel_tol=1e-5)
    nothing = complete_problem(torch.zeros(M, N))
    assert largest_value(nothing, gradient_at_zero(nothing)) == 0.0
    assert solve_proximal(nothing, SpectralElasticNet(1.0, 0.5), tolerance=1e-6).certificate.relative_gap == 0.0
