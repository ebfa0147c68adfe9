"""The plain posterior of a matrix-variate GP under Gaussian noise."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..data import ObservedMatrix, PositiveUnlabelled
from ..errors import InputError
from ..linalg import Evidence, PairIndex
from ..linalg.solvers import Method
from ..priors import MatrixGP
from ..solvers import Certificate
from ..solvers.losses import long_dot
from .coefficients import SparseCoefficients
from .conditional import ConditionalCovariance
from .scalable import ScalablePosterior
from .whole_list_covariance import WholeListCovariance

MOST_CELLS = 2_000_000  # of whole lists that are conditioned on as a list of observations


class FullPosterior(ScalablePosterior):
    r"""The exact posterior, equations (2) and (3).

    .. math:: \psi = b + K_{*T} (K_{TT} + D)^{-1} (r - b_T), \qquad S = K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}

    :param evidence: how well the linear system of the mean was solved; None for a ranking, which has a certificate.
    :param certificate: of a ranking: how far its mean is from the optimum; None otherwise.
    :param evidence_scale: see :mod:`~mvgp.posteriors.scalable`.
    """

    def __init__(
        self,
        *parts: Any,
        evidence: Evidence | None = None,
        certificate: Certificate | None = None,
        evidence_scale: float | None = None,
    ) -> None:
        super().__init__(*parts)
        self._evidence_scale = evidence_scale
        self.evidence, self.certificate = evidence, certificate


Operators = tuple[LinearOperator, LinearOperator]


def kernel_operators(prior: MatrixGP, data: ObservedMatrix | PositiveUnlabelled) -> Operators:
    """(K_M, K_N) of a prior that fits the data."""
    if data.shape != prior.shape:
        raise InputError(f"data: expected shape {prior.shape} as in the prior, got {data.shape}")
    return prior.row_axis.covariance().detach(), prior.col_axis.covariance().detach()


def condition(
    prior: MatrixGP,
    data: ObservedMatrix,
    noise: Tensor,
    *,
    tolerance: float,
    method: Method = "auto",
    max_iterations: int = 1000,
    ops: Operators | None = None,
    strict: bool = True,
) -> ConditionalCovariance:
    """The covariance of a posterior; its solver is made when it is first needed.

    :param noise: () noise variance of an observation with weight 1.
    :param ops: (K_M, K_N), if they are there already.
    """
    ops = ops or kernel_operators(prior, data)
    device = ops[0].device
    pairs = PairIndex(data.rows.to(device), data.cols.to(device), data.shape)
    each = noise if data.weights is None else noise / data.weights.to(dtype=prior.dtype, device=device)
    return ConditionalCovariance(
        ops, pairs, each, tolerance=tolerance, method=method, max_iterations=max_iterations, strict=strict
    )


def whole_list_condition(
    ops: Operators, data: PositiveUnlabelled, noise: Tensor, *, tolerance: float
) -> ConditionalCovariance | WholeListCovariance:
    """The same for whole lists: every cell of the listed rows, noise divided by its weight."""
    if data.num_cells > MOST_CELLS:
        return WholeListCovariance(ops, data, noise, tolerance=tolerance)
    device = ops[0].device
    pattern = data.pattern.to(device)
    weights = torch.full((data.num_cells,), data.weight, dtype=ops[0].dtype, device=device)
    weights[data.positions.to(device)] = 1.0
    pairs = PairIndex(pattern.rows, pattern.cols, data.shape)
    return ConditionalCovariance(ops, pairs, noise / weights, tolerance=tolerance, method="auto", max_iterations=1000)


@torch.no_grad()
def full_posterior(
    prior: MatrixGP,
    data: ObservedMatrix,
    noise: Tensor,
    *,
    tolerance: float,
    method: Method,
    max_iterations: int,
    strict: bool,
) -> FullPosterior:
    r"""Equations (2) and (3): :math:`\psi = b + K_{*T} \alpha`, :math:`(K_{TT} + D) \alpha = r - b_T`."""
    prior = prior.snapshot()
    conditional = condition(
        prior, data, noise, tolerance=tolerance, method=method, max_iterations=max_iterations, strict=strict
    )
    values = data.values.to(dtype=prior.dtype, device=conditional.pairs.rows.device)
    target = values - prior.mean_module(conditional.pairs.rows, conditional.pairs.cols)
    solution = conditional.solver.solve(target.unsqueeze(1), tolerance).checked(strict=strict)
    alpha = solution.value.squeeze(1)
    posterior = FullPosterior(
        prior,
        conditional.ops,
        SparseCoefficients(data.pattern.to(target.device), alpha),
        conditional,
        evidence=solution.evidence,
        evidence_scale=long_dot(target, alpha) / max(len(alpha), 1),
    )
    posterior._noise = float(noise)
    return posterior
