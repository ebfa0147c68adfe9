"""A factored method with occasional proximal steps, after Lee, Liang, Tang and Toh, JMLR 2024 (BM-Global): plain torch.

The factors of :math:`B = X Z^T` go by nonlinear conjugate gradients, whose line search is exact since the squared loss is
a polynomial of degree four along a line. After some steps of that a proximal gradient step on the product, on the
leading singular subspace, finds the rank and leaves saddle points. No rank is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mvgp.mean import MeanProblem, SpectralElasticNet
from mvgp.mean.factored import FactoredProblem
from mvgp.mean.low_rank import leading_values, random_images
from mvgp.mean.problem import dual_bound, times

from .mean import Clock, largest, regression

EXTRA = 16  # directions beyond the rank in a proximal step; a quarter of the rank if that is more
FACTOR_STEPS = 20  # between two proximal steps
PASSES = 2  # of block power iteration in a proximal step


def bm_global(strength: float, problem: dict[str, Any], goal: float, seconds: float) -> Callable[[], dict]:
    """Until the gap is at most ``goal``, or time is up; the certificates are part of the time."""
    given = regression(**problem)
    l1 = strength * largest(given, problem["observed"], problem["precision"], 1e-7)

    @torch.no_grad()
    def run() -> dict:
        clock, factored = Clock(), FactoredProblem(given)
        x, z = (torch.zeros(size, 0, dtype=given.dtype) for size in factored.sizes)
        lipschitz, generator, gap, cycles = 0.1 * given.lipschitz(), torch.Generator().manual_seed(0), np.inf, 0
        while gap > goal and time.perf_counter() - clock.began < seconds:
            x, z, lipschitz = _proximal(factored, x, z, l1, lipschitz, generator)
            clock(_value(factored, x, z, l1))
            x, z = _conjugate(factored, x, z, l1, clock)
            cycles += 1
            if cycles % 3 == 0:
                gap = _gap(given, factored, x, z, l1)
        return {"seen": clock.seen, "best": clock.seen[-1][1], "gap": gap, "rank": x.shape[1], "steps": len(clock.seen)}

    return run


def _value(factored: FactoredProblem, x: Tensor, z: Tensor, l1: float) -> float:
    """Of the product: its trace norm, not the larger one of the factors."""
    u, v = torch.linalg.qr(x)[1], torch.linalg.qr(z)[1]
    return factored.problem.loss(factored.psi(x, z)).value + l1 * float(torch.linalg.svdvals(u @ v.mT).sum())


def _proximal(
    factored: FactoredProblem, x: Tensor, z: Tensor, l1: float, lipschitz: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, float]:
    """One proximal gradient step from X Z^T by randomised subspace iteration; balanced factors, and the curvature."""
    psi = factored.psi(x, z)
    at = factored.problem.loss(psi)
    theta, theta_t = factored.problem.sparse(at.gradient)
    fresh = torch.randn(len(z), max(EXTRA, z.shape[1] // 4), generator=generator, dtype=torch.float64).to(z)
    while True:
        block = torch.cat([z, fresh], dim=1)
        for _ in range(PASSES):
            left = x @ (z.mT @ block)
            left -= factored.row_root.mT._matmul(times(theta, factored.col_root._matmul(block))) / lipschitz
            left = torch.linalg.qr(left)[0]
            block = z @ (x.mT @ left)
            block -= factored.col_root.mT._matmul(times(theta_t, factored.row_root._matmul(left))) / lipschitz
        v, values, turn = torch.linalg.svd(block, full_matrices=False)
        values = (values - l1 / lipschitz).clamp_min(0)
        rank = max(int((values > 0).sum()), 1)
        half = values[:rank].sqrt()
        new_x, new_z = left @ turn.mT[:, :rank] * half, v[:, :rank] * half
        moved = factored.psi(new_x, new_z) - psi
        grams = (new_x.mT @ new_x, new_z.mT @ new_z), (x.mT @ x, z.mT @ z), (new_x.mT @ x, new_z.mT @ z)
        sizes = [float((a * b).sum()) for a, b in grams]
        length = sizes[0] + sizes[1] - 2 * sizes[2]
        if float(moved.square().sum()) <= lipschitz * length * (1 + 1e-9) or length <= 0:
            return new_x, new_z, 0.8 * lipschitz
        lipschitz *= 1.5


def _conjugate(factored: FactoredProblem, x: Tensor, z: Tensor, l1: float, clock: Clock) -> tuple[Tensor, Tensor]:
    """Polak-Ribiere steps on both factors."""
    pattern, loss = factored.problem.pattern, factored.problem.loss
    images = factored.row_root._matmul(x), factored.col_root._matmul(z)
    psi = pattern.sample(*images)
    before = direction = None
    for _ in range(FACTOR_STEPS):
        theta, theta_t = factored.problem.sparse(loss(psi).gradient)
        gradient = (
            factored.row_root.mT._matmul(times(theta, images[1])) + l1 * x,
            factored.col_root.mT._matmul(times(theta_t, images[0])) + l1 * z,
        )
        steep = sum(float(part.square().sum()) for part in gradient)
        downhill = tuple(-part for part in gradient)
        if direction is not None and before is not None:
            old = sum(float(part.square().sum()) for part in before)
            beta = max(0.0, (steep - sum(float((a * b).sum()) for a, b in zip(gradient, before, strict=True))) / old)
            turned = tuple(a + beta * b for a, b in zip(downhill, direction, strict=True))
            if sum(float((a * b).sum()) for a, b in zip(turned, gradient, strict=True)) < 0:
                downhill = turned
        direction, before = downhill, gradient
        moves = factored.row_root._matmul(direction[0]), factored.col_root._matmul(direction[1])
        linear = pattern.sample(moves[0], images[1]) + pattern.sample(images[0], moves[1])
        square = pattern.sample(*moves)
        length = _best_length(loss, psi, linear, square, (x, z), direction, l1)
        if length == 0:
            break
        x, z = x + length * direction[0], z + length * direction[1]
        images = images[0] + length * moves[0], images[1] + length * moves[1]
        psi = psi + length * linear + length**2 * square
        clock(loss(psi).value + l1 / 2 * float(x.square().sum() + z.square().sum()))
    return x, z


def _best_length(
    loss: Any, psi: Tensor, linear: Tensor, square: Tensor, at: tuple, direction: tuple, l1: float
) -> float:
    """The smallest positive root of the derivative of the objective along the direction."""
    off = psi - loss.targets
    quartic = [2 * square @ square, 3 * linear @ square, linear @ linear + 2 * off @ square, off @ linear]
    quartic[2] = quartic[2] + l1 * sum((part * part).sum() for part in direction)
    quartic[3] = quartic[3] + l1 * sum((a * b).sum() for a, b in zip(at, direction, strict=True))
    roots = np.roots([float(c) for c in quartic])
    real = [float(root.real) for root in roots if abs(root.imag) <= 1e-9 * abs(root) and root.real > 0]
    return min(real, default=0.0)


def _gap(given: MeanProblem, factored: FactoredProblem, x: Tensor, z: Tensor, l1: float) -> float:
    right = factored.col_root._matmul(z)
    at = given.loss(given.pattern.sample(factored.row_root._matmul(x), right))
    block = torch.cat([right, random_images(given, 16, 1)], dim=1)
    values = leading_values(given, at.gradient, block, accuracy=1e-6).values
    value = _value(factored, x, z, l1)
    return float((value - dual_bound(at, values, SpectralElasticNet(l1, 1.0))) / value)
