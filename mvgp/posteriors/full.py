"""The plain posterior of a matrix-variate GP under Gaussian noise."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from ..data import ObservedMatrix
from ..errors import InputError
from ..linalg import PairIndex
from ..linalg.solvers import Method, make_solver
from ..priors import MatrixGP
from .coefficients import SparseCoefficients
from .conditional import ConditionalCovariance
from .gaussian import GaussianPosterior


def condition(
    prior: MatrixGP, data: ObservedMatrix, noise: Tensor, *, tolerance: float, method: Method, max_iterations: int
) -> ConditionalCovariance:
    """The covariance of the posterior, with the solver that the mean needs too.

    :param noise: () noise variance of an observation with weight 1.
    """
    if data.shape != prior.shape:
        raise InputError(f"data: expected shape {prior.shape} as in the prior, got {data.shape}")
    ops = (prior.row_axis.covariance().detach(), prior.col_axis.covariance().detach())
    device = ops[0].device
    pairs = PairIndex(data.rows.to(device), data.cols.to(device), data.shape)
    each = noise if data.weights is None else noise / data.weights.to(dtype=prior.dtype, device=device)
    solver = make_solver(*ops, pairs, each, method=method, max_iterations=max_iterations)
    return ConditionalCovariance(ops, pairs, each, solver, tolerance)


@torch.no_grad()
def full_posterior(
    prior: MatrixGP, data: ObservedMatrix, noise: Tensor, *, tolerance: float, method: Method, max_iterations: int
) -> GaussianPosterior:
    r"""Equations (2) and (3): :math:`\psi = b + K_{*T} \alpha`, :math:`(K_{TT} + D) \alpha = r - b_T`."""
    prior = copy.deepcopy(prior)
    conditional = condition(prior, data, noise, tolerance=tolerance, method=method, max_iterations=max_iterations)
    values = data.values.to(dtype=prior.dtype, device=conditional.pairs.rows.device)
    target = values - prior.mean_module(conditional.pairs.rows, conditional.pairs.cols)
    solution = conditional.solver.solve(target.unsqueeze(1), tolerance).checked()
    coefficients = SparseCoefficients(data.pattern.to(target.device), solution.value.squeeze(1))
    return GaussianPosterior(prior, conditional.ops, coefficients, conditional, solution.evidence)
