"""Noise of each row and column: honoured by fits, marginal likelihoods and leave-one-out, refused elsewhere."""

import gpytorch
import pytest
import torch
from gpytorch.priors import NormalPrior
from torch.testing import assert_close

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import (
    MatrixMarginalLogLikelihood,
    learn,
    learn_grid,
    learn_trace,
    leave_one_out,
    log_marginal,
    trace_bound,
)
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.likelihoods import AxisNoiseGaussianLikelihood
from tests import randomness
from tests.oracles import dense_posterior

M, N, T = 4, 6, 15
F64 = torch.float64
ROW_GRAPH, COL_GRAPH = Graph([(0, 1), (1, 2), (2, 3)], M), Graph([(i, (i + 1) % N) for i in range(N)], N)
GENERATOR = randomness.generator(5)
CELLS = torch.randperm(M * N, generator=GENERATOR)[:T].sort().values
ROWS, COLS = CELLS // N, CELLS % N
VALUES, WEIGHTS = torch.randn(T, generator=GENERATOR, dtype=F64), torch.rand(T, generator=GENERATOR, dtype=F64) + 0.5
A = torch.tensor([0.5, -1.0, 0.2, 0.7], dtype=F64)
C = torch.tensor([0.3, 0.0, -0.6, 1.0, -0.9, 0.4], dtype=F64)


def prior_of():
    return mvgp.MatrixGP(DiffusionKernel(ROW_GRAPH, 0.8, 0.3), DiffusionKernel(COL_GRAPH, 0.5, 0.2))


def likelihood_of(rows=True, cols=True):
    likelihood = AxisNoiseGaussianLikelihood(M if rows else None, N if cols else None, noise=0.4)
    if rows:
        likelihood.row_deviation = A
    if cols:
        likelihood.col_deviation = C
    return likelihood


def noise_of(rows=True, cols=True):
    """(T,) from the definition."""
    found = torch.full((T,), 0.4, dtype=F64).log()
    found = found + (A - A.mean())[ROWS] if rows else found
    found = found + (C - C.mean())[COLS] if cols else found
    return found.exp()


def data_of(weights=None):
    return mvgp.ObservedMatrix(ROWS, COLS, VALUES, (M, N), weights=weights)


def same_by_weights(model, likelihood, weights, **options):
    """The model with one noise and the noise of each entry as its weight."""
    plain = gpytorch.likelihoods.GaussianLikelihood().double()
    plain.noise = likelihood.noise.detach()
    noise = noise_of(likelihood.row_deviation is not None, likelihood.col_deviation is not None)
    return model(prior_of(), plain, **options).fit(data_of(plain.noise.detach() / noise * weights))


