r"""Support vector machines on pairs.

:func:`solve_squared_hinge` has the squared hinge loss, by Newton's method on products with :math:`K_{TT}` alone.

.. math:: \min_{a, b}\; \tfrac12 a^T K a + \tfrac12 \sum_t c_t (1 - y_t f_t)_+^2, \qquad f = K a + b, \quad y_t = \pm 1

Pairs with :math:`y_t f_t < 1` are active. For a fixed active set the problem is a linear system:
:math:`a_t = c_t (y_t - f_t)` on the active pairs, 0 elsewhere, and a sums to 0 because the bias is free. Newton's
method (Chapelle, *Training a support vector machine in the primal*, 2007) solves it by conjugate gradients and searches
the line to the solution for the exact minimum. High costs make that set fickle, so they are raised in steps.

The certificate: for any :math:`\theta` that sums to 0 with :math:`y_t \theta_t \ge 0`, the minimum is at least
:math:`y^T \theta - \tfrac12 \theta^T K \theta - \tfrac12 \sum_t \theta_t^2 / c_t`. The gradient's own coordinates
:math:`\theta_t = c_t (y_t - f_t)` on the active pairs are of that kind whenever the bias is the best one for a.

:func:`solve_hinge` has the hinge loss instead, for few pairs: scikit-learn's SVC on the dense :math:`K_{TT}`.

.. math:: \min_{a, b}\; \tfrac12 a^T K a + \sum_t c_t (1 - y_t f_t)_+, \qquad f = K a + b, \quad y_t = \pm 1
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..likelihoods.losses import long_dot
from ..likelihoods.thresholds import bracketed_newton
from ..linalg.conjugate_gradients import conjugate_gradients
from ..linalg.pair_operator import PairLinearOperator
from ..progress import report_step
from .problem import Certificate

CG_ITERATIONS = 500  # for one linear system; an unfinished one may still give a direction
EASY_COST = 4.0  # cost times kernel diagonal up to which no stages are needed
COST_FACTOR = 8.0  # factor between the costs of two stages
STAGE_TOLERANCE = 0.05  # relative gap at which a stage but the last one ends
REFINEMENTS = 6  # times a linear system is taken further because its solution did not lead down


@dataclass(frozen=True)
class HingeSolution:
    """A function :math:`f = K a + b` on the pairs.

    :param coefficients: (T,) a.
    :param bias: b.
    :param scores: (T,) f.
    :param certificate: duality gap; its iterations are Newton steps.
    """

    coefficients: Tensor
    bias: float
    scores: Tensor
    certificate: Certificate


@dataclass(frozen=True)
class _Point:
    """An iterate, with the best bias for its coefficients."""

    a: Tensor  # (T,)
    image: Tensor  # (T,) K a
    bias: float


@torch.no_grad()
def solve_squared_hinge(
    op: PairLinearOperator,
    labels: Tensor,
    costs: Tensor,
    *,
    tolerance: float,
    max_iterations: int = 100,
    start: Tensor | None = None,
) -> HingeSolution:
    """The minimum, up to a relative duality gap of ``tolerance``; the caller decides whether a miss is an error.

    :param op: K (T, T).
    :param labels: (T,) y, +1 or -1, both present.
    :param costs: (T,) c, positive.
    :param start: (T,) coefficients of a neighbouring problem; smaller costs come first when left out.
    """
    zero, taken = torch.zeros_like(labels), 0
    now = _Point(zero, zero, best_bias(zero, labels, costs))
    highest = float((costs * op._diagonal()).max())
    stages = math.ceil(math.log(max(highest / EASY_COST, 1.0), COST_FACTOR))
    if start is not None:
        now, stages = _Point(start, op._matmul(start), 0.0), 0
    for stage in range(stages, -1, -1):
        share = COST_FACTOR**-stage
        goal = tolerance if stage == 0 else max(tolerance, STAGE_TOLERANCE)
        now = _Point(now.a, now.image, best_bias(now.image, labels, share * costs))
        now, certificate = _descend(op, labels, share * costs, now, goal, range(taken, max_iterations + 1))
        taken = certificate.iterations
    return HingeSolution(now.a, now.bias, now.image + now.bias, certificate)


def _descend(
    op: PairLinearOperator, labels: Tensor, costs: Tensor, now: _Point, tolerance: float, iterations: range
) -> tuple[_Point, Certificate]:
    """Newton's method from ``now``, with the numbers of the steps that are left."""
    scale = 1 / (op._diagonal() + 1 / costs)  # (T,) for conjugate gradients
    zero = torch.zeros_like(labels)
    for iteration in iterations:
        slack = labels - now.image - now.bias  # (T,)
        active = labels * slack > 0
        theta = torch.where(active, costs * slack, zero)
        theta_image = op._matmul(theta)
        primal = long_dot(now.a, now.image) / 2 + long_dot(theta, slack) / 2
        dual = _dual_bound(theta, theta_image, labels, costs)
        certificate = Certificate(primal, dual, tolerance, iteration, min(op.left.shape), "newton")
        report_step("gap", certificate.relative_gap, tolerance)
        if certificate.converged or iteration == iterations[-1]:
            break
        system = _ActiveSystem(op, active, labels, costs, scale)
        forcing = 0.1 * min(1.0, certificate.relative_gap**0.5)
        moved = _newton_step(system, now, forcing)
        # a step in the direction of steepest descent (in the norm of K), should rounding spoil Newton's
        moved = moved or _search(now, _Point(theta, theta_image, now.bias), labels, costs)
        if moved is None:
            break  # neither direction descends
        now = moved
    return now, certificate


