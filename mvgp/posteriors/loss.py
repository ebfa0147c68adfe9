"""The loss of the data given a likelihood: what the mean has to fit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from torch import Tensor

from ..data import ObservedMatrix, PositiveUnlabelled
from ..errors import InputError
from ..likelihoods import OrderCone, RankingLikelihood
from ..priors import MatrixGP, ZeroMean
from ..solvers import BiasedSquaredLoss, Loss, RetargetedLoss, SquaredLoss
from ..solvers.whole_list import WholeListRankingLoss, WholeListSquaredLoss

Data = ObservedMatrix | PositiveUnlabelled


def make_loss(
    prior: MatrixGP,
    data: Data,
    likelihood: Likelihood,
    device: torch.device,
    *,
    row_bias: float | None = None,
    col_bias: float | None = None,
) -> Loss:
    """The loss of psi minus the prior mean at the observed pairs, whatever else is in it optimised out.

    A Gaussian likelihood gives the squared loss; a ranking likelihood equation (9), each row a task.

    :param device: that of the kernels.
    """
    ranking = isinstance(likelihood, RankingLikelihood)
    if (row_bias, col_bias) != (None, None) and (ranking or isinstance(data, PositiveUnlabelled)):
        raise InputError(
            "row_bias, col_bias: only with a Gaussian likelihood on an ObservedMatrix; a ranking is blind to an offset "
            "of a whole row, and popularity of columns can be given as the prior mean"
        )
    if isinstance(data, PositiveUnlabelled):
        return _whole_list_loss(prior, data, likelihood, device)
    rows, cols = data.rows.to(device), data.cols.to(device)
    values = data.values.to(dtype=prior.dtype, device=device)
    weights = None if data.weights is None else data.weights.to(values)
    offset = prior.mean_module(rows, cols)
    if isinstance(likelihood, RankingLikelihood):
        retarget = likelihood.retargeting(values, rows, weights)
        return RetargetedLoss(_shifted(retarget, offset), weights)
    if row_bias is None and col_bias is None:
        return SquaredLoss(values - offset, weights)
    return BiasedSquaredLoss(values - offset, weights, rows, cols, data.shape, row_bias, col_bias)


def _shifted(retarget: Callable[[Tensor], Tensor], offset: Tensor) -> Callable[[Tensor], Tensor]:
    """Retargeting of psi + offset, as psi sees it."""
    if not bool((offset != 0).any()):
        return retarget
    return lambda psi: retarget(psi + offset) - offset


def _whole_list_loss(
    prior: MatrixGP, data: PositiveUnlabelled, likelihood: Likelihood, device: torch.device
) -> WholeListRankingLoss | WholeListSquaredLoss:
    positions = data.positions.to(device)
    offset: Tensor | None = None
    if not isinstance(prior.mean_module, ZeroMean):
        chosen, cols = data.pattern.chosen.to(device), torch.arange(data.shape[1], device=device)
        block = prior.mean_module.block(chosen, cols).to(prior.dtype)
        offset = block.expand(len(chosen), len(cols)).reshape(-1).contiguous()
    if isinstance(likelihood, GaussianLikelihood):
        return WholeListSquaredLoss(positions, data.weight, offset)
    target = likelihood.target if isinstance(likelihood, RankingLikelihood) else None
    if not isinstance(target, OrderCone):
        raise InputError(f"a whole list takes the target set OrderCone, got {type(target).__name__}")
    return WholeListRankingLoss(positions, data.shape[1], data.weight, target.margin, offset)
