"""The loss of the data under a likelihood, as a function of psi less the prior mean: what the mean has to fit.

A likelihood of ours has a method ``data_loss`` (:class:`~mvgp.likelihoods.RankingLikelihood`); gpytorch's
``GaussianLikelihood``, which has none, is served by :func:`gaussian_loss`.
"""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from torch import Tensor

from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..priors.means import MatrixMean, ZeroMean
from .losses import BiasedSquaredLoss, Loss, SquaredLoss
from .whole_lists import WholeListSquaredLoss

Data = ObservedMatrix | PositiveUnlabelled
GAUSSIAN_METHODS = ("forward", "marginal", "expected_log_prob", "log_marginal", "_shaped_noise_covar", "__call__")


def data_loss(
    likelihood: Any, data: Data, mean: MatrixMean, *, row_bias: float | None = None, col_bias: float | None = None
) -> Loss:
    """The loss of psi less the prior mean at the observed pairs, whatever else is in it optimised out.

    :param likelihood: gpytorch's ``GaussianLikelihood``, or one with a method ``data_loss``.
    :param mean: of the prior; the loss has its precision and device.
    :param row_bias: penalty of a bias of each row, Gaussian only; None for no bias.
    :param col_bias: penalty of a bias of each column, Gaussian only; None for no bias.
    """
    is_gaussian = isinstance(likelihood, GaussianLikelihood | FixedNoiseGaussianLikelihood)
    if (row_bias, col_bias) != (None, None) and not (is_gaussian and isinstance(data, ObservedMatrix)):
        raise InputError(
            "row_bias, col_bias: only with a Gaussian likelihood on an ObservedMatrix; a ranking is blind to an offset "
            "of a whole row, and popularity of columns can be given as the prior mean"
        )
    if is_gaussian:
        return gaussian_loss(data, mean, row_bias, col_bias)
    loss: Loss = likelihood.data_loss(data, mean)
    return loss


def gaussian_loss(data: Data, mean: MatrixMean, row_bias: float | None, col_bias: float | None) -> Loss:
    """The squared loss; on whole lists the targets are 1 for known links and 0 for the rest."""
    if isinstance(data, PositiveUnlabelled):
        return WholeListSquaredLoss(data.positions.to(mean.zero.device), data.weight, whole_list_offset(data, mean))
    rows, cols, values, weights = observed_parts(data, mean)
    targets = values - mean(rows, cols)
    if row_bias is None and col_bias is None:
        return SquaredLoss(targets, weights)
    return BiasedSquaredLoss(targets, weights, rows, cols, data.shape, row_bias, col_bias)


def observed_parts(data: ObservedMatrix, mean: MatrixMean) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Rows, columns, values and weights, (T,) each, in the precision and on the device of the prior."""
    device = mean.zero.device
    weights = None if data.weights is None else data.weights.to(mean.zero)
    return data.rows.to(device), data.cols.to(device), data.values.to(mean.zero), weights


def whole_list_offset(data: PositiveUnlabelled, mean: MatrixMean) -> Tensor | None:
    """(A N,) the prior mean at every cell of the lists; None for 0."""
    if isinstance(mean, ZeroMean):
        return None
    device = mean.zero.device
    chosen, cols = data.pattern.chosen.to(device), torch.arange(data.shape[1], device=device)
    block = mean.block(chosen, cols).to(mean.zero.dtype)
    return block.expand(len(chosen), len(cols)).reshape(-1).contiguous()


def overridden(instance: Any, base: type, *names: str) -> list[str]:
    """Those of the methods ``names`` that ``instance`` does not take from ``base``, in the order of the names."""
    own = vars(instance) if hasattr(instance, "__dict__") else {}
    return [name for name in names if name in own or getattr(type(instance), name, None) is not getattr(base, name)]


def most_derived(instance: Any, *names: str) -> str:
    """The attribute among ``names`` that is defined furthest down among the classes; the first of equals."""
    own = vars(instance) if hasattr(instance, "__dict__") else {}
    for members in (own, *(vars(cls) for cls in type(instance).__mro__)):
        for name in names:
            if name in members:
                return name
    return names[0]


def check_gaussian(likelihood: Any, user: str) -> None:
    """Refuse everything but Gaussian noise of one variance, read from ``likelihood.noise``.

    :param user: for the message: who uses the likelihood.
    """
    if not isinstance(likelihood, GaussianLikelihood):
        raise InputError(
            f"likelihood: expected gpytorch's GaussianLikelihood, got {type(likelihood).__name__} "
            "(for known noise of each entry, give the data weights)"
        )
    changed = overridden(likelihood, GaussianLikelihood, *GAUSSIAN_METHODS)
    noise_model = type(likelihood.noise_covar)
    if changed or noise_model is not HomoskedasticNoise:
        reason = f"overrides {', '.join(changed)}" if changed else f"has the noise model {noise_model.__name__}"
        raise InputError(
            f"likelihood: {user} uses one noise variance, likelihood.noise, and nothing else of a GaussianLikelihood; "
            f"{type(likelihood).__name__} {reason}, which would be ignored. Override the property noise, or give the "
            "data weights for noise that differs between entries"
        )
