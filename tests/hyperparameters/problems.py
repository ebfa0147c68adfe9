"""Small problems, and the log marginal likelihood of them by torch alone."""

import math

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import mvgp
from mvgp.hyperparameters import probes as reference
from mvgp.kernels import DiffusionKernel, Graph, PrecomputedKernel
from mvgp.priors import ConstantMean, GivenMean, RowBiasMean
from tests import randomness
from tests.oracles import random_edges

M, N = 7, 11
RNG = randomness.numpy_generator(0)
ROWS, COLS = Graph(random_edges(RNG, M, 9), M), Graph(random_edges(RNG, N, 20), N, RNG.random(25))
X = torch.from_numpy(RNG.normal(size=(N, 2)))
BIAS = torch.from_numpy(RNG.normal(size=M))
GIVEN = torch.from_numpy(RNG.normal(size=(M, N)))


def precomputed(size):
    a = torch.from_numpy(randomness.numpy_generator(size).normal(size=(size, size - 2)))  # singular
    return PrecomputedKernel(a @ a.T / size)


PRIORS = {
    "diffusion x rbf": lambda: mvgp.MatrixGP(DiffusionKernel(ROWS, 0.7, 0.3), RBFKernel(), col_inputs=X),
    "polynomial": lambda: mvgp.MatrixGP(
        DiffusionKernel(ROWS, method="chebyshev"), ScaleKernel(DiffusionKernel(COLS, method="chebyshev"))
    ),
    "precomputed, biased": lambda: mvgp.MatrixGP(
        ScaleKernel(precomputed(M)), ScaleKernel(precomputed(N)), mean=RowBiasMean(BIAS)
    ),
    "sums": lambda: mvgp.MatrixGP(
        ScaleKernel(DiffusionKernel(ROWS, shift=0.0)) + ScaleKernel(precomputed(M)),
        MaternKernel(nu=1.5) + ScaleKernel(RBFKernel()),
        col_inputs=X,
        mean=ConstantMean(0.4),
    ),
    "product, given mean": lambda: mvgp.MatrixGP(
        ScaleKernel(DiffusionKernel(ROWS) * precomputed(M)), DiffusionKernel(COLS), mean=GivenMean(GIVEN)
    ),
}


def gaussian(noise):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    return likelihood


def observe(cells, shape=(M, N), weighted=False, seed=0):
    generator = randomness.generator(seed)
    cells = torch.as_tensor(cells)
    values = torch.randn(len(cells), generator=generator, dtype=torch.float64)
    weights = torch.rand(len(cells), generator=generator, dtype=torch.float64) + 0.5 if weighted else None
    return mvgp.ObservedMatrix(cells // shape[1], cells % shape[1], values, shape, weights=weights)


def parameters(*modules):
    return {
        f"{place}.{name}": p for place, m in enumerate(modules) for name, p in m.named_parameters() if p.requires_grad
    }


def gradients(value, *modules):
    found = torch.autograd.grad(value, list(parameters(*modules).values()), allow_unused=True)
    return torch.cat([torch.zeros(1).double() if g is None else g.reshape(-1) for g in found])


def dense_log_marginal(prior, likelihood, data):
    """By the whole Kronecker product and torch's own normal distribution."""
    every = torch.kron(prior.row_axis.covariance().to_dense(), prior.col_axis.covariance().to_dense())
    at = data.rows * data.shape[1] + data.cols
    noise = likelihood.noise.expand(len(at)) / (1.0 if data.weights is None else data.weights)
    mean = prior.mean_matrix().flatten()[at]
    return torch.distributions.MultivariateNormal(mean, every[at][:, at] + torch.diag(noise)).log_prob(data.values)


def ring(n):
    return Graph(np.stack([np.arange(n), (np.arange(n) + 1) % n], 1), n)


def random_graph(n, links, seed):
    return Graph(randomness.numpy_generator(seed).integers(0, n, (links, 2)), n)


def measured(prior, noise, share, seed):
    """A share of the cells of a sample of the prior, with noise."""
    generator = randomness.generator(seed)
    truth = prior.sample(generator)
    noisy = truth + noise**0.5 * torch.randn(truth.shape, generator=generator, dtype=truth.dtype)
    return mvgp.ObservedMatrix.from_mask(noisy, torch.rand(truth.shape, generator=generator) < share)


def every_direction(monkeypatch, data):
    """Probes that are every direction once instead of random signs: their mean is then the expectation itself.

    With z = F s + D^1/2 t the estimate is a quadratic form of the signs (s, t), and its expectation over signs is its
    trace, as it is the mean over the unit vectors of (s, t), each times the square root of their number. Returns that
    number, to be asked for as the number of probes.
    """
    count, most = len(data), math.prod(data.shape)
    probes = count + most  # directions of t, and at most one of s for each cell

    def unit_vectors(rows, columns, generator, like):
        assert columns == probes
        assert rows <= most
        found = torch.zeros(rows, columns, dtype=like.dtype)
        start = count if found_noise else 0
        found[:, start : start + rows] = columns**0.5 * torch.eye(rows, dtype=like.dtype)
        found_noise.append(rows)
        return found

    found_noise = []  # the first call is for t, the second, if there is a preconditioner, for s

    def build(covariance, noise, **options):
        found_noise.clear()
        return built(covariance, noise, **options)

    built = reference.Reference.build
    monkeypatch.setattr(reference.Reference, "build", build)
    monkeypatch.setattr(reference, "_signs", unit_vectors)
    return probes
