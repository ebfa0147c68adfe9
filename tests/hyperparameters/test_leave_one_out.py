"""Closed-form leave-one-out against refits without the entry."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

import mvgp
from mvgp.errors import InputError, SizeError
from mvgp.hyperparameters import leave_one_out
from mvgp.kernels import DiffusionKernel
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.linalg.cost import DEFAULT_LIMITS
from tests.hyperparameters.problems import PRIORS, M, N, gaussian, observe, ring


def refits(prior, data, noise):
    mean, variance = [], []
    for t in range(len(data)):
        rest = torch.arange(len(data)) != t
        weights = None if data.weights is None else data.weights[rest]
        other = mvgp.ObservedMatrix(data.rows[rest], data.cols[rest], data.values[rest], data.shape, weights=weights)
        posterior = mvgp.FullGP(prior, gaussian(noise)).fit(other)
        mean.append(posterior.mean(data.rows[t], data.cols[t]))
        variance.append(posterior.variance(data.rows[t], data.cols[t]))
    return torch.cat(mean), torch.cat(variance)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", PRIORS)
def test_equals_refits(name, weighted):
    prior, data = PRIORS[name](), observe(torch.randperm(M * N)[:30], weighted=weighted)
    found = leave_one_out(mvgp.FullGP(prior, gaussian(0.2)).fit(data), data)
    mean, variance = refits(prior, data, 0.2)
    noise = torch.tensor(0.2, dtype=torch.float64) if data.weights is None else 0.2 / data.weights
    torch.testing.assert_close(found.mean, mean, atol=1e-8, rtol=0)
    torch.testing.assert_close(found.entry_variance, variance, atol=1e-8, rtol=0)
    torch.testing.assert_close(found.variance, variance + noise, atol=1e-8, rtol=0)
    truth = torch.distributions.Normal(mean, (variance + noise).sqrt()).log_prob(data.values)
    torch.testing.assert_close(found.log_densities, truth, atol=1e-7, rtol=0)
    assert abs(found.log_density - float(truth.sum())) < 1e-6


@pytest.mark.parametrize("name", ["diffusion x rbf", "precomputed, biased"])
def test_complete_grids(name):
    """By eigenpairs, all of them or (singular kernels) some."""
    prior, data = PRIORS[name](), observe(torch.arange(M * N))
    posterior = mvgp.FullGP(prior, gaussian(0.2), method="spectral").fit(data)
    found = leave_one_out(posterior, data)
    mean, variance = refits(prior, data, 0.2)
    torch.testing.assert_close(found.mean, mean, atol=1e-8, rtol=0)
    torch.testing.assert_close(found.entry_variance, variance, atol=1e-8, rtol=0)
    some = leave_one_out(posterior, data, which=[3, 50])
    torch.testing.assert_close(some.mean, found.mean[[3, 50]])


@pytest.mark.parametrize("weighted", [False, True])
def test_some_entries_by_conjugate_gradients(weighted):
    prior = mvgp.MatrixGP(DiffusionKernel(ring(8)), RBFKernel(), col_inputs=torch.linspace(0, 3, 12))
    data = observe(torch.randperm(96)[:60], (8, 12), weighted)
    posterior = mvgp.FullGP(prior, gaussian(0.2), method="cg", tolerance=1e-11).fit(data)
    assert not posterior.conditional.has_dense
    which = torch.tensor([5, 0, 59])
    some = leave_one_out(posterior, data, which)
    assert not posterior.conditional.has_dense
    every = leave_one_out(posterior, data)  # now the dense factor is there
    assert posterior.conditional.has_dense
    for name in ("mean", "variance", "entry_variance", "values"):
        torch.testing.assert_close(getattr(some, name), getattr(every, name)[which], atol=1e-8, rtol=0)
    assert len(leave_one_out(posterior, data, torch.zeros(0, dtype=torch.long)).mean) == 0


def test_too_many_entries_are_refused_unless_some_are_named():
    """Just above the limit of a dense factor."""
    count = DEFAULT_LIMITS.dense + 1
    prior = mvgp.MatrixGP(DiffusionKernel(ring(100)), DiffusionKernel(ring(130)))
    data = observe(torch.arange(count), (100, 130))
    posterior = mvgp.FullGP(prior, gaussian(1.0)).fit(data)
    with pytest.raises(SizeError, match="12,000 observed pairs, there are 12,001; name some with which="):
        leave_one_out(posterior, data)
    found = leave_one_out(posterior, data, [7])
    assert found.variance > 1.0


def ranking():
    likelihood = BipartiteRankingLikelihood(margin=1.0, noise=0.1)
    labels = mvgp.ObservedMatrix([0, 0, 1, 1], [0, 1, 0, 1], [1.0, -1.0, 1.0, -1.0], (M, N))
    prior = mvgp.MatrixGP(DiffusionKernel(ring(M)), DiffusionKernel(ring(N)))
    return mvgp.FullGP(prior, likelihood).fit(labels), labels


def plain(cells=(1, 2, 3)):
    data = observe(cells)
    return mvgp.FullGP(PRIORS["diffusion x rbf"](), gaussian(0.2)).fit(data), data


BAD = [
    (lambda: leave_one_out(*ranking()), "expected one under Gaussian noise, got that of another likelihood"),
    (lambda: leave_one_out(None, None), "posterior: expected that of mvgp.FullGP, got NoneType"),
    (lambda: leave_one_out(plain()[0], None), "data: expected mvgp.ObservedMatrix, got NoneType"),
    (lambda: leave_one_out(plain()[0], observe([1, 2, 4])), "expected the 3 entries .* at other places"),
    (
        lambda: leave_one_out(plain()[0], observe([1, 2, 3], seed=1)),
        "expected the values that the posterior was fitted to",
    ),
    (lambda: leave_one_out(*plain(), which=[3]), r"which\[0\].*\[0, 3\), got 3"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
