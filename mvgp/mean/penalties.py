"""Penalties on the singular values of B: the spectral elastic net, and the trace-norm ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..checks import check_not_negative, check_positive, check_share
from ..tensor_checks import check_float_tensor


class Penalty(Protocol):
    """h(B), a function of the singular values of B alone."""

    def shrink(self, values: Tensor, step: float) -> Tensor:
        """(R,): the singular values of argmin_X 1/2 ||X - B||_F^2 + step h(X), from those of B, descending."""
        ...

    def value(self, values: Tensor) -> float:
        """h(B) from the singular values of B."""
        ...

    def conjugate(self, values: Tensor, scale: float) -> float:
        """h*(scale Y) = sup_B <scale Y, B> - h(B), from the singular values of Y."""
        ...

    @property
    def ridge(self) -> float:
        """Weight l2 of 1/2 ||B||_F^2."""
        ...


@dataclass(frozen=True)
class SpectralElasticNet:
    r"""Equation (5): :math:`h(B) = \tfrac{\lambda(1 - \alpha)}{2} \|B\|_F^2 + \lambda\alpha \|B\|_*`.

    :param lam: overall strength, at least 0.
    :param alpha: share of the trace norm, from 0 (Hilbert norm only) to 1 (trace norm only).

    Example:
        >>> from mvgp import SpectralElasticNet
        >>> SpectralElasticNet.from_noise(noise=0.5, mu=3.0)
        SpectralElasticNet(lam=2.0, alpha=0.75)

    """

    lam: float
    alpha: float

    def __post_init__(self) -> None:
        check_not_negative(self.lam, "lam")
        check_share(self.alpha, "alpha")

    @classmethod
    def from_noise(cls, noise: float, mu: float) -> SpectralElasticNet:
        """From the form (4): noise variance and multiplier mu of the trace norm."""
        noise, mu = check_positive(noise, "noise"), check_not_negative(mu, "mu")
        return cls(noise * (1 + mu), mu / (1 + mu))

    @property
    def noise(self) -> float:
        """The noise variance lam (1 - alpha) that form (4) would have; 0 for alpha = 1."""
        return self.lam * (1 - self.alpha)

    @property
    def mu(self) -> float:
        """The multiplier alpha / (1 - alpha) of form (4); infinite for alpha = 1."""
        return self.alpha / (1 - self.alpha) if self.alpha < 1 else float("inf")

    @property
    def trace(self) -> float:
        """Weight l1 of the trace norm."""
        return self.lam * self.alpha

    @property
    def ridge(self) -> float:
        """Weight l2 of 1/2 ||B||_F^2."""
        return self.lam * (1 - self.alpha)

    def shrink(self, values: Tensor, step: float) -> Tensor:
        """(s - step l1)_+ / (1 + step l2)"""
        values, step = _spectrum(values), check_not_negative(step, "step")
        return (values - step * self.trace).clamp_min(0) / (1 + step * self.ridge)

    def value(self, values: Tensor) -> float:
        """l1 sum s + l2 / 2 sum s^2"""
        values = _spectrum(values)
        return float(self.trace * values.sum() + self.ridge / 2 * values.square().sum())

    def conjugate(self, values: Tensor, scale: float) -> float:
        """Sum of (y - l1)_+^2 / (2 l2); for l2 = 0 it is 0 or infinite."""
        values, scale = _spectrum(values), check_not_negative(scale, "scale")
        over = (scale * values - self.trace).clamp_min(0)
        if self.ridge > 0:
            return float(over.square().sum() / (2 * self.ridge))
        return 0.0 if not bool((over > 1e-12 * self.trace).any()) else float("inf")


@dataclass(frozen=True)
class TraceBall:
    r"""Equation (6): :math:`h(B) = \tfrac{\text{ridge}}{2} \|B\|_F^2` where :math:`\|B\|_* \le \text{radius}`.

    Outside the ball it is infinite.

    :param radius: bound C on the trace norm, at least 0.
    :param ridge: weight of the Hilbert norm, at least 0; the noise variance in form (4).
    """

    radius: float
    ridge: float = 0.0

    def __post_init__(self) -> None:
        check_not_negative(self.radius, "radius")
        check_not_negative(self.ridge, "ridge")

    def _threshold(self, values: Tensor, total: float) -> float:
        """Tau >= 0 with sum (v - tau)_+ = total, or 0 when the sum of ``values`` is within it."""
        if values.numel() == 0 or float(values.sum()) <= total:
            return 0.0
        ordered = values.sort(descending=True).values.double()
        count = torch.arange(1, len(ordered) + 1, dtype=torch.float64, device=values.device)
        taus = (ordered.cumsum(0) - total) / count
        last = int((ordered >= taus).nonzero()[-1])  # the first one at least, even where rounding swallows the total
        return float(taus[last])

    def shrink(self, values: Tensor, step: float) -> Tensor:
        """(s - tau)_+ / (1 + step ridge), tau such that the sum is at most the radius."""
        values = _spectrum(values)
        grow = 1 + check_not_negative(step, "step") * self.ridge
        return (values - self._threshold(values, self.radius * grow)).clamp_min(0) / grow

    def value(self, values: Tensor) -> float:
        """Ridge / 2 sum s^2; infinite outside the ball (up to rounding)."""
        if float(_spectrum(values).double().sum()) > self.radius * (1 + 1e-5):
            return float("inf")
        return float(self.ridge / 2 * values.square().sum())

    def conjugate(self, values: Tensor, scale: float) -> float:
        """Min over l1 >= 0 of l1 radius + sum (y - l1)_+^2 / (2 ridge); radius times y_1 without a ridge."""
        scaled = check_not_negative(scale, "scale") * _spectrum(values).double()
        if scaled.numel() == 0:
            return 0.0
        if self.ridge == 0:
            return self.radius * float(scaled.max())
        level = self._threshold(scaled, self.radius * self.ridge)
        return level * self.radius + float((scaled - level).clamp_min(0).square().sum() / (2 * self.ridge))


def _spectrum(values: Tensor) -> Tensor:
    """(R,) singular values: finite numbers."""
    return check_float_tensor(values, "values", (None,), finite=True)
