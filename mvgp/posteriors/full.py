"""The plain posterior of a matrix-variate GP under Gaussian noise."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from ..data import ObservedMatrix
from ..errors import InputError
from ..linalg import Evidence, PairIndex
from ..linalg.solvers import Method
from ..priors import MatrixGP
from .coefficients import SparseCoefficients
from .conditional import ConditionalCovariance
from .gaussian import GaussianPosterior


class FullPosterior(GaussianPosterior):
    """The exact posterior, equations (2) and (3).

    :param evidence: how well the linear system of the mean was solved.
    """

    conditional: ConditionalCovariance

    def __init__(self, *parts: Any, evidence: Evidence) -> None:
        super().__init__(*parts)
        self.evidence = evidence


def condition(
    prior: MatrixGP,
    data: ObservedMatrix,
    noise: Tensor,
    *,
    tolerance: float,
    method: Method = "auto",
    max_iterations: int = 1000,
) -> ConditionalCovariance:
    """The covariance of a posterior; its solver is made when it is first needed.

    :param noise: () noise variance of an observation with weight 1.
    """
    if data.shape != prior.shape:
        raise InputError(f"data: expected shape {prior.shape} as in the prior, got {data.shape}")
    ops = (prior.row_axis.covariance().detach(), prior.col_axis.covariance().detach())
    device = ops[0].device
    pairs = PairIndex(data.rows.to(device), data.cols.to(device), data.shape)
    each = noise if data.weights is None else noise / data.weights.to(dtype=prior.dtype, device=device)
    return ConditionalCovariance(ops, pairs, each, tolerance=tolerance, method=method, max_iterations=max_iterations)


@torch.no_grad()
def full_posterior(
    prior: MatrixGP, data: ObservedMatrix, noise: Tensor, *, tolerance: float, method: Method, max_iterations: int
) -> FullPosterior:
    r"""Equations (2) and (3): :math:`\psi = b + K_{*T} \alpha`, :math:`(K_{TT} + D) \alpha = r - b_T`."""
    prior = copy.deepcopy(prior)
    conditional = condition(prior, data, noise, tolerance=tolerance, method=method, max_iterations=max_iterations)
    values = data.values.to(dtype=prior.dtype, device=conditional.pairs.rows.device)
    target = values - prior.mean_module(conditional.pairs.rows, conditional.pairs.cols)
    solution = conditional.solver.solve(target.unsqueeze(1), tolerance).checked()
    coefficients = SparseCoefficients(data.pattern.to(target.device), solution.value.squeeze(1))
    return FullPosterior(prior, conditional.ops, coefficients, conditional, evidence=solution.evidence)
