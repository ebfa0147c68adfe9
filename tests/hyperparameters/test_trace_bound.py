"""The evidence bound of the trace-constrained posterior against dense algebra and finite differences."""

import math

import gpytorch
import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import learn_trace, log_marginal, trace_bound
from mvgp.hyperparameters.learning import Objective, ParameterVector
from mvgp.hyperparameters.trace_bound import FittedBound
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.priors import ConstantMean
from tests import randomness
from tests.oracles import random_edges

M, N, T, MU = 7, 11, 40, 0.8
RNG = randomness.numpy_generator(0)
GRAPHS = [Graph(random_edges(RNG, n, 2 * n), n) for n in (M, N)]


def make(ranking, weighted=False):
    prior = mvgp.MatrixGP(
        DiffusionKernel(GRAPHS[0], 1.3, 0.4),
        gpytorch.kernels.ScaleKernel(DiffusionKernel(GRAPHS[1], 0.7, 0.3)),
        mean=None if ranking else ConstantMean(0.2),
    )
    generator = randomness.generator(1)
    cells = torch.randperm(M * N, generator=generator)[:T].sort().values
    values = torch.randn(T, generator=generator, dtype=torch.float64)
    weights = torch.rand(T, generator=generator, dtype=torch.float64) + 0.5 if weighted else None
    if ranking:
        values = values.sign()
        likelihood = BipartiteRankingLikelihood(margin=1.0, noise=0.3)
    else:
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = torch.tensor(0.3, dtype=torch.float64)
    return prior, likelihood, mvgp.ObservedMatrix(cells // N, cells % N, values, (M, N), weights=weights)


def fitted(prior, likelihood, data, mu=MU, tolerance=1e-11):
    penalty = mvgp.SpectralElasticNet.from_noise(float(likelihood.noise.detach()), mu)
    return mvgp.TraceGP(prior, likelihood, penalty=penalty, tolerance=tolerance).fit(data)


def dense_bound(prior, data, noise, targets, psi):
    """E_q log p(r | Z) - KL(q, p) but for the part of the mean in the latter, term by term, nothing cancelled."""
    with torch.no_grad():
        k = prior(data.rows, data.cols).covariance_matrix
    d = torch.as_tensor(noise, dtype=k.dtype).expand(len(data))
    s = k - k @ torch.linalg.solve(k + torch.diag(d), k)
    expected = -0.5 * (((targets - psi).square() + s.diagonal()) / d + torch.log(2 * math.pi * d)).sum()
    divergence = 0.5 * (torch.trace(torch.linalg.solve(k, s)) - len(data) - torch.logdet(s) + torch.logdet(k))
    return float(expected - divergence)


@pytest.mark.parametrize("ranking", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bound_equals_its_definition(ranking, weighted):
    prior, likelihood, data = make(ranking, weighted)
    posterior = fitted(prior, likelihood, data)
    psi = posterior.mean(data.rows, data.cols)
    noise = float(likelihood.noise.detach())
    each = noise if data.weights is None else noise / data.weights
    targets = likelihood.retargeting(data.values, data.rows, data.weights)(psi) if ranking else data.values
    without_mean = dense_bound(prior, data, each, targets, psi)
    with torch.no_grad():
        shift = (posterior.scores() - prior.mean_matrix()).flatten()
        norm = float(shift @ torch.linalg.solve(prior.covariance().to_dense(), shift))  # over the whole matrix
    found = trace_bound(prior, likelihood, data, posterior)
    assert found.value.item() == pytest.approx(without_mean - 0.5 * norm, abs=1e-8)
    assert found.standard_error == 0
    if not ranking:
        assert found.value.item() < log_marginal(prior, likelihood, data).value.item()


def test_without_a_trace_norm_it_is_the_log_marginal_likelihood():
    prior, likelihood, data = make(False)
    found = trace_bound(prior, likelihood, data, fitted(prior, likelihood, data, mu=1e-7))
    assert found.value.item() == pytest.approx(log_marginal(prior, likelihood, data).value.item(), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("ranking", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_that_of_the_maximum_over_the_mean(ranking, weighted):
    prior, likelihood, data = make(ranking, weighted)
    vector = ParameterVector({"": prior, "likelihood": likelihood})
    objective = Objective(vector, FittedBound(prior, likelihood, data, MU, 1e-12, 5000, {}))
    start = vector.get()
    _, gradient = objective.both(start)
    for place in range(len(start)):
        step = torch.zeros_like(start)
        step[place] = 1e-4
        slope = (objective.both(start + step)[0] - objective.both(start - step)[0]) / 2e-4
        assert float(gradient[place]) == pytest.approx(slope, rel=1e-4, abs=1e-5), list(vector.items)[place]


@pytest.mark.slow
def test_learning_raises_the_objective_until_it_is_flat():
    prior, likelihood, data = make(False)
    model = mvgp.TraceGP(prior, likelihood)
    before = likelihood.noise.item()
    found = learn_trace(model, data, mu=MU, max_steps=60)
    assert found.converged
    assert found.gradient <= 1e-3
    assert found.history[-1] > found.history[0]
    assert (np.diff(found.history) > -1e-6).all()
    assert likelihood.noise.item() != before
    assert found.parameters["likelihood.noise_covar.noise"].item() == pytest.approx(likelihood.noise.item())
    assert found.bound.value.item() == pytest.approx(
        trace_bound(prior, likelihood, data, fitted(prior, likelihood, data)).value.item(), abs=1e-3
    )


@pytest.mark.slow
def test_ranking_can_be_learned_too():
    prior, likelihood, data = make(True)
    with pytest.warns(RuntimeWarning, match="allow more steps"):
        found = learn_trace(mvgp.TraceGP(prior, likelihood), data, mu=MU, max_steps=5, tolerance=1e-6)
    assert len(found.history) == 5
    assert (np.diff(found.history) > 0).all()


def test_what_makes_no_sense_is_refused():
    prior, likelihood, data = make(False)
    model = mvgp.TraceGP(prior, likelihood, strength=0.2, trace_share=0.5)
    posterior = model.fit(data)
    with pytest.raises(InputError, match="expected a penalty whose Hilbert part is the noise, 0.3"):
        trace_bound(prior, likelihood, data, posterior)
    with torch.no_grad():  # the value is a bound at any mean
        assert (
            trace_bound(prior, likelihood, data, posterior).value.item()
            < log_marginal(prior, likelihood, data).value.item()
        )
    plain = mvgp.TraceGP(prior, likelihood, strength=0.2, trace_share=0.0).fit(data)
    with pytest.raises(InputError, match="one with a trace norm"):
        trace_bound(prior, likelihood, data, plain)
    for bad in ({"mu": 0.0}, {"tolerance": 0.0}, {"max_steps": 0}):
        with pytest.raises(InputError, match="expected"):
            learn_trace(model, data, **bad)
    with pytest.warns(RuntimeWarning, match="allow more steps"):
        learn_trace(model, data, mu=MU, max_steps=1, tolerance=1e-9)
