r"""Conjugate gradients on the factors :math:`B = X Z^T`, in dual coordinates: :math:`X = G_M^T C,\ Z = G_N^T D`.

.. math:: F(X, Z) = f + \tfrac{l_1}{2} (\|X\|_F^2 + \|Z\|_F^2) + \tfrac{l_2}{2} \|X Z^T\|_F^2

bounds the objective from above and meets it at balanced factors. A step costs one product with each kernel; directions
that are about to enter grow at the rate of conjugate gradients rather than of power iteration. The metric is that of X
and Z, so that :math:`\nabla_C = \Theta K_N D + l_1 C + \dots`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..likelihoods.losses import LossValue, long_dot
from .low_rank import Iterate, LowRank, MeanSolution, orthonormal
from .problem import MeanProblem, SpectralElasticNet, times

JOIN_SHARE = 0.97  # singular values of the gradient above this share of the threshold get a factor of their own


@dataclass(frozen=True)
class Factors:
    """Factors, or a direction among them, with their images."""

    left: Tensor  # C (M, R)
    right: Tensor  # D (N, R)
    left_image: Tensor  # K_M C (M, R)
    right_image: Tensor  # K_N D (N, R)

    def plus(self, scale: float, other: Factors) -> Factors:
        """Self + scale * other"""
        return Factors(*(torch.add(a, b, alpha=scale) for a, b in zip(self.parts, other.parts, strict=True)))

    def scaled(self, left: Tensor, right: Tensor) -> Factors:
        """Columns multiplied by ``left`` (R,) and ``right`` (R,)."""
        return Factors(self.left * left, self.right * right, self.left_image * left, self.right_image * right)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """C, D and their images."""
        return self.left, self.right, self.left_image, self.right_image

    def dot(self, other: Factors) -> float:
        """<X, X'> + <Z, Z'>"""
        return _dot(self.left, other.left_image) + _dot(self.right, other.right_image)


def conjugate_steps(
    problem: MeanProblem,
    penalty: SpectralElasticNet,
    now: Iterate,
    triplets: LowRank,
    *,
    steps: int,
    watch: Callable[[float], None] | None = None,
) -> Iterate:
    """Nonlinear conjugate gradients (Polak-Ribiere); ``triplets`` of the gradient that are near the threshold join."""
    factors = _joined(now, triplets, penalty)
    l1, l2 = penalty.trace, penalty.ridge
    psi = problem.pattern.sample(factors.left_image, factors.right_image)
    at = problem.loss(psi)
    values = (_lengths(factors.left, factors.left_image) * _lengths(factors.right, factors.right_image)).sqrt()
    scale = 1 / (l1 + (now.lipschitz + l2) * values)  # (R,)
    direction = before = None
    slope_before = 0.0
    for _ in range(steps):
        gradient = _gradient(problem, at, factors, l1, l2)
        downhill = gradient.scaled(-scale, -scale)
        steep = -downhill.dot(gradient)
        if not steep > 0:
            break
        beta = max(0.0, (steep + downhill.dot(before)) / slope_before) if before is not None else 0.0
        turned = downhill.plus(beta, direction) if beta and direction is not None else downhill
        direction = turned if turned.dot(gradient) < 0 else downhill
        before, slope_before = gradient, steep
        length, psi, at = _line_search(problem, at, psi, factors, direction, l1, l2)
        if length == 0.0:
            break
        factors = factors.plus(length, direction)
        if watch:
            watch(at.value + _penalty(factors, l1, l2))
    return Iterate.of(problem, balanced(factors), now.spare, now.lipschitz)


def balanced(factors: Factors) -> LowRank:
    """The singular value decomposition of X Z^T."""
    left, left_image = orthonormal(factors.left, factors.left_image)
    right, right_image = orthonormal(factors.right, factors.right_image)
    core = (left_image.mT @ factors.left).double() @ (right_image.mT @ factors.right).double().mT
    u, values, v = torch.linalg.svd(core, full_matrices=False)
    kept = values > torch.finfo(left.dtype).eps * values[:1]
    u, v = u[:, kept].to(left.dtype), v.mT[:, kept].to(left.dtype)
    return LowRank(left @ u, right @ v, values[kept].to(left.dtype), left_image @ u, right_image @ v)


def moved_to(now: Iterate | MeanSolution, problem: MeanProblem) -> Iterate:
    """The iterate in another problem's precision."""
    left, right, values = (x.to(problem.dtype) for x in (now.mean.left, now.mean.right, now.mean.values))
    factors = Factors(left * values, right, problem.rows_times(left) * values, problem.cols_times(right))
    return Iterate.of(problem, balanced(factors), now.spare.to(problem.dtype), now.lipschitz)


def carried_over(solution: MeanSolution, problem: MeanProblem) -> MeanSolution:
    """The solution of a problem with other kernels, as a start for this one."""
    now = moved_to(solution, problem)
    return MeanSolution(now.mean, now.psi, now.at, solution.certificate, now.spare, now.lipschitz)