class _ActiveSystem:
    """The minimum if the active set I stayed as it is: (K_II + 1 / c) a_I + b = y_I with a_I summing to 0.

    :param active: (T,) whether a pair is in I.
    :param scale: (T,) approximate inverse of the diagonal of K + 1 / c.
    """

    def __init__(self, op: PairLinearOperator, active: Tensor, labels: Tensor, costs: Tensor, scale: Tensor) -> None:
        self.product, self.labels, self.costs = op._matmul, labels, costs
        self.inside = active.to(labels.dtype)  # (T,)
        self.scale = self.inside * scale
        self.is_empty = not bool(active.any())

    def centred(self, x: Tensor) -> Tensor:
        """``x`` (T,) on I less its average there, 0 elsewhere."""
        return self.inside * (x - (self.inside * x).sum() / self.inside.sum())

    def refined(self, guess: _Point, forcing: float) -> _Point:
        """A point with a residual ``forcing`` times that of ``guess``."""
        if self.is_empty:
            return guess
        residual, scale = self.centred(self.labels - guess.image - guess.a / self.costs), self.scale.unsqueeze(1)
        solution = conjugate_gradients(
            lambda x: self.centred(self.product(x[:, 0]) + x[:, 0] / self.costs).unsqueeze(1),
            residual.unsqueeze(1),
            tolerance=forcing,
            max_iterations=CG_ITERATIONS,
            preconditioner=lambda r: scale * (r - (scale * r).sum() / scale.sum()),  # sums to 0 again
        )
        step = solution.value.squeeze(1)
        a, image = guess.a + step, guess.image + self.product(step)
        left = self.inside * (self.labels - image - a / self.costs)
        return _Point(a, image, float(left.double().sum() / self.inside.double().sum()))


def _newton_step(system: _ActiveSystem, now: _Point, forcing: float) -> _Point | None:
    """A lower point; the exact solution leads down, an unfinished one is refined until it does."""
    a = torch.zeros_like(now.a) if system.is_empty else system.centred(now.a)
    target = _Point(a, system.product(a), now.bias)  # meets the constraints
    for _ in range(REFINEMENTS):
        target = system.refined(target, forcing)
        moved = _search(now, target, system.labels, system.costs)
        if moved is not None:
            return moved
    return None


