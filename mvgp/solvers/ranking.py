r"""The loss of a ranking with its targets optimised out: half the squared distance to a set, equation (9).

.. math:: f(\psi) = \min_{r \in C} \tfrac12 \sum_t w_t (\psi_t - r_t)^2

It is convex and smooth; by the envelope theorem its gradient is that of the squared loss at the nearest r.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import InputError
from .losses import LossValue, weighted_square


class RetargetedLoss:
    r"""Equation (9) for any closed convex set, known by its projection.

    Its conjugate is half of :math:`\sum \theta^2 / w` plus the support function of the set, which at
    :math:`\theta = w (\psi - r(\psi))` is :math:`\langle\theta, r\rangle`, and linear along the ray through theta;
    so the certificate (11) holds as for the squared loss.

    :param retarget: psi (T,) -> r (T,), the projection onto the set in the norm with these weights; not differentiated.
    :param weights: (T,) w, or None for 1.

    Example:
        >>> import torch
        >>> from mvgp.solvers.ranking import RetargetedLoss
        >>> loss = RetargetedLoss(lambda psi: psi.clamp(min=1.0))  # the set of numbers from 1 on
        >>> loss(torch.tensor([0.0, 3.0])).value
        0.5

    """

    def __init__(self, retarget: Callable[[Tensor], Tensor], weights: Tensor | None = None) -> None:
        self.retarget, self.weights = retarget, weights

    @property
    def curvature(self) -> float:
        """See :class:`~mvgp.solvers.losses.Loss`."""
        return 1.0 if self.weights is None else float(self.weights.max())

    def bend(self, step: Tensor) -> float:
        """See :class:`~mvgp.solvers.losses.Loss`."""
        return weighted_square(step, self.weights)

    def targets(self, psi: Tensor) -> Tensor:
        """(T,) r(psi), equation (8)."""
        return checked_targets(self.retarget, psi)

    def __call__(self, psi: Tensor) -> LossValue:
        """See :class:`~mvgp.solvers.losses.Loss`."""
        targets = self.targets(psi)
        off = psi - targets
        gradient = off if self.weights is None else self.weights * off
        square = float((gradient.double() * off.double()).sum())
        linear = float((gradient.double() * targets.double()).sum())
        return LossValue(square / 2, gradient, linear, square)


def checked_targets(retarget: Callable[[Tensor], Tensor], psi: Tensor) -> Tensor:
    """(T,) r(psi) from a user's own projection, refused unless it is as many finite numbers as psi has."""
    found = retarget(psi.detach())
    if not isinstance(found, Tensor) or found.shape != psi.shape or not found.is_floating_point():
        got = f"{found.dtype} of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise InputError(f"retarget: expected targets of {psi.dtype} and shape {tuple(psi.shape)}, got {got}")
    bad = ~torch.isfinite(found)
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        raise InputError(f"retarget: expected finite targets, got {found[at].item()} for score {psi[at].item()}")
    return found.to(psi.dtype)
