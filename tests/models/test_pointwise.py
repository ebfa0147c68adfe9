"""FullGP and TraceGP under pointwise likelihoods, against references in plain torch and a conic solver."""

import copy
import math

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    BetaLikelihood,
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    LaplaceLikelihood,
    NegativeBinomialLikelihood,
    PoissonLikelihood,
    SoftmaxLikelihood,
    StudentTLikelihood,
)

import mvgp
from mvgp.errors import ConvergenceError, InputError, SizeError
from mvgp.kernels import PrecomputedKernel
from mvgp.likelihoods import LogisticLikelihood, LogPoissonLikelihood
from mvgp.linalg.cost import Limits
from mvgp.mean.sites import laplace_sites
from mvgp.models.pointwise import PointwiseFit
from mvgp.posteriors.predictive import normal_quadrature, predictive
from mvgp.priors import ConstantMean
from tests import randomness
from tests.chance import share_limit
from tests.pointwise_oracles import dense_laplace, direct_variational, log_density, logistic_trace_optimum, predicted

SHAPE = (6, 8)
LIKELIHOODS = {
    "probit": BernoulliLikelihood,
    "logistic": LogisticLikelihood,
    "log poisson": LogPoissonLikelihood,
    "softplus poisson": PoissonLikelihood,
}
TRACE = mvgp.SpectralElasticNet.from_noise(1.0, 1.5)


def covariances(rng, shape=SHAPE, scale=1.5):
    parts = [torch.from_numpy(rng.normal(size=(n, n))) for n in shape]
    first, second = (a @ a.T / len(a) + 0.3 * torch.eye(len(a), dtype=torch.float64) for a in parts)
    return scale * first / first.diagonal().mean(), second / second.diagonal().mean()


def problem(kind, seed=0, count=25, shape=SHAPE, weighted=True, mean=0.3):
    """A prior with a mean, and observations of a sample of it."""
    rng, generator = randomness.numpy_generator(seed), randomness.generator(seed)
    kernels = covariances(rng, shape)
    prior = mvgp.MatrixGP(*(PrecomputedKernel(k) for k in kernels), mean=ConstantMean(mean))
    cells = torch.from_numpy(np.sort(rng.choice(shape[0] * shape[1], count, replace=False)))
    rows, cols = cells // shape[1], cells % shape[1]
    z = prior.sample(generator)[rows, cols]
    if "poisson" in kind:
        values = torch.poisson(
            z.exp() if kind == "log poisson" else torch.nn.functional.softplus(z), generator=generator
        )
    else:
        chance = torch.special.ndtr(z) if kind == "probit" else torch.sigmoid(z)
        values = (torch.rand(count, generator=generator, dtype=torch.float64) < chance).double()
    weights = torch.from_numpy(rng.uniform(0.5, 1.5, count)) if weighted else None
    data = mvgp.ObservedMatrix(rows, cols, values, shape, weights=weights)
    whole = torch.kron(*kernels)
    return prior, data, whole[cells][:, cells], torch.full((count,), mean, dtype=torch.float64)


def ones(data):
    return torch.ones(len(data), dtype=torch.float64) if data.weights is None else data.weights


