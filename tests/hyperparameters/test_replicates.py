"""Merged replicates in marginal likelihoods: the density of all measurements, by hand and by learning."""

import gpytorch
import pytest
import torch

import mvgp
from mvgp.hyperparameters import learn, log_marginal, trace_bound
from mvgp.kernels import PrecomputedKernel
from tests import randomness

SHAPE, NOISE = (4, 5), 0.2


def problem(count):
    """A prior, measurements of few cells, many of them several times, and the cells' numbers."""
    generator = randomness.generator(1)
    roots = [torch.randn(size, size, dtype=torch.float64, generator=generator) for size in SHAPE]
    kernels = [root @ root.mT / len(root) + 0.1 * torch.eye(len(root)) for root in roots]
    cell = torch.randint(0, 12, (count,), generator=generator)
    whole = torch.kron(*kernels)
    truth = torch.linalg.cholesky(whole) @ torch.randn(len(whole), dtype=torch.float64, generator=generator)
    values = truth[cell] + NOISE**0.5 * torch.randn(count, dtype=torch.float64, generator=generator)
    data = mvgp.ObservedMatrix(cell // SHAPE[1], cell % SHAPE[1], values, SHAPE, replicates="merge")
    return mvgp.MatrixGP(*map(PrecomputedKernel, kernels)), whole, cell, values, data


def gaussian(noise):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = noise
    return likelihood


def test_the_marginal_likelihood_is_that_of_all_measurements():
    prior, whole, cell, values, data = problem(40)
    likelihood = gaussian(0.3)
    found = log_marginal(prior, likelihood, data).value
    noise = likelihood.noise.reshape(())
    covariance = whole[cell][:, cell] + noise * torch.eye(len(cell), dtype=torch.float64)
    expected = torch.distributions.MultivariateNormal(torch.zeros_like(values), covariance).log_prob(values)
    assert found.item() == pytest.approx(expected.item(), rel=1e-9)
    raw = likelihood.noise_covar.raw_noise
    first, second = (torch.autograd.grad(value, raw, retain_graph=True)[0] for value in (found, expected))
    torch.testing.assert_close(first, second, atol=1e-8, rtol=1e-8)


def test_the_evidence_bound_has_it_too():
    """At a prior without a trace norm the bound is the marginal likelihood; the term is the same for any mean."""
    prior, _, _, _, data = problem(40)
    likelihood = gaussian(0.3)
    penalty = mvgp.SpectralElasticNet.from_noise(likelihood.noise.item(), 0.5)
    posterior = mvgp.TraceGP(prior, likelihood, penalty=penalty).fit(data)
    plain = mvgp.ObservedMatrix(data.rows, data.cols, data.values, SHAPE, weights=data.weights)
    with torch.no_grad():
        gap = (
            trace_bound(prior, likelihood, data, posterior).value
            - trace_bound(prior, likelihood, plain, posterior).value
        )
    assert float(gap) == pytest.approx(float(data.replicate_log_prob(likelihood.noise.detach().reshape(()))), rel=1e-9)


def test_the_scale_of_largest_evidence_is_that_of_all_measurements():
    prior, whole, cell, values, data = problem(40)
    likelihood = gaussian(0.3)
    noise = likelihood.noise.item()
    covariance = whole[cell][:, cell] + noise * torch.eye(len(cell), dtype=torch.float64)
    expected = float(values @ torch.linalg.solve(covariance, values)) / len(values)
    assert mvgp.FullGP(prior, likelihood).fit(data).evidence_scale == pytest.approx(expected, rel=1e-8)
    ridge = mvgp.TraceGP(prior, likelihood, penalty=mvgp.SpectralElasticNet(noise, 0.0), tolerance=1e-12).fit(data)
    assert ridge.evidence_scale == pytest.approx(expected, rel=1e-6)


def test_noise_is_learnt_from_replicates():
    """From 12 means alone the noise would be anybody's guess; the spread of 2,000 measurements is within 20 %."""
    prior, _, _, _, data = problem(2000)
    prior.requires_grad_(False)
    likelihood = gaussian(3.0)
    result = learn(prior, likelihood, data, errors=False)
    assert likelihood.noise.item() == pytest.approx(NOISE, rel=0.2)
    assert float(result.log_marginal.value) == pytest.approx(
        log_marginal(prior, likelihood, data).value.item(), rel=1e-6
    )