@pytest.mark.parametrize(("rows", "cols"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_exact_posterior_is_that_of_dense_algebra(rows, cols, weighted):
    weights, likelihood = WEIGHTS if weighted else None, likelihood_of(rows, cols)
    posterior = mvgp.FullGP(prior_of(), likelihood).fit(data_of(weights))
    k = [axis.covariance().to_dense().detach() for axis in (posterior.prior.row_axis, posterior.prior.col_axis)]
    noise = noise_of(rows, cols) / (WEIGHTS if weighted else 1)
    mean, covariance = dense_posterior(*k, ROWS, COLS, VALUES, noise)
    assert_close(posterior.scores().flatten(), mean, rtol=1e-7, atol=1e-7)
    assert_close(posterior.covariance().to_dense(), covariance, rtol=1e-7, atol=1e-7)
    assert posterior.noise is None


@pytest.mark.slow
def test_trace_constrained_and_factor_posteriors_and_paths():
    likelihood, ones = likelihood_of(), torch.ones(T, dtype=F64)
    for model, options in ((mvgp.TraceGP, {"strength": 0.3}), (mvgp.FactorGP, {"rank": 2})):
        ours = model(prior_of(), likelihood, **options).fit(data_of())
        theirs = same_by_weights(model, likelihood, ones, **options)
        assert_close(ours.scores(), theirs.scores(), rtol=1e-5, atol=1e-5)
        assert_close(ours.variance(ROWS, COLS), theirs.variance(ROWS, COLS), rtol=1e-5, atol=1e-5)
    points = list(mvgp.TraceGP(prior_of(), likelihood).path(data_of(), [0.5, 0.3]))
    assert points[-1].posterior.likelihood.noise_at([0], [0]).shape == (1,)


def dense_log_marginal(prior, noise):
    k = prior(ROWS, COLS).covariance_matrix + torch.diag(noise)
    return torch.distributions.MultivariateNormal(torch.zeros(T, dtype=F64), k).log_prob(VALUES)


@pytest.mark.parametrize("method", ["cholesky", "probes"])
def test_the_marginal_likelihood_and_its_gradient(method):
    prior, likelihood = prior_of(), likelihood_of()
    options = {"method": method, "tolerance": 1e-12, "probe_tolerance": 1e-11} if method == "probes" else {}
    found = log_marginal(prior, likelihood, data_of(), **options)
    if method == "cholesky":
        assert_close(found.value, dense_log_marginal(prior, noise_of()), rtol=1e-8, atol=1e-8)
        parameters = [likelihood.raw_row_deviation, likelihood.raw_col_deviation, likelihood.noise_covar.raw_noise]
        ours = torch.autograd.grad(found.value, parameters)
        theirs = torch.autograd.grad(dense_log_marginal(prior, likelihood.noise_at(ROWS, COLS)), parameters)
        for one, other in zip(ours, theirs, strict=True):
            assert_close(one, other, rtol=1e-7, atol=1e-8)
    else:
        (gradient,) = torch.autograd.grad(found.value, likelihood.raw_row_deviation)
        assert gradient.abs().max() > 1e-3
    mll = MatrixMarginalLogLikelihood(likelihood, prior, **options)
    assert_close(mll(prior(ROWS, COLS), VALUES) * T, found.value, rtol=1e-6, atol=1e-6)


def test_it_is_a_likelihood_of_gpytorch():
    likelihood, prior = likelihood_of(), prior_of()
    found = likelihood(prior(ROWS, COLS), ROWS, COLS)
    assert_close(found.variance, prior(ROWS, COLS).variance + noise_of(), rtol=1e-8, atol=1e-8)
    assert_close(likelihood.noise_at(ROWS, COLS), noise_of(), rtol=1e-12, atol=1e-12)
    with pytest.raises(InputError, match="needs them"):
        likelihood(prior(ROWS, COLS))
    other = AxisNoiseGaussianLikelihood(M, N)
    other.load_state_dict(likelihood.state_dict())
    assert_close(other.noise_at(ROWS, COLS), likelihood.noise_at(ROWS, COLS))


def test_leave_one_out():
    posterior = mvgp.FullGP(prior_of(), likelihood_of()).fit(data_of())
    found = leave_one_out(posterior, data_of())
    k = posterior.prior(ROWS, COLS).covariance_matrix + torch.diag(noise_of())
    inverse = torch.linalg.inv(k)
    assert_close(found.variance, 1 / inverse.diagonal(), rtol=1e-7, atol=1e-7)
    assert_close(found.mean, VALUES - inverse @ VALUES / inverse.diagonal(), rtol=1e-7, atol=1e-7)


@pytest.mark.slow
def test_the_trace_bound_and_its_gradient():
    """By differences of refitted bounds: at the best mean the derivative is that at a fixed one (envelope theorem)."""
    mu = 0.5

    def bound_at(row_deviation):
        prior, likelihood = prior_of(), likelihood_of()
        likelihood.row_deviation = row_deviation
        penalty = mvgp.SpectralElasticNet.from_noise(float(likelihood.noise.detach()), mu)
        model = mvgp.TraceGP(
            prior, likelihood, penalty=penalty, tolerance=1e-11, solver="dense", max_iterations=100_000
        )
        posterior = model.fit(data_of())
        bound = trace_bound(prior, likelihood, data_of(), posterior)
        return bound, likelihood, posterior, bound.value - mu * bound.trace_norm

    bound, likelihood, posterior, value = bound_at(A)
    gap = (VALUES - posterior.mean(ROWS, COLS)).square() / noise_of()
    assert abs(bound.misfit - float(gap.sum())) < 1e-6 * float(gap.sum())
    (gradient,) = torch.autograd.grad(value, likelihood.raw_row_deviation)
    step = 1e-3
    for row in range(M):
        away = torch.zeros(M, dtype=F64)
        away[row] = step
        ends = [float(bound_at(A + sign * away)[3].detach()) for sign in (1, -1)]
        assert abs((ends[0] - ends[1]) / (2 * step) - float(gradient[row])) < 1e-4


def test_learning_by_the_trace_bound_moves_the_noise_of_rows():
    prior, likelihood = prior_of(), likelihood_of()
    before = likelihood.row_deviation.detach().clone()
    with pytest.warns(Warning, match="step"):  # three do not converge
        learn_trace(mvgp.TraceGP(prior, likelihood), data_of(), max_steps=3, tolerance=1e-12)
    assert (likelihood.row_deviation.detach() - before).abs().max() > 0


@pytest.mark.slow
def test_the_noise_of_rows_is_learned():
    """Two rows of 400 values each, noise 0.01 and 1: each is known to a share of 0.5 with all but a chance of 1e-9."""
    generator = randomness.generator(6)
    count = 400
    x = torch.linspace(0, 1, count, dtype=F64).unsqueeze(1)
    prior = mvgp.MatrixGP(
        mvgp.kernels.PrecomputedKernel(torch.eye(2, dtype=F64)), gpytorch.kernels.RBFKernel().double(), col_inputs=x
    )
    prior.col_kernel.lengthscale = 1.0
    prior.requires_grad_(False)
    spread = torch.tensor([[0.1], [1.0]], dtype=F64)
    values = x.mT + spread * torch.randn(2, count, generator=generator, dtype=F64)
    likelihood = AxisNoiseGaussianLikelihood(2, row_prior=NormalPrior(0.0, 3.0))
    learn(prior, likelihood, mvgp.ObservedMatrix.from_dense(values), method="cholesky")
    found = likelihood.noise_at([0, 1], [0, 0]).detach()
    assert (found.log() - spread.squeeze(1).square().log()).abs().max() < 0.5


class Own(AxisNoiseGaussianLikelihood):
    def factors(self, rows, cols):
        return super().factors(rows, cols) + 1


REFUSED = {
    "whole lists": (
        lambda: mvgp.FullGP(prior_of(), likelihood_of()).fit(mvgp.PositiveUnlabelled([0], [1], (M, N))),
        "data: noise of each row or column needs an ObservedMatrix",
    ),
    "learn_grid": (
        lambda: learn_grid(prior_of(), likelihood_of(), mvgp.ObservedMatrix.from_dense(torch.zeros(M, N))),
        "learn_grid uses one noise variance",
    ),
    "overridden": (lambda: mvgp.FullGP(prior_of(), Own(M)), "overrides factors"),
    "rows": (
        lambda: mvgp.FullGP(prior_of(), AxisNoiseGaussianLikelihood(M + 1)).fit(data_of()),
        "noise of each of 4 rows, got that of 5",
    ),
    "cols": (
        lambda: log_marginal(prior_of(), AxisNoiseGaussianLikelihood(num_cols=2), data_of()),
        "noise of each of 6 columns, got that of 2",
    ),
    "nothing": (lambda: AxisNoiseGaussianLikelihood(), "num_rows, num_cols"),
    "a prior on nothing": (lambda: AxisNoiseGaussianLikelihood(M, col_prior=NormalPrior(0, 1)), "col_prior"),
    "no deviation": (lambda: setattr(AxisNoiseGaussianLikelihood(M), "col_deviation", 0.0), "col_deviation"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_is_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        call()
