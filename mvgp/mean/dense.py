"""The reference solver for small problems: accelerated proximal gradient on the dense matrix, with full SVDs."""

from __future__ import annotations

import torch
from torch import Tensor

from ..linalg.roots import root
from .low_rank import MeanSolution, from_images
from .problem import Certificate, MeanProblem, Penalty, Requirements, check_requirements, check_solve, dual_bound

REQUIRES = Requirements(loss=("__call__", "curvature"), penalty=("shrink", "value", "conjugate"))


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
    check_requirements("solve_dense", REQUIRES, problem.loss, penalty)
    row_root, col_root = root(problem.row_op).to_dense(), root(problem.col_op).to_dense()
    pattern = problem.pattern
    step = 1 / max(problem.lipschitz(), 1e-300)

    def psi_of(b: Tensor) -> Tensor:
        return (row_root @ b @ col_root.mT)[pattern.rows, pattern.cols]

    def gradient_of(theta: Tensor) -> Tensor:
        return row_root.mT @ pattern.matrix(theta).to_dense() @ col_root

    def certify(iteration: int) -> Certificate:
        dual = dual_bound(at, torch.linalg.svdvals(gradient_of(at.gradient)), penalty)
        return Certificate(objective, dual, tolerance, iteration, int((values > 0).sum()), "dense")

    now = torch.zeros(row_root.shape[1], col_root.shape[1], dtype=problem.dtype, device=problem.device)
    ahead, momentum, values = now, 1.0, now.new_zeros(0)
    at = problem.loss(psi_of(now))
    objective = at.value + penalty.value(values)
    certificate = certify(0)
    iteration = 0
    while iteration < max_iterations and not certificate.converged:
        iteration += 1
        moved = ahead - step * gradient_of(problem.loss(psi_of(ahead)).gradient)
        u, s, vt = torch.linalg.svd(moved, full_matrices=False)
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
            certificate = certify(iteration)
    u, s, vt = torch.linalg.svd(now, full_matrices=False)
    kept = s > 1e-12 * s[:1].clamp_min(1e-300)
    mean = from_images(problem, row_root @ u[:, kept], col_root @ vt[kept].mT, s[kept])
    spare = now.new_zeros(problem.shape[1], 0)
    return MeanSolution(mean, mean.psi(problem), at, certify(iteration), spare, 1 / step)
