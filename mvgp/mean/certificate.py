r"""Certificate of optimality: how far the objective can still be from its minimum; and what solvers hand over.

For any iterate, with theta the gradient of the loss, Y its dual image with singular values y and any c in [0, 1],
equation (11) bounds the minimum from below by :math:`-f^*(c\,\theta) - h^*(c\,Y)`. The bound is true when the singular
values that it is computed from are not too small; :mod:`mvgp.mean.spectrum_bound` sees to that.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ConvergenceError
from ..likelihoods.losses import LossValue
from .penalties import Penalty
from .problem import LowRank, MeanProblem

SCALES = 65  # values of c that are tried; any of them gives a valid bound


@dataclass(frozen=True)
class Certificate:
    """Evidence for a fitted mean.

    :param primal: objective reached.
    :param dual: lower bound on the smallest possible objective.
    :param tolerance: relative gap that was asked for.
    :param iterations: steps taken.
    :param rank: rank of the mean.
    :param solver: which solver it was.
    :param failure_probability: chance that ``dual`` is too large, so that the gap is below the true one. It is 0 where
        the singular values of the gradient are computed exactly. Elsewhere they are bounded from random vectors
        (:mod:`mvgp.mean.spectrum_bound`), and this is the chance that a bound has failed. None: not stated.
    """

    primal: float
    dual: float
    tolerance: float
    iterations: int
    rank: int
    solver: str
    failure_probability: float | None = 0.0

    @property
    def gap(self) -> float:
        """Primal - dual, at least 0."""
        return max(self.primal - self.dual, 0.0)

    @property
    def relative_gap(self) -> float:
        """(primal - dual) / primal"""
        return self.gap / self.primal if self.primal > 0 else 0.0

    @property
    def converged(self) -> bool:
        """Whether the relative gap is within the tolerance."""
        return self.relative_gap <= self.tolerance


def warn_or_raise(certificate: Certificate, subject: str, advice: str, *, strict: bool, stacklevel: int) -> None:
    """A certificate that misses its tolerance is a warning, or an error when ``strict``.

    :param subject: what was fitted.
    :param advice: what a user can do about it.
    :param stacklevel: as of ``warnings.warn``, counted from the caller.
    """
    if certificate.converged:
        return
    message = (
        f"{subject}'s relative duality gap is {certificate.relative_gap:.1e} after {certificate.iterations} iterations "
        f"of {certificate.solver}, the tolerance is {certificate.tolerance:.1e}; {advice}"
    )
    if strict:
        raise ConvergenceError(message)
    warnings.warn(message, RuntimeWarning, stacklevel=stacklevel + 1)


def dual_bound(loss: LossValue, singular_values: Tensor, penalty: Penalty) -> float:
    """The best bound over c in [0, 1] from the (leading) singular values of Y, equation (11)."""
    values = singular_values.double()
    largest = float(values.max()) if values.numel() else 0.0
    scales = torch.linspace(0, 1, SCALES).tolist()
    trace = getattr(penalty, "trace", None)
    if trace is not None and largest > trace:  # without a ridge only c <= l1 / y_1 is feasible
        scales = [c * trace / largest for c in scales] + [trace / largest + (1 - trace / largest) * c for c in scales]
    scales.sort()

    def bound(scale: float) -> float:
        return -loss.conjugate_bound(scale) - penalty.conjugate(values, scale)

    bounds = [bound(scale) for scale in scales]
    best = max(range(len(bounds)), key=lambda i: bounds[i])
    # golden-section search around the best c: the bound is concave in c
    low, high, highest = scales[max(best - 1, 0)], scales[min(best + 1, len(scales) - 1)], bounds[best]
    ratio = (5**0.5 - 1) / 2
    for _ in range(40):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        at_a, at_b = bound(a), bound(b)
        highest = max(highest, at_a, at_b)
        if at_a < at_b:
            low = a
        else:
            high = b
    at_best = (low + high) / 2 if bound((low + high) / 2) >= bounds[best] else scales[best]
    return max(highest, -loss.conjugate(at_best) - penalty.conjugate(values, at_best))


@dataclass(frozen=True)
class MeanSolution:
    """A fitted mean with its evidence.

    :param mean: B.
    :param psi: (T,) at the observed pairs.
    :param loss: the loss there.
    :param certificate: the evidence.
    :param spare: (N, p) right images of directions that nearly entered; they speed up a warm start.
    :param lipschitz: curvature met on the way, likewise.
    """

    mean: LowRank
    psi: Tensor
    loss: LossValue
    certificate: Certificate
    spare: Tensor
    lipschitz: float


@dataclass(frozen=True)
class Iterate:
    """A mean, its loss, and what the next steps start from.

    :param mean: B.
    :param psi: (T,) at the observed pairs.
    :param at: the loss there.
    :param spare: (N, p) right images of directions next in line to enter.
    :param lipschitz: curvature of the loss met on the way.
    """

    mean: LowRank
    psi: Tensor
    at: LossValue
    spare: Tensor
    lipschitz: float

    def objective(self, penalty: Penalty) -> float:
        """Loss plus penalty."""
        return self.at.value + penalty.value(self.mean.values)

    @classmethod
    def of(cls, problem: MeanProblem, mean: LowRank, spare: Tensor, lipschitz: float) -> Iterate:
        """With psi and the loss computed."""
        psi = mean.psi(problem)
        return cls(mean, psi, problem.loss(psi), spare, lipschitz)
