"""Small problems with a known answer: a matrix of rank 2 on two graphs, as numbers and as links."""

import gpytorch
import torch

import mvgp
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.likelihoods import BipartiteRankingLikelihood

from .. import randomness

M, N = 30, 50


def make_prior():
    """On rings, where a diffusion time of 2 is far from one of 0.02, whatever the seed."""
    graphs = [Graph([(i, (i + 1) % n) for i in range(n)], n) for n in (M, N)]
    return mvgp.MatrixGP(*(DiffusionKernel(graph, 2.0, 0.1) for graph in graphs))


PRIOR = make_prior()


def make_truth(seed=0):
    generator = randomness.generator(seed)
    roots = [mvgp.linalg.root(axis.covariance()).to_dense().detach() for axis in (PRIOR.row_axis, PRIOR.col_axis)]
    left, right = (g @ torch.randn(g.shape[1], 2, generator=generator).double() for g in roots)
    truth = left @ right.T
    return truth / truth.std()


def make_numbers(seed=0, noise=0.3, share=0.5, **options):
    generator = randomness.generator(seed + 100)
    noisy = make_truth(seed) + noise * torch.randn(M, N, generator=generator).double()
    return mvgp.ObservedMatrix.from_mask(noisy, torch.rand(M, N, generator=generator) < share, **options)


def make_links(seed=0, per_row=6):
    cols = make_truth(seed).topk(per_row, 1).indices
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
