r"""What a loss is: a convex function of psi (less the prior mean) at the observed pairs, and its value at one psi.

A loss of one's own inherits :class:`Loss`, says how curved it is, and returns a :class:`ConvexValue`: value and
gradient are enough for a certificate. Its conjugate :math:`f^*` is convex along the ray through the gradient theta. It
is :math:`\langle\theta, \psi\rangle - f(\psi)` at theta and :math:`-\inf f` at 0, so the chord between them is a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from typing_extensions import override

from ..tensor_checks import check_float_tensor

PIECE = 1 << 16  # entries summed at a time


def check_psi(psi: Tensor, length: int | None, name: str = "psi") -> Tensor:
    """(T,) finite numbers at the observed pairs."""
    return check_float_tensor(psi, name, (length,), finite=True)


def long_dot(a: Tensor, b: Tensor) -> float:
    """<a, b> in double precision, in pieces that stay in cache."""
    return sum(float(x.double() @ y.double()) for x, y in zip(a.split(PIECE), b.split(PIECE), strict=True))


@dataclass(frozen=True)
class LossValue:
    """A loss at one psi; the conjugate is quadratic along the ray through theta, as that of a squared distance.

    :param value: f(psi).
    :param gradient: (T,) theta.
    :param linear: <theta, r(psi)>, the part of f*(c theta) that is linear in c.
    :param quadratic: twice the part that is quadratic in c: sum theta^2 / w, and what a penalised bias adds.
    """

    value: float
    gradient: Tensor
    linear: float = float("nan")
    quadratic: float = float("nan")

    def conjugate(self, scale: float) -> float:
        """f*(scale theta), for scale in [0, 1]; at least that where it is not known exactly."""
        return scale**2 / 2 * self.quadratic + scale * self.linear

    def conjugate_bound(self, scale: float) -> float:
        """At least f*(scale theta), and cheap: what the best scale is searched with."""
        return self.conjugate(scale)


@dataclass(frozen=True)
class ConvexValue(LossValue):
    """Any convex loss at one psi.

    :param value: f(psi).
    :param gradient: (T,) theta.
    :param psi: (T,).
    :param lowest: a number that f is never below; minus infinity if there is none.
    :param exact: f*, a function of (T,) numbers, if it is known: the certificate is sharper by it.
    """

    psi: Tensor | None = None
    lowest: float = 0.0
    exact: Callable[[Tensor], float] | None = None

    @override
    def conjugate(self, scale: float) -> float:
        """f*(scale theta) if f* is known, or the bound."""
        if scale == 1.0 or self.exact is None:
            return self.conjugate_bound(scale)
        return self.exact(scale * self.gradient)

    @override
    def conjugate_bound(self, scale: float) -> float:
        """The chord between f* at 0 and at theta."""
        assert self.psi is not None
        at_theta = long_dot(self.gradient, self.psi) - self.value
        return at_theta if scale == 1.0 else scale * at_theta - (1 - scale) * self.lowest


class Loss(Protocol):
    r"""A convex differentiable function of psi at the T observed pairs.

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import ConvexValue, Loss
        >>> class HuberLoss(Loss):
        ...     curvature = 1.0
        ...     def __init__(self, targets):
        ...         self.targets = targets
        ...     def __call__(self, psi):
        ...         off = psi - self.targets
        ...         value = torch.where(off.abs() < 1, off.square() / 2, off.abs() - 0.5).sum()
        ...         return ConvexValue(float(value), off.clamp(-1, 1), psi=psi)
        >>> HuberLoss(torch.zeros(2))(torch.tensor([0.5, 3.0])).value
        2.625

    """

    @property
    def curvature(self) -> float:
        """Lipschitz constant of the gradient: the largest second derivative along any direction of length 1."""
        ...

    def quadratic_bound(self, step: Tensor) -> float:
        """A bound on the second derivative along ``step`` (T,), times its squared length: sum of w step^2."""
        return self.curvature * long_dot(step, step)

    def __call__(self, psi: Tensor) -> LossValue:
        """Value, gradient and conjugate at ``psi`` (T,)."""
        ...
