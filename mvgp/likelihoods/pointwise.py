r"""Pointwise likelihoods: each observation depends on the latent value of its own pair, :math:`p(y_t \mid z_t)`.

The loss of the mean is :math:`f(\psi) = -\sum_t w_t E_{N(\psi_t, v_t)}[\ln p(y_t \mid z_t)]`, and with v = 0 (Laplace's
approximation) the negative log-likelihood. It is convex for every log-concave p. Its conjugate, which
the certificate (11) needs, comes from one root for each observation.

Where the curvature of f is not bounded (counts with a log link), the loss follows f inside an interval about a centre
and its tangents outside. Tangents are below a convex f, so a dual bound for this loss is one for f; and the minimum is
that of f as soon as it lies inside (:meth:`PointwiseLoss.inside`). Solvers so have a finite curvature that fits the
place they are at.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gpytorch
import torch
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    LaplaceLikelihood,
    StudentTLikelihood,
    _OneDimensionalLikelihood,
)
from torch import Tensor
from torch.distributions import Bernoulli, Poisson
from typing_extensions import override

from ..checks import check_instance, most_derived, overridden
from ..errors import InputError
from ..tensor_checks import refuse_where
from .densities import (
    Density,
    ExpectedDensity,
    ForwardDensity,
    LaplaceDensity,
    LogisticDensity,
    LogPoissonDensity,
    ProbitDensity,
    StudentDensity,
)
from .losses import ConvexValue, Loss, check_psi, long_dot

CAP = 4.0  # by how much the curvature inside the interval may exceed that at the centre
SAFETY = 1.2  # on a largest curvature that is read off a grid
STEPS = [2.0**k for k in range(-6, 21)]  # distances at which the curvature is measured, in units of 1 / its root
NEWTON_STEPS = 60  # of the search for the conjugate; a few are usual
FAR = 30.0  # log density below its largest value, beyond which an observation is all but impossible
SEEN = 1000  # observations whose log-concavity is looked at


class LogisticLikelihood(_OneDimensionalLikelihood):
    r"""Two classes with a logistic link, :math:`p(y = 1 \mid z) = 1 / (1 + e^{-z})`; labels 0 and 1, or -1 and 1.

    Example:
        >>> import mvgp, torch
        >>> from mvgp.kernels import PrecomputedKernel
        >>> kernel = PrecomputedKernel(torch.eye(2, dtype=torch.float64))
        >>> data = mvgp.ObservedMatrix([0, 1], [0, 1], [1.0, 0.0], (2, 2))
        >>> posterior = mvgp.FullGP(mvgp.MatrixGP(kernel, kernel), mvgp.likelihoods.LogisticLikelihood()).fit(data)
        >>> posterior.predictive([0, 0, 1], [0, 1, 1]).probs.round(decimals=2)
        tensor([0.5900, 0.5000, 0.4100], dtype=torch.float64)

    """

    log_concave = True

    def forward(self, function_samples: Tensor, *_: Any, **__: Any) -> Bernoulli:
        """The distribution of the label for latent values (...)."""
        return Bernoulli(logits=check_instance(function_samples, "function_samples", Tensor, "a tensor"))


class LogPoissonLikelihood(_OneDimensionalLikelihood):
    r"""Counts with a log link, :math:`y \sim \text{Poisson}(e^z)`; gpytorch's ``PoissonLikelihood`` has softplus(z).

    Example:
        >>> import torch
        >>> from mvgp.likelihoods import LogPoissonLikelihood
        >>> LogPoissonLikelihood()(torch.tensor([0.0, 2.0]).log1p()).rate
        tensor([1., 3.])

    """

    log_concave = True

    def forward(self, function_samples: Tensor, *_: Any, **__: Any) -> Poisson:
        """The distribution of the count for latent values (...)."""
        return Poisson(check_instance(function_samples, "function_samples", Tensor, "a tensor").exp())


# From a likelihood to its log density -------------------------------------------------------------


def density_of(likelihood: Any, values: Tensor) -> Density:
    """The log density of the observations ``values`` (T,) under a pointwise likelihood.

    gpytorch's own likelihoods have formulas here as long as their methods are theirs. Otherwise the method that a user
    overrides last is used, ``expected_log_prob`` or ``forward``.
    """
    nodes = gpytorch.settings.num_gauss_hermite_locs.value()
    rule = getattr(likelihood, "quadrature", None)
    nodes = int(getattr(rule, "num_locs", nodes))
    for kind, make in KNOWN.items():
        if isinstance(likelihood, kind) and not overridden(likelihood, kind, "forward", "expected_log_prob"):
            return make(likelihood, values, nodes)
    refuse_where(
        ~_in_support(likelihood, values),
        values,
        "values",
        f"an observation that {type(likelihood).__name__} can have",
    )
    own = most_derived(likelihood, "expected_log_prob", "forward")
    density = (ExpectedDensity if own == "expected_log_prob" else ForwardDensity)(likelihood, values, nodes)
    said = getattr(likelihood, "log_concave", None)
    density.log_concave = said if isinstance(said, bool) else _looks_log_concave(density)
    support = getattr(likelihood.forward(torch.zeros_like(values)), "support", None)
    density.discrete = bool(getattr(support, "is_discrete", False))
    return density


def _signs(likelihood: Any, values: Tensor) -> Tensor:
    """(T,) labels as +1 and -1, from 0 and 1 or from -1 and 1."""
    ones, zeros, minus = values == 1, values == 0, values == -1
    refuse_where(
        ~(ones | zeros | minus), values, "values", f"labels 0 and 1, or -1 and 1 ({type(likelihood).__name__})"
    )
    if bool(zeros.any()) and bool(minus.any()):
        raise InputError("values: expected labels 0 and 1, or -1 and 1, got -1, 0 and 1 together")
    return torch.where(ones, 1.0, -1.0).to(values.dtype)


def _counts(likelihood: Any, values: Tensor) -> Tensor:
    """(T,) whole numbers from 0 on."""
    refuse_where((values < 0) | (values != values.floor()), values, "values", f"a count ({type(likelihood).__name__})")
    return values


def _one(parameter: Tensor, values: Tensor, name: str) -> Tensor:
    """() a parameter of a likelihood, in the precision of the values."""
    numbers = parameter.to(values).reshape(-1)
    if numbers.numel() != 1:
        raise InputError(f"likelihood: expected one {name}, got {numbers.numel()}")
    return numbers[0]


KNOWN = {
    BernoulliLikelihood: lambda own, y, nodes: ProbitDensity(_signs(own, y), nodes),
    LogisticLikelihood: lambda own, y, nodes: LogisticDensity(_signs(own, y), nodes),
    LogPoissonLikelihood: lambda own, y, nodes: LogPoissonDensity(_counts(own, y)),
    LaplaceLikelihood: lambda own, y, nodes: LaplaceDensity(y, _one(own.noise, y, "noise").sqrt()),
    StudentTLikelihood: lambda own, y, nodes: StudentDensity(
        y, _one(own.deg_free, y, "number of degrees of freedom"), _one(own.noise, y, "noise")
    ),
}


@torch.no_grad()
def _in_support(likelihood: Any, values: Tensor) -> Tensor:
    """(T,): whether an observation is possible; its support must not depend on the latent value."""
    support = getattr(likelihood.forward(torch.zeros_like(values)), "support", None)
    if support is None:
        return torch.ones_like(values, dtype=torch.bool)
    possible: Tensor = support.check(values)
    return possible.expand(values.shape)


@torch.no_grad()
def _looks_log_concave(density: Density) -> bool:
    """Whether slopes fall along a grid about 0 and about the observations themselves."""
    if not len(density.values):
        return True
    distances = torch.tensor([-d for d in reversed(STEPS)] + [0.0] + STEPS).to(density.values)
    distances = distances[distances.abs() <= 64].unsqueeze(1)
    for centre in (torch.zeros_like(density.values), density.values):
        z = centre + distances  # (G, T)
        value, first = density.log_prob(z)[:, :SEEN], density.derivatives(z)[0][:, :SEEN]
        seen = (
            value > value.nan_to_num(nan=-torch.inf).amax(0) - FAR
        )  # further out numbers have been rounded or clamped
        rise = first.diff(dim=0)[seen[1:] & seen[:-1]]
        if bool((rise > 1e-7 * first[seen].abs().max()).any()):
            return False
    return True


# The loss ------------------------------------------------------------------------------------------


class PointwiseLoss(Loss):
    r""":math:`f(\psi) = -\sum_t w_t E_{N(\psi_t + b_t, v_t)}[\ln p(y_t \mid z_t)]`.

    It is counted from the smallest value of each term, where there is one. So it is not negative for densities either,
    and a gap relative to it makes sense.

    :param density: of the T observations.
    :param weights: (T,) w, or None for 1.
    :param variance: (T,) v, or None for 0.
    :param offset: (T,) the prior mean b, or None for 0.
    :param centre: (T,) psi about which the curvature is bounded, where there is no bound for all psi; 0 if left out.
    """

    def __init__(
        self,
        density: Density,
        weights: Tensor | None = None,
        variance: Tensor | None = None,
        offset: Tensor | None = None,
        centre: Tensor | None = None,
    ) -> None:
        self.density, self.weights, self.variance = density, weights, variance
        if variance is None and not density.smooth:
            raise InputError(
                "approximation: Laplace's needs second derivatives, and this log density has a kink at its value; "
                "use approximation='variational'"
            )
        self.length = len(density.values)
        self.offset = torch.zeros_like(density.values) if offset is None else offset
        self.low: Tensor | None = None
        self.high: Tensor | None = None
        self.smallest: Tensor | None = None  # (T,) what is taken off
        self.is_nonnegative = density.discrete
        limit = density.curvature_limit(variance)  # (T,), or () for all
        if limit is None or not density.discrete:
            start = self.offset if centre is None else self.offset + check_psi(centre, self.length, "centre")
            limit = self._prepare(start, limit)
        self.curvatures = self._weighted(limit)

    def _weighted(self, each: Tensor) -> Tensor:
        return each if self.weights is None else self.weights * each

    @property
    @override
    def curvature(self) -> float:
        """The largest second derivative of any term."""
        return float(self.curvatures.max()) if self.curvatures.numel() else 0.0

    @override
    def quadratic_bound(self, step: Tensor) -> float:
        """See :class:`Loss`."""
        check_psi(step, self.length, "step")
        return long_dot(step, self.curvatures * step)

    @override
    def __call__(self, psi: Tensor) -> ConvexValue:
        """At ``psi`` (T,)."""
        value, slope, _ = self._parts(check_psi(psi, self.length) + self.offset)
        lowest = 0.0 if self.is_nonnegative else -float("inf")
        total = float(value.double().sum())
        return ConvexValue(total, slope, psi=psi, lowest=lowest, exact=partial(self.conjugate, start=psi))

    def second_derivatives(self, psi: Tensor) -> Tensor:
        """(T,): of the loss, at psi (T,)."""
        return self._parts(check_psi(psi, self.length) + self.offset)[2]

    def precisions(self, psi: Tensor) -> Tensor:
        """(T,) the precisions Lambda at psi (T,)."""
        return self._weighted(self.density.expect(psi + self.offset, self.variance).precision)

    def inside(self, psi: Tensor) -> bool:
        """Whether the loss is f itself at psi (T,), and not one of its tangents."""
        if self.low is None or self.high is None:
            return True
        mean = psi + self.offset
        return bool(((self.low <= mean) & (mean <= self.high)).all())

    def _parts(self, mean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(T,) each: values and two derivatives at latent means (T,); tangents outside the interval."""
        held = mean if self.low is None else mean.clamp(self.low, self.high)
        value, first, second = (-self._weighted(part) for part in self.density.slopes(held, self.variance))
        if self.smallest is not None:
            value = value - self.smallest
        if self.low is None:
            return value, first, second
        return value + first * (mean - held), first, torch.where(mean == held, second, 0.0)

    # The interval --------------------------------------------------------------------------------

    def _prepare(self, centre: Tensor, limit: Tensor | None) -> Tensor:
        """Find the smallest value and the interval, as needed; (T,) the largest second derivative of -E ln p.

        :param centre: (T,) latent means.
        :param limit: (T,) that number, if it is known.
        """
        here = self._curved(centre)
        usual = here[here.isfinite()].mean() if bool(here.isfinite().any()) else here.new_ones(())
        unit = here.clamp(min=float(usual) * 1e-3, max=1e12).clamp_min(1e-12).rsqrt()
        best, is_minimum = self._minimisers(centre, unit)
        value = self.density.slopes(best, self.variance)[0]
        self.smallest = torch.where(is_minimum, -self._weighted(value), 0.0)
        self.is_nonnegative |= bool(is_minimum.all())
        if limit is not None:
            return limit
        cap = CAP * torch.maximum(here, usual)
        self.low, self.high, limit = self._interval(centre, unit, best, is_minimum, cap)
        return limit

    def _curved(self, at: Tensor) -> Tensor:
        return (-self.density.slopes(at, self.variance)[2]).nan_to_num(nan=torch.inf)

    def _interval(
        self, centre: Tensor, unit: Tensor, best: Tensor, is_minimum: Tensor, cap: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(T,) each: ends of the interval, and the largest second derivative of -E ln p inside.

        It holds the minimum of each observation's loss, if there is one, so that 0 is among the slopes: then the
        conjugate is finite along every ray that certificates ask about.

        :param unit: (T,) distance in which the grid is measured.
        :param best: (T,) where the loss of each observation is smallest, if ``is_minimum`` (T,).
        :param cap: (T,) on the second derivative.
        """
        cap = torch.where(is_minimum, torch.maximum(cap, CAP * self._curved(best)), cap)
        lowest = self.density.slopes(centre, self.variance)[0] - FAR  # of E ln p
        ends, largest = [], self._curved(centre)
        for sign in (-1.0, 1.0):
            needed = torch.where(is_minimum, (sign * (best - centre)).clamp_min(0), 0.0)
            is_open, reach = torch.ones_like(is_minimum), torch.zeros_like(centre)
            for step in STEPS:
                distance = step * unit
                value, _, second = self.density.slopes(centre + sign * distance, self.variance)
                there = -second
                is_open = is_open & (there <= cap) & (value >= lowest)
                reach = torch.where(is_open, distance, reach)
                largest = torch.where(is_open, torch.maximum(largest, there), largest)
            short = reach < needed
            reach = torch.where(short, needed + 0.5 * unit, reach)
            largest = torch.where(short, torch.maximum(largest, self._curved(centre + sign * reach)), largest)
            ends.append(centre + sign * reach)
        return ends[0], ends[1], SAFETY * largest

    def _minimisers(self, centre: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
        """(T,), (T,): where the loss of each observation is smallest, and whether that was found."""
        slope = -self.density.slopes(centre, self.variance)[1]
        sign = torch.where(slope > 0, -1.0, 1.0).to(centre)  # downhill
        low = high = centre
        is_minimum = slope == 0
        for step in STEPS:
            far = centre + sign * step * unit
            turned = (sign * -self.density.slopes(far, self.variance)[1] >= 0) & ~is_minimum
            high = torch.where(turned, far, high)
            is_minimum = is_minimum | turned
            low = torch.where(is_minimum, low, far)
        for _ in range(40):  # bisection is enough: the place need not be exact
            middle = low + (high - low) / 2
            past = sign * -self.density.slopes(middle, self.variance)[1] >= 0
            high, low = torch.where(is_minimum & past, middle, high), torch.where(is_minimum & ~past, middle, low)
        return torch.where(is_minimum, high, centre), is_minimum

    # The conjugate -------------------------------------------------------------------------------

    def conjugate(self, theta: Tensor, start: Tensor) -> float:
        r""":math:`f^*(\theta) = \sup_\psi \langle\theta, \psi\rangle - f(\psi)`, never too small; infinite if unknown.

        The root of f'(m) = theta is enclosed, then found by Newton's method inside the bracket. What is left of the
        slope there, times the width of the bracket, bounds the error, and is added.

        :param theta: (T,).
        :param start: (T,) psi to search from.
        """
        at = start + self.offset
        if self.low is not None:
            at = at.clamp(self.low, self.high)
        value, slope, curved = self._parts(at)
        low, high = self._bracket(theta, at, slope, curved)
        if not bool((low.isfinite() & high.isfinite()).all()):
            return float("inf")
        for _ in range(NEWTON_STEPS):
            low = torch.where(slope <= theta, at, low)
            high = torch.where(slope >= theta, at, high)
            excess = (slope - theta).abs()
            width = torch.where(excess > 0, high - low, 0.0)
            if bool((excess * width <= 1e-14 * (1 + value.abs())).all()):
                break
            step = at - (slope - theta) / curved
            middle = low + (high - low) / 2
            at = torch.where((low < step) & (step < high), step, middle)
            value, slope, curved = self._parts(at)
        low = torch.where(slope <= theta, at, low)
        high = torch.where(slope >= theta, at, high)
        excess = (slope - theta).abs()
        error = torch.where(excess > 0, excess * (high - low), 0.0)
        each = theta * (at - self.offset) - value + error
        total = float(each.double().sum())
        return total if total == total else float("inf")

    def _bracket(self, theta: Tensor, at: Tensor, slope: Tensor, curved: Tensor) -> tuple[Tensor, Tensor]:
        """(T,), (T,): points with slopes on either side of theta; an infinite end where there is none."""
        below, above = slope <= theta, slope >= theta
        low = torch.where(below, at, -torch.inf)
        high = torch.where(above, at, torch.inf)
        if self.low is not None and self.high is not None:
            of_low, of_high = self._parts(self.low)[1], self._parts(self.high)[1]
            return (
                torch.where(below, low, torch.where(of_low <= theta, self.low, low)),
                torch.where(above, high, torch.where(of_high >= theta, self.high, high)),
            )
        unit = 2 * ((theta - slope) / curved.clamp_min(1e-12)).abs().clamp(1e-8, 1e8)
        for power in range(0, 40, 2):
            need_low, need_high = torch.isinf(low), torch.isinf(high)
            if not bool((need_low | need_high).any()):
                break
            far = at + torch.where(need_high, 1.0, -1.0) * 2.0**power * unit
            there = self._parts(far)[1]
            low = torch.where(need_low & (there <= theta), far, low)
            high = torch.where(need_high & (there >= theta), far, high)
        return low, high
