r"""The log density of one observation given its latent value, :math:`\ln p(y \mid z)`, and expectations of it.

A variational fit needs, at each observed pair, :math:`E_{N(m, v)}[\ln p(y \mid z)]`, its derivative by the mean, and
the precision :math:`\Lambda = -2\, \partial / \partial v` of it. Where there is no closed form they come
from Gauss-Hermite quadrature, and :math:`\Lambda` is the derivative of the quadrature itself: so a fixed point of the
updates is a stationary point of the very number that is reported as the evidence bound.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor
from typing_extensions import override

from ..errors import InputError

SMALL_VARIANCE = 1e-10  # below it a difference of slopes has lost its digits, and second derivatives are used


@dataclass(frozen=True)
class Expectation:
    """The expected log density at each of T observations.

    :param value: (T,) E ln p.
    :param slope: (T,) its derivative by the mean of z.
    :param precision: (T,) Lambda, minus twice its derivative by the variance of z.
    """

    value: Tensor
    slope: Tensor
    precision: Tensor


class Density(ABC):
    """ln p(y_t | z_t) for T observations, each a function of its own z_t.

    :param values: (T,) y.
    :param nodes: of the quadrature.
    """

    log_concave = True  # in z
    smooth = True  # whether it has second derivatives in z, which Laplace's approximation needs
    discrete = False  # whether p is a probability, so that ln p <= 0

    def __init__(self, values: Tensor, nodes: int = 20) -> None:
        self.values, self.nodes = values, nodes

    @abstractmethod
    def log_prob(self, z: Tensor) -> Tensor:
        """(..., T): ln p(y | z), differentiable in z and in the likelihood's parameters."""

    def derivatives(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(..., T), (..., T): the first two derivatives of ln p by z."""
        with torch.enable_grad():
            z = z.detach().requires_grad_(True)
            value = self.log_prob(z)
            (first,) = torch.autograd.grad(value.sum(), z, create_graph=True)
            second = torch.zeros_like(z)
            if first.requires_grad:
                (slope,) = torch.autograd.grad(first.sum(), z, allow_unused=True)
                second = second if slope is None else slope
        return first.detach(), second.detach()

    def curvature_limit(self, variance: Tensor | None) -> Tensor | None:
        """(T,) or (): the largest value of -d2/dm2 E ln p over all m; None where it is not known, or there is none."""
        return None

    @cached_property
    def _rule(self) -> tuple[Tensor, Tensor]:
        """(K, 1), (K, 1): nodes x and weights, such that E f = sum w f(m + sqrt(v) x)."""
        nodes, weights = np.polynomial.hermite.hermgauss(self.nodes)
        both = (torch.from_numpy(part).to(self.values).unsqueeze(1) for part in (nodes, weights))
        x, w = both
        return math.sqrt(2) * x, w / math.sqrt(math.pi)

    def expected_log_prob(self, mean: Tensor, variance: Tensor | None) -> Tensor:
        """(T,): E ln p under N(mean, variance), or ln p at the mean for None; differentiable in everything."""
        if variance is None:
            return self.log_prob(mean)
        x, w = self._rule
        return (w * self.log_prob(mean + variance.sqrt() * x)).sum(0)

    @torch.no_grad()
    def expect(self, mean: Tensor, variance: Tensor | None) -> Expectation:
        """Value, slope and precision at (T,) means and variances; for None those of ln p itself."""
        if variance is None:
            first, second = self.derivatives(mean)
            return Expectation(self.log_prob(mean), first, -second)
        x, w = self._rule
        z = mean + variance.sqrt() * x  # (K, T)
        first, second = self.derivatives(z)
        spread = -(w * x * first).sum(0) / variance.clamp_min(SMALL_VARIANCE).sqrt()
        precision = torch.where(variance > SMALL_VARIANCE, spread, -(w * second).sum(0))
        return Expectation((w * self.log_prob(z)).sum(0), (w * first).sum(0), precision)

    @torch.no_grad()
    def slopes(self, mean: Tensor, variance: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """(T,) each: E ln p and its first two derivatives by the mean."""
        if variance is None:
            return self.log_prob(mean), *self.derivatives(mean)
        x, w = self._rule
        z = mean + variance.sqrt() * x
        first, second = self.derivatives(z)
        return (w * self.log_prob(z)).sum(0), (w * first).sum(0), (w * second).sum(0)


class ProbitDensity(Density):
    """ln Phi(y z), y = +1 or -1: gpytorch's ``BernoulliLikelihood``."""

    discrete = True

    @override
    def log_prob(self, z: Tensor) -> Tensor:
        return torch.special.log_ndtr(self.values * z)

    @override
    def derivatives(self, z: Tensor) -> tuple[Tensor, Tensor]:
        u = self.values * z
        ratio = math.sqrt(2 / math.pi) / torch.special.erfcx(-u / math.sqrt(2))  # phi(u) / Phi(u)
        return self.values * ratio, -ratio * (u + ratio)

    @override
    def curvature_limit(self, variance: Tensor | None) -> Tensor:
        return torch.ones_like(self.values)


class LogisticDensity(Density):
    """ln sigma(y z), y = +1 or -1."""

    discrete = True

    @override
    def log_prob(self, z: Tensor) -> Tensor:
        return torch.nn.functional.logsigmoid(self.values * z)

    @override
    def derivatives(self, z: Tensor) -> tuple[Tensor, Tensor]:
        wrong = torch.sigmoid(-self.values * z)
        return self.values * wrong, -wrong * torch.sigmoid(self.values * z)

    @override
    def curvature_limit(self, variance: Tensor | None) -> Tensor:
        return torch.full_like(self.values, 0.25)


class LogPoissonDensity(Density):
    """y z - exp(z) - ln y!: counts with the rate exp(z). Its expectation has a closed form."""

    discrete = True

    def _value(self, mean: Tensor, rate: Tensor) -> Tensor:
        return self.values * mean - rate - torch.lgamma(self.values + 1)

    @override
    def log_prob(self, z: Tensor) -> Tensor:
        return self._value(z, z.exp())

    @override
    def derivatives(self, z: Tensor) -> tuple[Tensor, Tensor]:
        rate = z.exp()
        return self.values - rate, -rate

    @override
    def expected_log_prob(self, mean: Tensor, variance: Tensor | None) -> Tensor:
        return self._value(mean, self._rate(mean, variance))

    @staticmethod
    def _rate(mean: Tensor, variance: Tensor | None) -> Tensor:
        return mean.exp() if variance is None else (mean + variance / 2).exp()

    @override
    @torch.no_grad()
    def expect(self, mean: Tensor, variance: Tensor | None) -> Expectation:
        rate = self._rate(mean, variance)
        return Expectation(self._value(mean, rate), self.values - rate, rate)

    @override
    @torch.no_grad()
    def slopes(self, mean: Tensor, variance: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        rate = self._rate(mean, variance)
        return self._value(mean, rate), self.values - rate, -rate


class LaplaceDensity(Density):
    """-|y - z| / b - ln 2b: gpytorch's ``LaplaceLikelihood``, b the root of its noise. Expectations in closed form.

    :param scale: b, () or (T,).
    """

    smooth = False

    def __init__(self, values: Tensor, scale: Tensor) -> None:
        super().__init__(values)
        self.scale = scale

    @override
    def log_prob(self, z: Tensor) -> Tensor:
        return -(self.values - z).abs() / self.scale - (2 * self.scale).log()

    @override
    def expected_log_prob(self, mean: Tensor, variance: Tensor | None) -> Tensor:
        if variance is None:
            return self.log_prob(mean)
        off, root = self.values - mean, variance.sqrt()
        inside = off * torch.erf(off / (math.sqrt(2) * root))
        folded = inside + math.sqrt(2 / math.pi) * root * (-off.square() / (2 * variance)).exp()
        return -folded / self.scale - (2 * self.scale).log()

    @override
    @torch.no_grad()
    def expect(self, mean: Tensor, variance: Tensor | None) -> Expectation:
        value, slope, second = self.slopes(mean, variance)
        return Expectation(value, slope, -second)

    @override
    @torch.no_grad()
    def slopes(self, mean: Tensor, variance: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        off = self.values - mean
        if variance is None:
            return self.log_prob(mean), off.sign() / self.scale, torch.zeros_like(off)
        first = torch.erf(off / (2 * variance).sqrt()) / self.scale
        second = (-off.square() / (2 * variance)).exp() * (2 / (math.pi * variance)).sqrt() / self.scale
        return self.expected_log_prob(mean, variance), first, -second

    @override
    def curvature_limit(self, variance: Tensor | None) -> Tensor | None:
        if variance is None:
            return None
        return (2 / (math.pi * variance)).sqrt() / self.scale.detach()


class StudentDensity(Density):
    r"""Student's t with nu degrees of freedom and scale sigma: gpytorch's ``StudentTLikelihood``. Not log-concave.

    It is convex in the squared distance :math:`s = (y - z)^2`, so :math:`E \ln p(s) \ge \ln p(E s)` by Jensen's
    inequality, with :math:`E s = (y - m)^2 + v`: that is what stands for the expectation here. It is the bound of the
    scale mixture of normal distributions (Tipping and Lawrence 2005): a lower bound on the evidence all the same, and
    its precisions are positive, where those of the expectation itself are negative at outliers.

    :param freedom: nu, () or (T,).
    :param scale: sigma^2, () or (T,).
    """

    log_concave = False

    def __init__(self, values: Tensor, freedom: Tensor, scale: Tensor) -> None:
        super().__init__(values)
        self.freedom, self.scale = freedom, scale

    @override
    def log_prob(self, z: Tensor) -> Tensor:
        return self.expected_log_prob(z, None)

    @override
    def derivatives(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.slopes(z, None)[1:]

    def _squares(self, mean: Tensor, variance: Tensor | None) -> Tensor:
        square = (self.values - mean).square()
        return square if variance is None else square + variance

    @override
    def expected_log_prob(self, mean: Tensor, variance: Tensor | None) -> Tensor:
        nu, size = self.freedom, self.freedom * self.scale
        front = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - (math.pi * size).log() / 2
        return front - (nu + 1) / 2 * torch.log1p(self._squares(mean, variance) / size)

    @override
    @torch.no_grad()
    def expect(self, mean: Tensor, variance: Tensor | None) -> Expectation:
        if variance is None:
            value, first, second = self.slopes(mean, None)
            return Expectation(value, first, -second)
        weight = self.majorant(mean, variance)
        return Expectation(self.expected_log_prob(mean, variance), weight * (self.values - mean), weight)

    @torch.no_grad()
    def majorant(self, mean: Tensor, variance: Tensor | None) -> Tensor:
        """(T,): of the parabola about y that touches -E ln p at the mean, and is above it everywhere."""
        return (self.freedom + 1) / (self.freedom * self.scale + self._squares(mean, variance))

    @override
    @torch.no_grad()
    def slopes(self, mean: Tensor, variance: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        off, weight = self.values - mean, self.majorant(mean, variance)
        second = -weight * (1 - 2 * off.square() * weight / (self.freedom + 1))
        return self.expected_log_prob(mean, variance), weight * off, second

    @override
    @torch.no_grad()
    def curvature_limit(self, variance: Tensor | None) -> Tensor:
        return self.majorant(self.values, variance).expand(self.values.shape)


class ForwardDensity(Density):
    """The log density of any likelihood that has ``forward(function_samples)``, differentiated by torch.

    :param likelihood: gives a torch distribution of y for samples of z (..., T).
    """

    def __init__(self, likelihood: Any, values: Tensor, nodes: int = 20) -> None:
        super().__init__(values, nodes)
        self.likelihood = likelihood

    @override
    def log_prob(self, z: Tensor) -> Tensor:
        distribution = self.likelihood.forward(z)
        if distribution.batch_shape != z.shape or distribution.event_shape:
            shape = (*distribution.batch_shape, *distribution.event_shape)
            raise InputError(
                f"likelihood: {type(self.likelihood).__name__} gives a distribution of shape {shape} for latent values "
                f"of shape {tuple(z.shape)}; one number for each observation was expected"
            )
        value: Tensor = distribution.log_prob(self.values)
        return value


class ExpectedDensity(ForwardDensity):
    """That of a likelihood with an ``expected_log_prob`` of its own, which is used instead of our quadrature."""

    @override
    def expected_log_prob(self, mean: Tensor, variance: Tensor | None) -> Tensor:
        spread = torch.zeros_like(mean) if variance is None else variance
        value: Tensor = self.likelihood.expected_log_prob(
            self.values, MultivariateNormal(mean, DiagLinearOperator(spread))
        )
        if value.shape != mean.shape:
            raise InputError(
                f"likelihood: {type(self.likelihood).__name__}.expected_log_prob gives shape {tuple(value.shape)} for "
                f"{len(mean)} observations; one number for each was expected"
            )
        return value

    @override
    def expect(self, mean: Tensor, variance: Tensor | None) -> Expectation:
        if variance is None:
            value, first, second = self.slopes(mean, None)
            return Expectation(value, first, -second)
        with torch.enable_grad():
            m, v = mean.detach().requires_grad_(True), variance.detach().requires_grad_(True)
            value = self.expected_log_prob(m, v)
            first, spread = torch.autograd.grad(value.sum(), (m, v))
        return Expectation(value.detach(), first, -2 * spread)

    @override
    def slopes(self, mean: Tensor, variance: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        if variance is None:
            return super().slopes(mean, None)  # ln p itself, from forward
        at = self.expect(mean, variance)
        return at.value, at.slope, -at.precision