@pytest.mark.slow
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_variational_posterior_is_the_best_gaussian(kind):
    prior, data, k, offset = problem(kind)
    posterior = mvgp.FullGP(prior, LIKELIHOODS[kind]()).fit(data)
    mean, covariance, bound = direct_variational(kind, k, data.values, offset, ones(data))
    scale = float(covariance.diagonal().max().sqrt())
    torch.testing.assert_close(posterior.mean(data.rows, data.cols), mean, atol=1e-3 * scale, rtol=1e-3)
    torch.testing.assert_close(posterior.variance(data.rows, data.cols), covariance.diagonal(), atol=0, rtol=1e-2)
    found = posterior(data.rows, data.cols).covariance_matrix
    torch.testing.assert_close(found, covariance, atol=1e-2 * scale**2, rtol=1e-2)
    assert abs(posterior.evidence_bound - bound) < 1e-4 * abs(bound)
    report = posterior.inference
    assert report.converged
    assert report.approximation == "variational"
    rounding = 1e-9 * abs(report.bounds[-1])
    assert all(after >= before - rounding for before, after in zip(report.bounds[:-1], report.bounds[1:], strict=True))


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_laplace_is_the_dense_approximation(kind):
    prior, data, k, offset = problem(kind)
    posterior = mvgp.FullGP(prior, LIKELIHOODS[kind](), approximation="laplace").fit(data)
    mean, covariance, evidence = dense_laplace(kind, k, data.values, offset, ones(data))
    torch.testing.assert_close(posterior.mean(data.rows, data.cols), mean, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(posterior(data.rows, data.cols).covariance_matrix, covariance, atol=1e-8, rtol=1e-8)
    assert abs(posterior.evidence_bound - evidence) < 1e-8 * abs(evidence)
    assert posterior.inference.residual <= 1e-10


def test_laplace_without_a_dense_factor_is_the_same():
    prior, data, _, _ = problem("logistic")
    dense = PointwiseFit(prior, data, LogisticLikelihood(), "laplace", tolerance=1e-12)
    lazy = PointwiseFit(
        prior, data, LogisticLikelihood(), "laplace", tolerance=1e-12, method="cg", limits=Limits(dense=5)
    )
    found, expected = (laplace_sites(one.sites, tolerance=1e-10, max_iterations=50) for one in (lazy, dense))
    torch.testing.assert_close(found.psi, expected.psi, atol=1e-8, rtol=1e-8)
    assert found.bound is None
    with pytest.raises(SizeError, match="laplace"):
        PointwiseFit(prior, data, LogisticLikelihood(), tolerance=1e-8, limits=Limits(dense=5)).full(
            tolerance=1e-8, max_iterations=5
        )


def test_rows_and_columns_without_an_observation():
    """The posterior elsewhere is that of a plain GP with one noise for each site."""
    prior, data, _, _ = problem("probit")
    posterior = mvgp.FullGP(prior, BernoulliLikelihood()).fit(data)
    k = torch.kron(prior.row_axis.covariance().to_dense(), prior.col_axis.covariance().to_dense()).detach()
    cells = data.rows * SHAPE[1] + data.cols
    sites = posterior.sites
    gain = torch.linalg.solve(k[cells][:, cells] + torch.diag(1 / sites.precision), k[cells]).T
    rows, cols = torch.arange(SHAPE[0] * SHAPE[1]) // SHAPE[1], torch.arange(SHAPE[0] * SHAPE[1]) % SHAPE[1]
    torch.testing.assert_close(posterior.variance(rows, cols), (k - gain @ k[cells]).diagonal(), atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(posterior.mean(rows, cols), 0.3 + k[:, cells] @ sites.coefficients, atol=1e-8, rtol=1e-8)


# The trace norm ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("solver", ["proximal", "dense"])
def test_a_trace_constrained_logistic_mean_is_the_conic_optimum(share, solver):
    rng = randomness.fixed_numpy_generator(3)
    shape = (4, 5)
    kernels = covariances(rng, shape)
    prior = mvgp.MatrixGP(*(PrecomputedKernel(k) for k in kernels))
    cells = np.sort(rng.choice(20, 14, replace=False))
    signs, weights = rng.choice([-1.0, 1.0], 14), rng.uniform(0.5, 1.5, 14)
    data = mvgp.ObservedMatrix(cells // 5, cells % 5, signs, shape, weights=weights)
    penalty = mvgp.SpectralElasticNet(0.4, share)
    model = mvgp.TraceGP(
        prior,
        LogisticLikelihood(),
        penalty=penalty,
        approximation="laplace",
        solver=solver,
        tolerance=1e-6,
        strict=True,
    )
    posterior = model.fit(data)
    value, scores = logistic_trace_optimum(
        *kernels, cells // 5, cells % 5, signs, weights, trace=penalty.trace, ridge=penalty.ridge
    )
    certificate = posterior.certificate
    assert certificate.relative_gap <= 1e-6
    assert certificate.dual - 1e-7 * value <= value <= certificate.primal + 1e-7 * value
    assert abs(certificate.primal - value) < 2e-6 * value
    torch.testing.assert_close(posterior.scores(), torch.from_numpy(scores), atol=3e-3, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_mean_and_covariance_belong_together(kind):
    """The mean is optimal for the variances, and the precisions follow from both."""
    prior, data, _, _ = problem(kind)
    posterior = mvgp.TraceGP(prior, LIKELIHOODS[kind](), penalty=TRACE, tolerance=1e-7, max_iterations=5000).fit(data)
    assert posterior.certificate.relative_gap <= 1e-7
    assert posterior.inference.residual <= 1e-8
    fit = PointwiseFit(prior, data, LIKELIHOODS[kind](), tolerance=1e-8)
    # nothing near it has a larger penalised bound
    best = posterior.evidence_bound - TRACE.mu * posterior.trace_norm
    for factor in (0.97, 1.03):
        solution = posterior.solution
        psi, norm = factor * solution.psi, factor**2 * float(posterior.mean_factors.values.square().sum())
        other = (
            fit.sites.moments(psi, posterior.sites.variance)[0] - norm / 2 - factor * TRACE.mu * posterior.trace_norm
        )
        here = fit.sites.moments(solution.psi, posterior.sites.variance)[0]
        here -= float(posterior.mean_factors.values.square().sum()) / 2 + TRACE.mu * posterior.trace_norm
        assert other <= here + 1e-9 * abs(best)
    full = mvgp.FullGP(prior, LIKELIHOODS[kind]()).fit(data)
    assert posterior.evidence_bound <= full.evidence_bound + 1e-9 * abs(best)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_a_factor_gp_of_full_rank_is_the_trace_norm(kind, tmp_path):
    """Equation (7) with 1 for the noise; its covariance is linearised, with the curvature of the loss as precision."""
    prior, data, _, _ = problem(kind)
    factor = mvgp.FactorGP(prior, LIKELIHOODS[kind](), rank=6, max_iterations=5000).fit(data)
    net = mvgp.SpectralElasticNet(1.0, 1.0)
    trace = mvgp.TraceGP(prior, LIKELIHOODS[kind](), penalty=net, approximation="laplace", tolerance=1e-7).fit(data)
    assert factor.objective == pytest.approx(trace.certificate.primal, rel=1e-5)
    torch.testing.assert_close(factor.scores(), trace.scores(), atol=3e-3, rtol=0)
    at = factor.mean(data.rows, data.cols).requires_grad_(True)
    log_prob = (ones(data) * log_density(kind, data.values, at)).sum()
    (first,) = torch.autograd.grad(log_prob, at, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), at)
    torch.testing.assert_close(1 / factor.conditional.noise, -second, atol=1e-8, rtol=1e-8)
    assert abs(factor.explain(0, 0).residual) < 1e-5 * (1 + abs(factor.explain(0, 0).score))
    mean, variance = factor.mean([2], [3]).item(), factor.variance([2], [3]).item()
    chance = factor.predictive([2], [3]).log_prob(torch.ones(1, dtype=torch.float64)).exp().item()
    assert chance == pytest.approx(predicted(kind, mean, variance, 1.0), abs=1e-5)
    factor.save(tmp_path / "file")
    loaded = mvgp.load(tmp_path / "file").predictive([2], [3]).log_prob(torch.ones(1, dtype=torch.float64)).exp()
    assert loaded.item() == pytest.approx(chance, rel=1e-9)
    observed = (data.rows * SHAPE[1] + data.cols).tolist()
    cell = next(cell for cell in range(SHAPE[0] * SHAPE[1]) if cell not in observed)
    more = mvgp.ObservedMatrix([cell // SHAPE[1]], [cell % SHAPE[1]], [1.0], SHAPE, weights=[1.0])
    updated = factor.condition(more)
    assert len(updated.conditional.pairs) == len(data) + 1


@pytest.mark.parametrize("approximation", ["variational", "laplace"])
@pytest.mark.parametrize("kind", ["probit", "log poisson"])
def test_without_a_trace_norm_it_is_the_plain_posterior(kind, approximation):
    prior, data, _, _ = problem(kind)
    penalty = mvgp.SpectralElasticNet(1.0, 0.0)
    options = {"approximation": approximation}
    found = mvgp.TraceGP(prior, LIKELIHOODS[kind](), penalty=penalty, tolerance=1e-13, **options).fit(data)
    expected = mvgp.FullGP(prior, LIKELIHOODS[kind](), **options).fit(data)
    torch.testing.assert_close(found.scores(), expected.scores(), atol=1e-5, rtol=1e-5)
    assert found.certificate.relative_gap <= 1e-12


@pytest.mark.parametrize("kind", ["logistic", "log poisson"])
def test_above_lam_max_the_mean_is_that_of_the_prior(kind):
    prior, data, _, _ = problem(kind)
    model = mvgp.TraceGP(prior, LIKELIHOODS[kind](), strength=1.01, trace_share=1.0)
    assert model.fit(data).rank == 0
    model = mvgp.TraceGP(prior, LIKELIHOODS[kind](), strength=0.9, trace_share=1.0)
    assert model.fit(data).rank > 0


@pytest.mark.slow
def test_a_path_is_warm_started():
    prior, data, _, _ = problem("log poisson")
    model = mvgp.TraceGP(prior, LogPoissonLikelihood(), trace_share=0.8, tolerance=1e-6)
    points = list(model.path(data, [0.5, 0.2, 0.1]))
    alone = mvgp.TraceGP(prior, LogPoissonLikelihood(), strength=0.1, trace_share=0.8, tolerance=1e-6).fit(data)
    torch.testing.assert_close(points[-1].posterior.scores(), alone.scores(), atol=1e-2, rtol=1e-2)


# Other likelihoods -------------------------------------------------------------------------------


class CloglogLikelihood(gpytorch.likelihoods.Likelihood):
    """A user's own: two classes, P(1) = 1 - exp(-exp(z)), log-concave; forward only.

    By its logit: the probability itself, near 1, has lost the digits of ln(1 - P), and needs a clamp, where the log
    density has a kink. Then the equations of the posterior hold to 1e-7 or so and no better.
    """

    def forward(self, function_samples, *args, **kwargs):
        rate = function_samples.exp()
        return torch.distributions.Bernoulli(logits=rate + torch.log(-torch.expm1(-rate)))


class OwnExpectation(LogisticLikelihood):
    """Overrides the expectation alone: twice the logistic one."""

    def expected_log_prob(self, observations, function_dist, *args, **kwargs):
        return 2 * super().expected_log_prob(observations, function_dist)

    def forward(self, function_samples, *args, **kwargs):
        return super().forward(function_samples)


@pytest.mark.slow
def test_a_likelihood_with_forward_alone():
    prior, data, _k, _offset = problem("logistic", weighted=False)
    posterior = mvgp.FullGP(prior, CloglogLikelihood()).fit(data)
    assert posterior.inference.converged
    assert posterior.inference.log_concave
    probability = posterior.predictive(data.rows, data.cols).probs
    assert ((probability > 0) & (probability < 1)).all()
    certified = mvgp.TraceGP(prior, CloglogLikelihood(), penalty=TRACE, tolerance=1e-5, strict=True).fit(data)
    assert certified.certificate.relative_gap <= 1e-5


def test_an_expectation_of_ones_own_is_used():
    prior, data, _, _ = problem("logistic", weighted=False)
    twice = mvgp.ObservedMatrix(data.rows, data.cols, data.values, data.shape, weights=torch.full((len(data),), 2.0))
    found, expected = (
        mvgp.FullGP(prior, OwnExpectation()).fit(data),
        mvgp.FullGP(prior, LogisticLikelihood()).fit(twice),
    )
    torch.testing.assert_close(found.scores(), expected.scores(), atol=1e-5, rtol=1e-5)


def real_problem(likelihood, seed=1):
    prior, data, _k, _offset = problem("logistic", seed)
    values = (
        data.values * 2 - 1 + 0.1 * torch.randn(len(data), generator=randomness.generator(seed), dtype=torch.float64)
    )
    return prior, mvgp.ObservedMatrix(data.rows, data.cols, values, data.shape, weights=data.weights), likelihood


def test_many_degrees_of_freedom_are_gaussian():
    prior, data, student = real_problem(StudentTLikelihood().double())
    student.deg_free, student.noise = 1e7, 0.3
    gaussian = GaussianLikelihood().double()
    gaussian.noise = 0.3
    found, expected = mvgp.FullGP(prior, student).fit(data), mvgp.FullGP(prior, gaussian).fit(data)
    torch.testing.assert_close(found.scores(), expected.scores(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.variances().values, expected.variances().values, atol=1e-5, rtol=1e-5)
    certified = mvgp.TraceGP(prior, student, penalty=TRACE, tolerance=1e-9, max_iterations=5000).fit(data)
    same = mvgp.TraceGP(
        prior,
        gaussian,
        penalty=mvgp.SpectralElasticNet(0.3 * TRACE.lam, TRACE.alpha),
        tolerance=1e-9,
        max_iterations=5000,
    ).fit(data)
    torch.testing.assert_close(certified.scores(), same.scores(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("approximation", ["variational", "laplace"])
def test_an_outlier_does_not_move_students_t(approximation):
    prior, data, student = real_problem(StudentTLikelihood().double())
    student.deg_free, student.noise = 3.0, 0.05
    values = data.values.clone()
    values[3] = 1e4
    wild = mvgp.ObservedMatrix(data.rows, data.cols, values, data.shape, weights=data.weights)
    posterior = mvgp.FullGP(prior, student, approximation=approximation).fit(wild)
    assert posterior.inference.converged
    assert not posterior.inference.log_concave
    assert (posterior.sites.precision >= 0).all()
    rest = torch.arange(len(data)) != 3
    without = mvgp.ObservedMatrix(
        data.rows[rest], data.cols[rest], values[rest], data.shape, weights=data.weights[rest]
    )
    expected = mvgp.FullGP(prior, student, approximation=approximation).fit(without)
    assert float((posterior.scores() - expected.scores()).abs().max()) < 0.05
    certified = mvgp.TraceGP(prior, student, penalty=TRACE, approximation=approximation).fit(wild)
    assert float(certified.scores().abs().max()) < 20


def test_laplace_noise():
    prior, data, likelihood = real_problem(LaplaceLikelihood().double())
    likelihood.noise = 0.2
    posterior = mvgp.FullGP(prior, likelihood).fit(data)
    assert posterior.inference.converged
    certified = mvgp.TraceGP(prior, likelihood, penalty=TRACE, tolerance=1e-6, max_iterations=5000, strict=True).fit(
        data
    )
    assert certified.certificate.relative_gap <= 1e-6
    with pytest.raises(InputError, match="kink"):
        mvgp.FullGP(prior, likelihood, approximation="laplace").fit(data)


def test_not_log_concave():
    prior, data, _, _ = problem("log poisson")
    assert (
        mvgp.FullGP(prior, NegativeBinomialLikelihood().double(), strict=False).fit(data).inference.log_concave is False
    )
    with pytest.raises(InputError, match="not log-concave"):
        mvgp.TraceGP(prior, NegativeBinomialLikelihood().double(), penalty=TRACE).fit(data)


# Fixed noise -------------------------------------------------------------------------------------


def test_fixed_noise_is_a_weight():
    prior, data, _ = real_problem(None)
    noise = torch.rand(len(data), generator=randomness.generator(5), dtype=torch.float64) + 0.1
    found = mvgp.FullGP(prior, FixedNoiseGaussianLikelihood(noise)).fit(data)
    gaussian = GaussianLikelihood().double()
    gaussian.noise = 1.0
    same = mvgp.ObservedMatrix(data.rows, data.cols, data.values, data.shape, weights=data.weights / noise)
    expected = mvgp.FullGP(prior, gaussian).fit(same)
    torch.testing.assert_close(found.scores(), expected.scores(), atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(found.variances().values, expected.variances().values, atol=1e-8, rtol=1e-8)
    cells = torch.full(SHAPE, 7.0, dtype=torch.float64)
    cells[data.rows, data.cols] = noise
    torch.testing.assert_close(
        mvgp.FullGP(prior, FixedNoiseGaussianLikelihood(cells)).fit(data).scores(), found.scores()
    )
    trace = mvgp.TraceGP(prior, FixedNoiseGaussianLikelihood(noise), penalty=TRACE, tolerance=1e-9).fit(data)
    also = mvgp.TraceGP(prior, gaussian, penalty=TRACE, tolerance=1e-9).fit(same)
    torch.testing.assert_close(trace.scores(), also.scores(), atol=1e-4, rtol=1e-4)
    here = found.predictive([0, 1], [2, 3], noise=torch.tensor([0.5, 0.25], dtype=torch.float64))
    expected_variance = found.variance([0, 1], [2, 3]) + torch.tensor([0.5, 0.25])
    torch.testing.assert_close(here.variance, expected_variance)


def test_the_order_of_fixed_noise():
    prior, data, _ = real_problem(None)
    back = torch.arange(len(data)).flip(0)
    turned = mvgp.ObservedMatrix(data.rows[back], data.cols[back], data.values[back], data.shape)
    with pytest.raises(InputError, match="another order"):
        mvgp.FullGP(prior, FixedNoiseGaussianLikelihood(torch.rand(len(data)).double() + 0.1)).fit(turned)
    mvgp.FullGP(prior, FixedNoiseGaussianLikelihood(torch.full((len(data),), 0.3).double())).fit(turned)
    with pytest.raises(InputError, match="for each of the"):
        mvgp.FullGP(prior, FixedNoiseGaussianLikelihood(torch.rand(3).double() + 0.1)).fit(data)


# Predictions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LIKELIHOODS)
@pytest.mark.parametrize("model", ["full", "trace"])
def test_predictions_go_through_the_likelihood(kind, model):
    prior, data, _, _ = problem(kind)
    recipe = (
        mvgp.FullGP(prior, LIKELIHOODS[kind]())
        if model == "full"
        else mvgp.TraceGP(prior, LIKELIHOODS[kind](), penalty=TRACE)
    )
    posterior = recipe.fit(data)
    rows, cols = [0, 3, 5], [7, 2, 0]
    distribution = posterior.predictive(rows, cols)
    means, variances = posterior.mean(rows, cols).tolist(), posterior.variance(rows, cols).tolist()
    for value in (0.0, 1.0):
        found = distribution.log_prob(torch.full((3,), value, dtype=torch.float64)).exp().tolist()
        expected = [predicted(kind, m, v, value) for m, v in zip(means, variances, strict=True)]
        assert found == pytest.approx(expected, abs=1e-5)
    samples = distribution.sample((7,))
    assert samples.shape == (7, 3)


def test_gaussian_predictions():
    prior, data, _ = real_problem(None)
    gaussian = GaussianLikelihood().double()
    gaussian.noise = 0.4
    for posterior in (mvgp.FullGP(prior, gaussian).fit(data), mvgp.TraceGP(prior, gaussian).fit(data)):
        found = posterior.predictive([0, 1], [2, 3])
        torch.testing.assert_close(found.mean, posterior.mean([0, 1], [2, 3]))
        torch.testing.assert_close(found.variance, posterior.variance([0, 1], [2, 3]) + 0.4)
        with pytest.raises(InputError, match="pointwise"):
            _ = posterior.evidence_bound


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["probit", "logistic"])
def test_probabilities_are_calibrated(kind):
    """Rows are independent: one held-out label each, whose errors are independent with mean 0 if probabilities are right.

    Bernstein's inequality holds for any draw; what a Gaussian approximation adds to it is small.
    """
    count, generator = 600, randomness.generator(11)
    col = torch.tensor([[1.0, 0.8, 0.8], [0.8, 1.0, 0.8], [0.8, 0.8, 1.0]], dtype=torch.float64)
    prior = mvgp.MatrixGP(PrecomputedKernel(4 * torch.eye(count, dtype=torch.float64)), PrecomputedKernel(col))
    z = prior.sample(generator)
    chance = torch.special.ndtr(z) if kind == "probit" else torch.sigmoid(z)
    labels = (torch.rand(count, 3, generator=generator, dtype=torch.float64) < chance).double()
    rows, cols = torch.arange(count).repeat_interleave(2), torch.tensor([0, 1]).repeat(count)
    data = mvgp.ObservedMatrix(rows, cols, labels[:, :2].flatten(), (count, 3))
    posterior = mvgp.FullGP(prior, LIKELIHOODS[kind]()).fit(data)
    probability = posterior.predictive(torch.arange(count), torch.full((count,), 2)).probs
    off = labels[:, 2] - probability
    limit = share_limit(count, 3) + 0.02
    assert abs(float(off.mean())) < limit
    assert abs(float((off * (probability - 0.5).sign()).mean())) < limit  # neither over- nor underconfident
    assert float(probability.max() - probability.min()) > 0.4  # and it does say something


# What is refused ---------------------------------------------------------------------------------


def test_labels():
    prior, data, _, _ = problem("probit", weighted=False)
    signs = mvgp.ObservedMatrix(data.rows, data.cols, 2 * data.values - 1, data.shape)
    for likelihood in (BernoulliLikelihood(), LogisticLikelihood()):
        found, expected = (mvgp.FullGP(prior, likelihood).fit(one) for one in (signs, data))
        torch.testing.assert_close(found.scores(), expected.scores())
    for bad in (2.0, 0.5):
        values = data.values.clone()
        values[0] = bad
        with pytest.raises(InputError, match="labels 0 and 1"):
            mvgp.FullGP(prior, BernoulliLikelihood()).fit(mvgp.ObservedMatrix(data.rows, data.cols, values, data.shape))
    mixed = data.values.clone()
    mixed[:3] = torch.tensor([-1.0, 0.0, 1.0])
    with pytest.raises(InputError, match="together"):
        mvgp.FullGP(prior, BernoulliLikelihood()).fit(mvgp.ObservedMatrix(data.rows, data.cols, mixed, data.shape))
    for likelihood in (PoissonLikelihood(), LogPoissonLikelihood()):
        with pytest.raises(InputError, match="values"):
            mvgp.FullGP(prior, likelihood).fit(signs)


def test_what_has_no_place_is_refused():
    prior, data, _, _ = problem("probit")
    with pytest.raises(InputError, match="FactorGP takes"):
        mvgp.FactorGP(prior, SoftmaxLikelihood(num_classes=3, num_features=1), rank=2)
    with pytest.raises(InputError, match="FactorGP needs second derivatives, and LaplaceLikelihood has a kink"):
        mvgp.FactorGP(prior, LaplaceLikelihood().double(), rank=2).fit(data)
    with pytest.raises(InputError, match="FullGP takes"):
        mvgp.FullGP(prior, SoftmaxLikelihood(num_classes=3, num_features=1))
    with pytest.raises(InputError, match="approximation"):
        mvgp.FullGP(prior, BernoulliLikelihood(), approximation="ep")
    with pytest.raises(InputError, match="row_bias"):
        mvgp.TraceGP(prior, BernoulliLikelihood(), row_bias=0.0)
    with pytest.raises(InputError, match="values"):
        mvgp.FullGP(prior, BetaLikelihood()).fit(mvgp.ObservedMatrix([0], [0], [3.0], SHAPE))
    posterior = mvgp.FullGP(prior, BernoulliLikelihood()).fit(data)
    with pytest.raises(InputError, match="fixes the scale"):
        _ = posterior.evidence_scale


def test_a_missed_tolerance_is_an_error_or_a_warning():
    prior, data, _, _ = problem("probit")
    with pytest.raises(ConvergenceError, match="misses its equations"):
        mvgp.FullGP(prior, BernoulliLikelihood(), max_iterations=1).fit(data)
    with pytest.warns(RuntimeWarning, match="misses its equations"):
        posterior = mvgp.FullGP(prior, BernoulliLikelihood(), max_iterations=1, strict=False).fit(data)
    assert not posterior.inference.converged


def test_whole_lists():
    prior, _, _, _ = problem("probit")
    links = mvgp.PositiveUnlabelled([0, 0, 2], [1, 4, 3], SHAPE, weight=0.3)
    found = mvgp.FullGP(prior, BernoulliLikelihood()).fit(links)
    labels = torch.zeros(links.num_cells, dtype=torch.float64)
    weights = torch.full_like(labels, 0.3)
    labels[links.positions], weights[links.positions] = 1.0, 1.0
    same = mvgp.ObservedMatrix(links.pattern.rows, links.pattern.cols, labels, SHAPE, weights=weights)
    torch.testing.assert_close(found.scores(), mvgp.FullGP(prior, BernoulliLikelihood()).fit(same).scores())


def test_single_precision():
    prior, data, _, _ = problem("logistic")
    single = copy.deepcopy(prior).to(torch.float32)
    found, expected = (
        mvgp.FullGP(single, LogisticLikelihood()).fit(data),
        mvgp.FullGP(prior, LogisticLikelihood()).fit(data),
    )
    assert found.scores().dtype == torch.float32
    torch.testing.assert_close(found.scores().double(), expected.scores(), atol=1e-3, rtol=1e-3)


def test_huge_prior_variances_do_not_overflow():
    prior, data, _, _ = problem("log poisson")
    wide = mvgp.MatrixGP(
        gpytorch.kernels.ScaleKernel(PrecomputedKernel(prior.row_axis.covariance().to_dense().detach())),
        PrecomputedKernel(prior.col_axis.covariance().to_dense().detach()),
    )
    wide.row_axis.kernel.outputscale = 50.0
    posterior = mvgp.FullGP(wide, LogPoissonLikelihood()).fit(data)
    assert posterior.inference.converged
    assert math.isfinite(posterior.evidence_bound)


@pytest.mark.parametrize("approximation", ["variational", "laplace"])
def test_a_factor_of_low_rank_is_the_dense_one(approximation):
    """Smooth kernels: the products of few eigenvalues are not zero."""
    generator = randomness.generator(2)
    kernels = [gpytorch.kernels.RBFKernel().double() for _ in range(2)]
    points = [torch.linspace(0, 1, size).double().unsqueeze(1) for size in (14, 17)]
    prior = mvgp.MatrixGP(*kernels, row_inputs=points[0], col_inputs=points[1])
    cells = torch.randperm(14 * 17, generator=generator)[:200].sort().values
    rows, cols = cells // 17, cells % 17
    counts = torch.poisson(prior.sample(generator)[rows, cols].exp(), generator=generator)
    data = mvgp.ObservedMatrix(rows, cols, counts, (14, 17))
    low, dense = (PointwiseFit(prior, data, LogPoissonLikelihood(), approximation, tolerance=1e-10) for _ in range(2))
    dense.sites.__dict__["root"] = None
    assert low.sites.root.shape[1] < 100
    found, expected = (one.full(tolerance=1e-9, max_iterations=100) for one in (low, dense))
    torch.testing.assert_close(found.psi, expected.psi, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(found.variance, expected.variance, atol=1e-6, rtol=1e-6)
    assert found.bound == pytest.approx(expected.bound, rel=1e-9)


def test_rounds_that_do_not_settle_are_told(monkeypatch):
    prior, data, _, _ = problem("probit")
    monkeypatch.setattr("mvgp.models.pointwise.MAX_ROUNDS", 1)
    with pytest.raises(ConvergenceError, match="did not settle"):
        mvgp.TraceGP(prior, BernoulliLikelihood(), penalty=TRACE, strict=True).fit(data)
    with pytest.warns(RuntimeWarning, match="did not settle"):
        mvgp.TraceGP(prior, BernoulliLikelihood(), penalty=TRACE).fit(data)


@pytest.mark.parametrize("deviation", [0.3, 1.0, 1.1, 5.0, 12.0])
def test_predictions_are_exact_for_wide_latents_too(deviation):
    """Gauss-Hermite nodes are two units apart at a standard deviation of 5: the chance of a count was off by 0.4 %."""
    latent = MultivariateNormal(torch.tensor([0.4]).double(), torch.tensor([[deviation**2]]).double())
    for kind in ("log poisson", "logistic"):
        chance = predictive(LIKELIHOODS[kind](), latent).log_prob(torch.ones(1, dtype=torch.float64)).exp().item()
        assert chance == pytest.approx(predicted(kind, 0.4, deviation**2, 1.0), abs=1e-6)
    nodes, weights = normal_quadrature(deviation)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (weights * nodes**2).sum() == pytest.approx(1.0, abs=1e-12)
    if deviation < 5:
        assert (weights * np.exp(deviation * nodes)).sum() == pytest.approx(math.exp(deviation**2 / 2), rel=1e-10)
