"""Small problems with a known answer: a matrix of rank 2 on two graphs, as numbers and as links."""

import math

import gpytorch
import torch

import mvgp
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.likelihoods import BipartiteRankingLikelihood
from tests import randomness

M, N = 30, 50


def make_prior():
    """On rings, where a diffusion time of 2 is far from one of 0.02, whatever the seed."""
    graphs = [Graph([(i, (i + 1) % n) for i in range(n)], n) for n in (M, N)]
    return mvgp.MatrixGP(*(DiffusionKernel(graph, 2.0, 0.1) for graph in graphs))


PRIOR = make_prior()


def waves(size):
    """The two slowest waves around a ring, (size, 2): eigenvectors of its kernels."""
    angle = 2 * math.pi * torch.arange(size, dtype=torch.float64) / size
    return torch.stack([(angle + 0.3).cos(), (2 * angle + 1.1).cos()], 1)


def make_truth():
    """(M, N), of rank 2. Nothing is drawn: how much the graphs tell does not depend on the seed; links are always the same."""
    truth = waves(M) @ torch.diag(torch.tensor([1.0, 0.8], dtype=torch.float64)) @ waves(N).T
    return truth / truth.std()


def make_numbers(seed=0, noise=0.3, share=0.5, **options):
    generator = randomness.generator(seed + 100)
    noisy = make_truth() + noise * torch.randn(M, N, generator=generator).double()
    return mvgp.ObservedMatrix.from_mask(noisy, torch.rand(M, N, generator=generator) < share, **options)


def make_links(per_row=6):
    cols = make_truth().topk(per_row, 1).indices
    return mvgp.PositiveUnlabelled(torch.arange(M).repeat_interleave(per_row), cols.flatten(), (M, N), 0.1)


def gaussian_model(model=mvgp.TraceGP, noise=0.25, **options):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    return model(PRIOR, likelihood, **options)


def ranking_model(**options):
    return mvgp.TraceGP(PRIOR, BipartiteRankingLikelihood(margin=1.0, noise=0.1), **options)


def cells(data):
    """Cell numbers of all entries."""
    return set((data.rows * data.shape[1] + data.cols).tolist())
