"""Small priors and data that the contracts are tried on."""

import gpytorch
import torch

import mvgp
from mvgp.kernels import DiffusionKernel, Graph


def noise(value):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(value, dtype=torch.float64)
    return likelihood


def prior(dtype=torch.float64):
    rows = DiffusionKernel(Graph([(0, 1), (1, 2), (2, 3)], 5), time=1.0, shift=0.3)  # one node alone
    cols = DiffusionKernel(Graph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], 6), time=0.5, shift=0.5)
    return mvgp.MatrixGP(rows, cols, dtype=dtype)


ROWS, COLS = [0, 0, 1, 1, 2, 2, 3, 3, 3], [0, 3, 1, 4, 2, 0, 5, 1, 2]


def data():
    values = [1.0, -0.5, 0.8, -1.2, 2.0, 0.3, -0.7, 0.4, 1.1]
    return mvgp.ObservedMatrix(ROWS, COLS, values, shape=(5, 6), weights=[1.0, 2.0, 1.0, 0.5, 1.0, 1.0, 3.0, 1.0, 1.0])


def labels():
    return mvgp.ObservedMatrix(ROWS, COLS, [1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, -1.0], shape=(5, 6))


def links():
    return mvgp.PositiveUnlabelled([0, 1, 2, 3], [0, 1, 3, 4], shape=(5, 6), weight=0.1)
