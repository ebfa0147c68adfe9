r"""Losses on the observed pairs.

Every loss here is :math:`f(\psi) = \tfrac12 \sum_t w_t (\psi_t - r_t(\psi))^2 + \text{extra}`: a squared distance
to targets that may themselves depend on :math:`\psi`, because something (a bias, a ranking) has been
optimised out. Its gradient is :math:`\theta = w (\psi - r(\psi))`, and :math:`w`-Lipschitz.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from ..checks import check_float_tensor, refuse_where

PIECE = 1 << 16  # entries summed at a time


@dataclass(frozen=True)
class LossValue:
    """A loss at one psi.

    :param value: f(psi).
    :param gradient: (T,) theta.
    :param linear: <theta, r(psi)>, the part of f*(c theta) that is linear in c.
    :param quadratic: twice the part that is quadratic in c: sum theta^2 / w, and what a penalised bias adds.
    """

    value: float
    gradient: Tensor
    linear: float
    quadratic: float

    def conjugate(self, scale: float) -> float:
        """f*(scale theta), for scale in [0, 1]."""
        return scale**2 / 2 * self.quadratic + scale * self.linear


class Loss(Protocol):
    """A convex differentiable function of psi at the T observed pairs."""

    @property
    def curvature(self) -> float:
        """Lipschitz constant of the gradient: the largest weight."""
        ...

    def bend(self, step: Tensor) -> float:
        """A bound on the second derivative along ``step`` (T,): sum of w step^2."""
        ...

    def __call__(self, psi: Tensor) -> LossValue:
        """Value, gradient and conjugate at ``psi`` (T,)."""
        ...


def check_loss_weights(weights: Tensor | None, length: int | None = None) -> Tensor | None:
    """(T,) finite and positive, as they are, or None for 1."""
    if weights is not None:
        check_float_tensor(weights, "weights", (length,), finite=True)
        refuse_where(weights <= 0, weights, "weights", "a positive number")
    return weights


def check_psi(psi: Tensor, length: int | None, name: str = "psi") -> Tensor:
    """(T,) finite numbers at the observed pairs."""
    return check_float_tensor(psi, name, (length,), finite=True)


def weighted_square(step: Tensor, weights: Tensor | None) -> float:
    """Sum of w step^2, in double precision."""
    check_psi(step, None if weights is None else len(weights), "step")
    return long_dot(step, step if weights is None else weights * step)


def long_dot(a: Tensor, b: Tensor) -> float:
    """<a, b> in double precision, in pieces that stay in cache."""
    return sum(float(x.double() @ y.double()) for x, y in zip(a.split(PIECE), b.split(PIECE), strict=True))


class SquaredLoss:
    r""":math:`f(\psi) = \tfrac12 \sum_t w_t (\psi_t - r_t)^2`.

    :param targets: (T,) r.
    :param weights: (T,) w, or None for 1.
    """

    def __init__(self, targets: Tensor, weights: Tensor | None = None) -> None:
        self.targets = check_float_tensor(targets, "targets", (None,), finite=True)
        self.weights = check_loss_weights(weights, len(targets))

    @property
    def curvature(self) -> float:
        """See :class:`Loss`."""
        return 1.0 if self.weights is None else float(self.weights.max())

    def bend(self, step: Tensor) -> float:
        """See :class:`Loss`."""
        check_psi(step, len(self.targets), "step")
        return weighted_square(step, self.weights)

    def __call__(self, psi: Tensor) -> LossValue:
        """See :class:`Loss`."""
        off = check_psi(psi, len(self.targets)) - self.targets
        gradient = off if self.weights is None else self.weights * off
        square = float((gradient.double() * off.double()).sum())
        return LossValue(square / 2, gradient, float((gradient.double() * self.targets.double()).sum()), square)


class SingleLoss:
    """A loss of double precision behind a face of single precision.

    :param loss: takes and gives double precision.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    @property
    def curvature(self) -> float:
        """See :class:`Loss`."""
        return self.loss.curvature

    def bend(self, step: Tensor) -> float:
        """See :class:`Loss`."""
        return self.loss.bend(step.double())

    def __call__(self, psi: Tensor) -> LossValue:
        """See :class:`Loss`."""
        found = self.loss(psi.double())
        return replace(found, gradient=found.gradient.float())
