"""The slow judge for small problems: accelerated proximal gradient on the dense matrix, with full SVDs."""

from __future__ import annotations

import torch
from torch import Tensor

from ..linalg.roots import root
from .certificate import Certificate, dual_bound
from .checks import check_penalty, check_solve
from .losses import LossValue
from .low_rank import LowRank, from_images
from .penalties import Penalty
from .problem import MeanProblem
from .solution import MeanSolution


def solve_dense(
    problem: MeanProblem, penalty: Penalty, *, tolerance: float, max_iterations: int = 20_000
) -> MeanSolution:
    r"""Exact singular values in every step; nothing is truncated, nothing is warm-started. For small problems.

    .. math:: \min_B f(G_M B G_N^T) + h(B)

    :param problem: loss f and kernels of an M x N matrix.
    :param penalty: h, a function of the singular values.
    :param tolerance: on the relative duality gap.
    :param max_iterations: proximal steps.
    """
    tolerance, max_iterations = check_solve(problem, tolerance, max_iterations)
    check_penalty(penalty)
    row_root, col_root = root(problem.row_op).to_dense(), root(problem.col_op).to_dense()
    pattern = problem.pattern
    step = 1 / max(problem.lipschitz(), 1e-300)

    def psi_of(b: Tensor) -> Tensor:
        return (row_root @ b @ col_root.mT)[pattern.rows, pattern.cols]

    def gradient_of(theta: Tensor) -> Tensor:
        return row_root.mT @ pattern.matrix(theta).to_dense() @ col_root

    now = torch.zeros(row_root.shape[1], col_root.shape[1], dtype=problem.dtype, device=problem.device)
    ahead, momentum = now, 1.0
    values = torch.zeros(0, dtype=problem.dtype, device=problem.device)
    at = problem.loss(psi_of(now))
    objective = at.value + penalty.value(values)
    certificate = _certify(penalty, at, gradient_of(at.gradient), values, tolerance, 0)
    iteration = 0
    while iteration < max_iterations and not certificate.converged:
        iteration += 1
        u, s, vt = torch.linalg.svd(
            ahead - step * gradient_of(problem.loss(psi_of(ahead)).gradient), full_matrices=False
        )
        shrunk = penalty.shrink(s, step)
        fresh = (u * shrunk) @ vt
        at_fresh = problem.loss(psi_of(fresh))
        reached = at_fresh.value + penalty.value(shrunk)
        if reached > objective and momentum > 1:
            ahead, momentum = now, 1.0
            continue
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = fresh + (momentum - 1) / following * (fresh - now)
        now, values, at, objective, momentum = fresh, shrunk, at_fresh, reached, following
        if iteration % 10 == 0:
            certificate = _certify(penalty, at, gradient_of(at.gradient), values, tolerance, iteration)
    certificate = _certify(penalty, at, gradient_of(at.gradient), values, tolerance, iteration)
    mean = _to_low_rank(problem, row_root, col_root, now)
    spare = torch.zeros(problem.shape[1], 0, dtype=problem.dtype, device=problem.device)
    return MeanSolution(mean, mean.psi(problem), at, certificate, spare, 1 / step)


def _certify(
    penalty: Penalty, at: LossValue, gradient: Tensor, values: Tensor, tolerance: float, iteration: int
) -> Certificate:
    primal = at.value + penalty.value(values)
    dual = dual_bound(at, torch.linalg.svdvals(gradient), penalty)
    return Certificate(primal, dual, tolerance, iteration, int((values > 0).sum()), "dense")


def _to_low_rank(problem: MeanProblem, row_root: Tensor, col_root: Tensor, b: Tensor) -> LowRank:
    u, s, vt = torch.linalg.svd(b, full_matrices=False)
    kept = s > 1e-12 * s[:1].clamp_min(1e-300)
    return from_images(problem, row_root @ u[:, kept], col_root @ vt[kept].mT, s[kept])
