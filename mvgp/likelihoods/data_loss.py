"""The loss of the data given a likelihood: what the mean has to fit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from torch import Tensor

from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..priors.matrix_gp import MatrixGP
from ..priors.means import ZeroMean
from .losses import BiasedSquaredLoss, Loss, RetargetedLoss, SquaredLoss
from .ranking import BipartiteRankingLikelihood, GradedRankingLikelihood, RankingLikelihood, most_derived, overridden
from .targets import OrderCone
from .whole_lists import WholeListRankingLoss, WholeListRetargetedLoss, WholeListSquaredLoss

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
        retarget = model_retargeting(likelihood, values, rows, weights)
        return RetargetedLoss(_shifted(retarget, offset), weights)
    if row_bias is None and col_bias is None:
        return SquaredLoss(values - offset, weights)
    return BiasedSquaredLoss(values - offset, weights, rows, cols, data.shape, row_bias, col_bias)


def _shifted(retarget: Callable[[Tensor], Tensor], offset: Tensor) -> Callable[[Tensor], Tensor]:
    """Retargeting of psi + offset, as psi sees it."""
    if not bool((offset != 0).any()):
        return retarget
    return lambda psi: retarget(psi + offset) - offset


def _whole_list_loss(prior: MatrixGP, data: PositiveUnlabelled, likelihood: Likelihood, device: torch.device) -> Loss:
    positions = data.positions.to(device)
    offset: Tensor | None = None
    if not isinstance(prior.mean_module, ZeroMean):
        chosen, cols = data.pattern.chosen.to(device), torch.arange(data.shape[1], device=device)
        block = prior.mean_module.block(chosen, cols).to(prior.dtype)
        offset = block.expand(len(chosen), len(cols)).reshape(-1).contiguous()
    if isinstance(likelihood, GaussianLikelihood):
        return WholeListSquaredLoss(positions, data.weight, offset)
    if not isinstance(likelihood, RankingLikelihood):
        raise InputError(f"likelihood: expected a ranking likelihood, got {type(likelihood).__name__}")
    if has_closed_form(likelihood):
        target = likelihood.target
        assert isinstance(target, OrderCone)
        return WholeListRankingLoss(positions, data.shape[1], data.weight, target.margin, offset)

    def retargeting_of(positive: Tensor, task: Tensor, weight: Tensor | None) -> Callable[[Tensor], Tensor]:
        label, other = likelihood.binary_labels
        labels = torch.where(positive, label, other).to(prior.dtype)
        return model_retargeting(likelihood, labels, task, weight)

    return WholeListRetargetedLoss(positions, data.shape[1], data.num_cells, data.weight, retargeting_of, offset)


def model_retargeting(
    likelihood: RankingLikelihood, labels: Tensor, task: Tensor, weight: Tensor | None
) -> Callable[[Tensor], Tensor]:
    """The map psi (T,) -> r (T,) that a fit uses: ``retargeting``, or ``retarget`` where that is what a user overrides.

    A fit minimises equation (9), whose targets these two give. A likelihood with a ``loss`` of its own is refused,
    since there would be no certificate for it.
    """
    if overridden(likelihood, RankingLikelihood, "loss"):
        raise InputError(
            f"likelihood: {type(likelihood).__name__} overrides loss, which a fit would ignore: it minimises equation "
            "(9) with the targets of retargeting. Override retargeting, retarget or lists, or give a target set"
        )
    if most_derived(likelihood, "retargeting", "retarget") == "retarget":
        return lambda psi: likelihood.retarget(psi, labels, task, weight)
    return likelihood.retargeting(labels, task, weight)


def has_closed_form(likelihood: RankingLikelihood) -> bool:
    """Whether the order cone's threshold search over whole lists is what the likelihood's own methods would give."""
    target = likelihood.target
    if not isinstance(target, OrderCone) or overridden(target, OrderCone, "projection"):
        return False
    own = [
        name
        for base in (BipartiteRankingLikelihood, GradedRankingLikelihood)
        if isinstance(likelihood, base)
        for name in overridden(likelihood, base, "lists", "retargeting", "retarget", "loss")
    ]
    return not own and isinstance(likelihood, BipartiteRankingLikelihood | GradedRankingLikelihood)