def _joined(now: Iterate, triplets: LowRank, penalty: SpectralElasticNet) -> Factors:
    """The iterate's factors, and small ones for new directions."""
    joins = triplets.values > JOIN_SHARE * penalty.trace
    joins[: now.mean.rank] = False
    # a first size well below what the full step (y - l1) / L would give
    size = (0.05 * (triplets.values[joins] - JOIN_SHARE * penalty.trace) / now.lipschitz).sqrt()
    old, new = (Factors(b.left, b.right, b.left_image, b.right_image) for b in (now.mean, triplets))
    root = now.mean.values.sqrt()
    old, new = old.scaled(root, root), Factors(*(part[:, joins] for part in new.parts)).scaled(-size, size)
    return Factors(*(torch.cat(parts, dim=1) for parts in zip(old.parts, new.parts, strict=True)))


def _gradient(problem: MeanProblem, at: LossValue, factors: Factors, l1: float, l2: float) -> Factors:
    theta, theta_t = problem.sparse(at.gradient)
    left = times(theta, factors.right_image).add_(factors.left, alpha=l1)
    right = times(theta_t, factors.left_image).add_(factors.right, alpha=l1)
    if l2:
        left.addmm_(factors.left, factors.right.mT @ factors.right_image, alpha=l2)
        right.addmm_(factors.right, factors.left.mT @ factors.left_image, alpha=l2)
    return Factors(left, right, problem.rows_times(left), problem.cols_times(right))


def _line_search(
    problem: MeanProblem, at: LossValue, psi: Tensor, factors: Factors, direction: Factors, l1: float, l2: float
) -> tuple[float, Tensor, LossValue]:
    """A step length at which the slope has all but vanished; psi and the loss there."""
    size, speed = factors.dot(factors), direction.dot(direction)
    if not (size > 0 and speed > 0):  # squared lengths below 0 are rounding: nothing is left to move along
        return 0.0, psi, at
    # psi(t) = psi + t linear + t^2 square, from two samples as far away as the factors are long
    reach = (size / speed) ** 0.5
    ends = (factors.plus(t, direction) for t in (reach, -reach))
    ahead, behind = (problem.pattern.sample(end.left_image, end.right_image) for end in ends)
    linear, square = (ahead - behind) / (2 * reach), ((ahead + behind) / 2 - psi) / reach**2
    of_penalty = _penalty_slopes(factors, direction, l1, l2)

    def slope(loss: LossValue, t: float) -> float:
        along = _dot(loss.gradient, linear) + 2 * t * _dot(loss.gradient, square)
        return along + sum(c * t**k for k, c in enumerate(of_penalty))

    first = slope(at, 0.0)
    if not first < 0:
        return 0.0, psi, at
    curvature = problem.loss.quadratic_bound(linear) + 2 * _dot(at.gradient, square) + of_penalty[1]
    length = -first / curvature if curvature > 0 else 1.0
    low, slope_low, high, slope_high = 0.0, first, float("inf"), 0.0
    for _ in range(12):
        there = torch.add(psi, linear, alpha=length).add_(square, alpha=length**2)
        loss = problem.loss(there)
        steepness = slope(loss, length)
        if abs(steepness) <= 0.1 * abs(first):
            break
        if steepness < 0:
            low, slope_low = length, steepness
        else:
            high, slope_high = length, steepness
        if high == float("inf"):
            length = 3 * low
        else:
            share = slope_low / (slope_low - slope_high)
            length = low + (high - low) * min(max(share, 0.1), 0.9)
    return length, there, loss


def _penalty_slopes(factors: Factors, direction: Factors, l1: float, l2: float) -> list[float]:
    """Coefficients of the derivative of the penalty along a direction, as a polynomial in the step length."""
    slopes = [l1 * factors.dot(direction), l1 * direction.dot(direction), 0.0, 0.0]
    if l2:
        left, right = (
            _gram_polynomial(factors.parts[k], factors.parts[k + 2], direction.parts[k], direction.parts[k + 2])
            for k in (0, 1)
        )
        for i, a in enumerate(left):
            for j, b in enumerate(right):
                if i + j:
                    slopes[i + j - 1] += l2 / 2 * (i + j) * _dot(a, b)
    return slopes


def _gram_polynomial(dual: Tensor, image: Tensor, by: Tensor, by_image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(X + t x)^T (X + t x) = a_0 + t a_1 + t^2 a_2."""
    cross = dual.mT @ by_image
    return dual.mT @ image, cross + cross.mT, by.mT @ by_image


def _penalty(factors: Factors, l1: float, l2: float) -> float:
    value = l1 / 2 * factors.dot(factors)
    if l2:
        grams = [factors.parts[k].mT @ factors.parts[k + 2] for k in (0, 1)]
        value += l2 / 2 * _dot(grams[0], grams[1])
    return value


def _lengths(dual: Tensor, image: Tensor) -> Tensor:
    return (dual * image).sum(0).clamp_min(0)


def _dot(a: Tensor, b: Tensor) -> float:
    """<a, b>, long sums in double precision."""
    if a.dim() == 1:
        return long_dot(a, b)
    return float((a * b).sum(0).double().sum())
