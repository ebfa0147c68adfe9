r"""The loss of a ranking with its targets optimised out: half the squared distance to a set, equation (9).

.. math:: f(\psi) = \min_{r \in C} \tfrac12 \sum_t w_t (\psi_t - r_t)^2

It is convex and smooth; by the envelope theorem its gradient is that of the squared loss at the nearest r.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..checks import check_callable
from ..likelihoods.checks import check_targets
from .losses import LossValue, check_loss_weights, check_psi, weighted_square


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
        self.retarget = check_callable(retarget, "retarget", "a function psi (T,) -> r (T,)")
        self.weights = check_loss_weights(weights)

    @property
    def curvature(self) -> float:
        """See :class:`~mvgp.solvers.losses.Loss`."""
        return 1.0 if self.weights is None else float(self.weights.max())

    def bend(self, step: Tensor) -> float:
        """See :class:`~mvgp.solvers.losses.Loss`."""
        return weighted_square(step, self.weights)

    def targets(self, psi: Tensor) -> Tensor:
        """(T,) r(psi), equation (8)."""
        check_psi(psi, None if self.weights is None else len(self.weights))
        return check_targets(self.retarget(psi.detach()), psi)

    def __call__(self, psi: Tensor) -> LossValue:
        """See :class:`~mvgp.solvers.losses.Loss`."""
        targets = self.targets(psi)
        off = psi - targets
        gradient = off if self.weights is None else self.weights * off
        square = float((gradient.double() * off.double()).sum())
        linear = float((gradient.double() * targets.double()).sum())
        return LossValue(square / 2, gradient, linear, square)
