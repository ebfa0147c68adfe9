"""The estimated log determinant, forced on problems whose answer is known."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

import mvgp
from mvgp.errors import ConvergenceError
from mvgp.hyperparameters import log_marginal
from mvgp.hyperparameters import probes as reference
from mvgp.hyperparameters.marginal import MarginalSettings, noise_of, pair_log_marginal
from mvgp.hyperparameters.probes import (
    Reference,
    form_gradients,
    krylov,
    log_determinant,
    log_quadrature,
    with_gradients,
)
from mvgp.kernels import DiffusionKernel
from mvgp.priors import ConstantMean
from tests import randomness
from tests.hyperparameters.problems import (
    PRIORS,
    M,
    N,
    dense_log_marginal,
    every_direction,
    gaussian,
    gradients,
    observe,
    random_graph,
    ring,
)

SHAPE = (20, 31)


def wide():
    """Smooth columns: the spectrum is wide, a preconditioner pays."""
    times = torch.linspace(0, 5, SHAPE[1])
    rows = ScaleKernel(DiffusionKernel(ring(SHAPE[0]), shift=0.1))
    return mvgp.MatrixGP(rows, RBFKernel(), col_inputs=times, mean=ConstantMean(0.3))


def narrow():
    """Graphs with a shift: no preconditioner."""
    rows = ScaleKernel(DiffusionKernel(random_graph(SHAPE[0], 60, 0), method="chebyshev"))
    return mvgp.MatrixGP(rows, DiffusionKernel(ring(SHAPE[1])), mean=ConstantMean(0.3))


def setting(prior, weighted=True, count=300):
    data = observe(torch.randperm(SHAPE[0] * SHAPE[1])[:count], SHAPE, weighted)
    likelihood = gaussian(0.1)
    joint = prior(data.rows, data.cols)
    noise = noise_of(likelihood, joint.loc, data.weights).expand(count)
    return data, likelihood, joint.lazy_covariance_matrix, noise


@pytest.mark.parametrize("make", [wide, narrow])
def test_quadrature_is_exact_for_each_probe(make):
    """Against the dense logarithm of M^-1/2 A M^-1/2 and its derivative along a change of A."""
    _, _, covariance, noise = setting(make())
    with torch.no_grad():
        reference = Reference.build(covariance, noise, probes=3)
        assert (reference.preconditioner is None) == (make is narrow)
        a = covariance.to_dense() + torch.diag(noise)
        m = torch.linalg.inv(reference.apply(torch.eye(len(a)).double()))
    assert abs(float(torch.linalg.slogdet(m)[1] - reference.log_det)) < 1e-8

    def truth(matrix):
        values, vectors = torch.linalg.eigh((m + m.T) / 2)
        half = vectors / values.sqrt() @ vectors.T
        inner, q = torch.linalg.eigh(half @ matrix @ half)
        return ((q.T @ half @ reference.probes).square() * inner.log().unsqueeze(1)).sum(0)

    found = log_determinant(covariance, noise, reference, tolerance=1e-11, derivative=True)
    torch.testing.assert_close(found.each - reference.log_det, truth(a), atol=1e-8, rtol=1e-8)
    change = torch.randn(a.shape, dtype=torch.float64)
    change = (change + change.T) * 1e-6
    slope = (truth(a + change) - truth(a - change)).mean() / 2
    assert abs(float((found.vectors * (change @ found.vectors)).sum() / slope) - 1) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("make", [wide, narrow])
def test_the_expectation_is_the_truth(make, weighted, monkeypatch):
    """Value and gradient, without a single random number: every direction once, see every_direction."""
    prior = make()
    data, likelihood, _, _ = setting(prior, weighted)
    truth = dense_log_marginal(prior, likelihood, data)
    probes = every_direction(monkeypatch, data)
    found = log_marginal(prior, likelihood, data, method="probes", probes=probes, tolerance=1e-11, probe_tolerance=1e-9)
    assert found.converged
    assert abs(float((found.value - truth).detach())) < 1e-6
    ours, exact = (gradients(value, prior, likelihood) for value in (found.value, truth))
    torch.testing.assert_close(ours, exact, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("make", [wide, narrow])
def test_the_error_bar_is_that_of_a_mean_of_independent_probes(make):
    prior = make()
    data, likelihood, covariance, noise = setting(prior)
    reference = Reference.build(covariance, noise, probes=16, seed=randomness.seed(0))
    found = log_determinant(covariance, noise, reference, tolerance=1e-6)
    assert len(found.each) == 16
    assert found.standard_error == pytest.approx(float(found.each.std(correction=1)) / 4, rel=1e-12)
    assert float(found.value.detach()) == pytest.approx(float(found.each.mean()), rel=1e-12)
    whole = log_marginal(prior, likelihood, data, method="probes", seed=randomness.seed(0))
    assert whole.standard_error == pytest.approx(found.standard_error / 2, rel=1e-6)
    assert whole.log_det == pytest.approx(float(found.value.detach()), rel=1e-9)


def test_signs_are_fair_and_independent():
    """Each mean of n signs, or of products of two, is beyond t with a chance below 2 exp(-n t^2 / 2) (Hoeffding)."""
    count, probes = 12, 20_000
    like = torch.zeros((), dtype=torch.float64)
    signs = reference._signs(count, probes, randomness.generator(0), like)
    assert (signs.abs() == 1).all()
    assert signs.dtype == torch.float64
    means = torch.cat([signs.mean(1), (signs @ signs.T / probes)[*torch.triu_indices(count, count, 1)]])
    next_probe = (signs[:, 1:] * signs[:, :-1]).mean()  # over 12 x 19,999
    limit = (2 * math.log(2 * (len(means) + 1) / 1e-9) / (probes - 1)) ** 0.5  # 0.05
    assert means.abs().max() < limit
    assert next_probe.abs() < limit


@pytest.mark.parametrize("name", PRIORS)
def test_every_kind_of_kernel(name, monkeypatch):
    """Every direction once, so that nothing is left to chance."""
    prior, likelihood, data = PRIORS[name](), gaussian(0.2), observe(torch.randperm(M * N)[:45], weighted=True)
    exact = log_marginal(prior, likelihood, data)
    probes = every_direction(monkeypatch, data)
    found = log_marginal(
        prior, likelihood, data, method="probes", probes=probes, tolerance=1e-12, probe_tolerance=1e-10
    )
    assert abs(found.quadratic - exact.quadratic) < 1e-9
    assert abs(found.log_det - exact.log_det) < 1e-7
    ours, theirs = (gradients(r.value, prior, likelihood) for r in (found, exact))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    monkeypatch.undo()
    if any(p.requires_grad for p in prior.mean_module.parameters()):  # exact with any probes
        mean = list(prior.mean_module.parameters())
        ours, theirs = (
            torch.autograd.grad(r.value, mean, retain_graph=True)[0]
            for r in map(_again(prior, likelihood, data), ("probes", "cholesky"))
        )
        torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-7)


def _again(prior, likelihood, data):
    return lambda method: log_marginal(prior, likelihood, data, method=method, tolerance=1e-10)


def exact_spread(data, covariance, noise, precondition, monkeypatch):
    """Standard deviation of the estimate of one probe, by the matrix of its quadratic form in the signs.

    A form s^T B s of independent signs has variance 2 sum_{i != j} B_ij^2.
    """
    with monkeypatch.context() as patch:
        probes = every_direction(patch, data)
        found = Reference.build(covariance, noise, probes=probes, precondition=precondition)
    with torch.no_grad():
        factor = found.probes / probes**0.5  # M = factor factor^T
        m = factor @ factor.T
        a = covariance.to_dense() + torch.diag(noise)
        values, vectors = torch.linalg.eigh(m)
        half = vectors / values.sqrt() @ vectors.T
        inner, q = torch.linalg.eigh(half @ a @ half)
        rotated = q.T @ half @ factor
        form = rotated.T @ (inner.log().unsqueeze(1) * rotated)
    return float((2 * (form.square().sum() - form.diagonal().square().sum())).sqrt())


def test_preconditioning_makes_the_error_small(monkeypatch):
    data, _, covariance, noise = setting(wide())
    spread, found = {}, {}
    for precondition in (True, False):
        spread[precondition] = exact_spread(data, covariance, noise, precondition, monkeypatch)
        reference = Reference.build(covariance, noise, precondition=precondition)
        found[precondition] = log_determinant(covariance, noise, reference, tolerance=1e-6)
    assert spread[True] < 0.02 * spread[False]
    assert found[True].solve_report.iterations < 0.2 * found[False].solve_report.iterations
    # a form of signs is beyond t of its standard deviations with a chance of at most exp(-(t / e + 1)), for t > e
    # (hypercontractivity), and so is the mean of 16 of them: 60 is 1e-10
    with torch.no_grad():
        truth = torch.linalg.slogdet(covariance.to_dense() + torch.diag(noise))[1]
    for precondition, one in found.items():
        assert abs(float((one.value - truth).detach())) < 60 * spread[precondition] / 4


def test_value_and_gradient_belong_to_one_function():
    """With one reference the gradient is that of the estimate itself, not only of its expectation."""
    prior = wide()
    data, likelihood, covariance, noise = setting(prior)
    reference = Reference.build(covariance, noise, probes=4)
    raw = prior.row_kernel.raw_outputscale

    def estimate():
        joint = prior(data.rows, data.cols)
        each = noise_of(likelihood, joint.loc, data.weights)
        settings = MarginalSettings("probes", tolerance=1e-12, probe_tolerance=1e-11)
        residual = data.values - joint.loc
        return pair_log_marginal(joint.lazy_covariance_matrix, residual, each, settings, reference).value

    found = torch.autograd.grad(estimate(), raw)[0]
    with torch.no_grad():
        raw += 1e-4
        above = estimate()
        raw -= 2e-4
        below = estimate()
    assert abs(float((above - below) / 2e-4 / found) - 1) < 1e-6


def test_the_same_seed_gives_the_same_value():
    prior = narrow()
    data, likelihood, _, _ = setting(prior)
    first, second, other = (
        float(log_marginal(prior, likelihood, data, method="probes", seed=randomness.seed(s)).value.detach())
        for s in (3, 3, 4)
    )
    assert first == second != other


def test_nothing_of_size_t_by_t():
    """T = 40,000: the dense matrix would take 12.8 GB."""
    shape = (200, 400)
    prior = mvgp.MatrixGP(
        ScaleKernel(DiffusionKernel(random_graph(200, 600, 1))), DiffusionKernel(random_graph(400, 1200, 2))
    )
    data, likelihood = observe(torch.randperm(80_000)[:40_000], shape), gaussian(0.5)
    found = log_marginal(prior, likelihood, data, probes=2)
    assert found.method == "probes"
    assert found.converged
    assert torch.isfinite(gradients(found.value, prior, likelihood)).all()


@pytest.mark.parametrize("count", [30, 300])
@pytest.mark.parametrize("make", [wide, narrow])
def test_both_ways_of_the_derivative_agree(make, count):
    """By the derivative of each kernel matrix (sparse and dense), and vector by vector."""
    prior = make()
    data, likelihood, _, _ = setting(prior, count=count)
    vectors = torch.randn(len(data), 5, generator=randomness.generator(0), dtype=torch.float64)
    weights = torch.tensor([0.5, -0.5, -0.5, -0.5, -0.5], dtype=torch.float64)
    found = []
    for side in (8192, 0):
        joint = prior(data.rows, data.cols)
        covariance, noise = joint.lazy_covariance_matrix, noise_of(likelihood, joint.loc, data.weights)
        pieces = form_gradients(covariance, noise, vectors, weights, gram_side=side, gram_columns=7)
        value = with_gradients(torch.zeros((), dtype=torch.float64), pieces)
        found.append(gradients(value, prior, likelihood))
    assert found[0].abs().max() > 1e-3
    torch.testing.assert_close(found[0], found[1], atol=1e-9, rtol=1e-9)


def test_missing_the_tolerance_is_an_error():
    prior = narrow()
    data, likelihood, covariance, noise = setting(prior)
    with pytest.raises(ConvergenceError, match=r"relative residual .*e-.* after"):
        log_marginal(prior, likelihood, data, method="probes", max_iterations=2)
    with pytest.raises(ConvergenceError, match=r"relative residual .*e-.* after"):
        log_determinant(covariance, noise, Reference.build(covariance, noise), tolerance=1e-8, max_iterations=2)


def test_runs_that_end_early_do_not_disturb_the_others():
    """An eigenvector needs one step, a zero vector none."""
    a = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64))
    probes = torch.tensor([[0.0, 1, 0, 1], [0, 1, 2, 0], [0, 1, 0, 0], [0, 1, 0, 1]], dtype=torch.float64)
    run = krylov(lambda x: a @ x, lambda x: x, probes, tolerance=1e-12, max_iterations=9, keep_basis=True)
    expected = (probes.square() * a.diagonal().log().unsqueeze(1)).sum(0)
    torch.testing.assert_close(log_quadrature(run)[0], expected)
    torch.testing.assert_close(run.solution, torch.linalg.solve(a, probes))
    nothing = krylov(lambda x: a @ x, lambda x: x, 0 * probes, tolerance=1e-12, max_iterations=9, keep_basis=True)
    assert (log_quadrature(nothing)[0] == 0).all()