def _search(now: _Point, target: _Point, labels: Tensor, costs: Tensor) -> _Point | None:
    """The lowest point of the ray from ``now`` through ``target``, or None when it leads uphill."""
    step, step_image = target.a - now.a, target.image - now.image
    along = step_image + (target.bias - now.bias)  # (T,) change of f
    slack = labels - now.image - now.bias
    start, curvature = long_dot(now.a, step_image), long_dot(step, step_image)
    ends = labels * along > 0  # (T,) pairs that can only leave the active set as t grows

    def derivative(t: Tensor, _: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        left = slack.double() - t * along.double()
        pull = torch.where(labels * left > 0, costs.double() * along, 0.0)
        terms = pull * along
        rise, fall = terms[~ends].sum() + curvature, terms[ends].sum()
        return start + t * curvature - pull @ left, rise.view(1), fall.view(1)

    low = high = slack.new_zeros(1, dtype=torch.float64)
    if float(derivative(low)[0]) >= 0:
        return None
    high = high + 1
    while float(derivative(high)[0]) < 0 and float(high) < 2.0**20:
        high = 2 * high
    t = float(bracketed_newton(derivative, low, high, start=torch.ones_like(low)))
    image = now.image + t * step_image
    return _Point(now.a + t * step, image, best_bias(image, labels, costs))


def best_bias(image: Tensor, labels: Tensor, costs: Tensor) -> float:
    """The b with the smallest squared hinge loss for f = ``image`` + b, all (T,)."""
    limits = labels.double() - image.double()  # (T,) the b at which a pair changes between active and not
    positive = labels > 0

    def derivative(b: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        left = limits - b
        cost = torch.where(labels * left > 0, costs.double(), 0.0)
        return -(cost @ left).view(1), cost[~positive].sum().view(1), cost[positive].sum().view(1)

    return float(bracketed_newton(derivative, limits.min().view(1), limits.max().view(1)))


def _dual_bound(theta: Tensor, theta_image: Tensor, labels: Tensor, costs: Tensor) -> float:
    """The best of the bounds for all multiples of theta."""
    linear, quadratic = long_dot(labels, theta), long_dot(theta, theta_image) + long_dot(theta, theta / costs)
    return linear**2 / (2 * quadratic) if quadratic > 0 else 0.0


@torch.no_grad()
def solve_hinge(op: PairLinearOperator, labels: Tensor, costs: Tensor, *, tolerance: float) -> HingeSolution:
    """As :func:`solve_squared_hinge`, by scikit-learn on the dense form of K."""
    try:
        svm = importlib.import_module("sklearn.svm")
    except ImportError:
        raise ImportError(
            "the hinge loss needs scikit-learn (pip install scikit-learn); solver='newton' does without, with the "
            "squared hinge loss"
        ) from None
    kernel = op.to_dense()  # (T, T)
    # SVC's own tolerance is on the optimality conditions, and the gap that follows from it grows with the costs; it
    # keeps the kernel in single precision, so beyond costs of about 1000 a gap of 1e-5 is out of its reach
    for share in (0.1, 1e-3):
        machine = svm.SVC(kernel="precomputed", C=1.0, tol=share * tolerance)
        machine.fit(kernel.double().cpu().numpy(), labels.cpu().numpy(), sample_weight=costs.double().cpu().numpy())
        solution = _certified(machine, op, kernel, labels, costs, tolerance)
        if solution.certificate.converged:
            break
    return solution


def _certified(
    machine: Any, op: PairLinearOperator, kernel: Tensor, labels: Tensor, costs: Tensor, tolerance: float
) -> HingeSolution:
    """The solution of a fitted SVC, with the gap between its primal and its dual objective."""
    a = torch.zeros_like(labels)
    a[torch.from_numpy(machine.support_).to(labels.device).long()] = torch.from_numpy(machine.dual_coef_[0]).to(labels)
    bias = float(machine.intercept_[0])
    image = kernel @ a
    square = float((a.double() * image.double()).sum())
    slack = (1 - labels * (image + bias)).clamp(min=0)
    primal = square / 2 + float((costs.double() * slack.double()).sum())
    dual = float(a.double().abs().sum()) - square / 2
    certificate = Certificate(primal, dual, tolerance, int(machine.n_iter_.sum()), min(op.left.shape), "svc")
    return HingeSolution(a, bias, image + bias, certificate)
