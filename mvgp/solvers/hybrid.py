"""The algorithm the paper used (Laue 2012): greedy rank-one steps and local optimisation of the factors."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import check_iterations
from ..errors import InputError
from .certificate import Certificate, dual_bound
from .checks import check_solve
from .factored import FactoredProblem
from .losses import LossValue
from .low_rank import LowRank, from_images
from .penalties import Penalty, SpectralElasticNet
from .problem import MeanProblem
from .solution import MeanSolution
from .spectrum import Triplets, leading_values, random_images
from .spectrum_bound import bound_spectrum, spectrum_edge


def solve_hybrid(
    problem: MeanProblem,
    penalty: Penalty,
    *,
    tolerance: float,
    max_iterations: int = 200,
    local_iterations: int = 200,
) -> MeanSolution:
    r"""Grow B by the gradient's top singular pairs, polish the factors by L-BFGS, until the gap closes.

    .. math:: \min_B f(G_M B G_N^T) + h(B)

    :param problem: loss f and kernels of an M x N matrix.
    :param penalty: h, a function of the singular values.
    :param tolerance: on the relative duality gap.
    :param max_iterations: growth steps.
    :param local_iterations: of L-BFGS, in each.
    """
    tolerance, max_iterations = check_solve(problem, tolerance, max_iterations)
    local_iterations = check_iterations(local_iterations, "local_iterations")
    if not isinstance(penalty, SpectralElasticNet) or penalty.trace == 0:
        raise InputError("the hybrid solver takes a SpectralElasticNet with alpha > 0")
    factored = FactoredProblem(problem)
    d_rows, d_cols = factored.sizes
    x = torch.zeros(d_rows, 0, dtype=problem.dtype, device=problem.device)
    z = torch.zeros(d_cols, 0, dtype=problem.dtype, device=problem.device)
    mean = LowRank.zero(problem)
    at = problem.loss(mean.psi(problem))
    images = random_images(problem, 8, seed=0)
    found = leading_values(problem, at.gradient, images, accuracy=0.01 * tolerance)
    certificate = _certificate(problem, penalty, mean, at, found, tolerance, 0)
    for iteration in range(1, max_iterations + 1):
        if certificate.converged:
            break
        # the top pair of the smooth part's gradient enters with a small weight, downhill
        images = torch.cat([found.right_image[:, -8:], random_images(problem, 8, seed=iteration)], dim=1)
        parts = [(penalty.ridge, mean)]
        top = leading_values(problem, at.gradient, images, accuracy=1e-6, max_passes=200, parts=parts)
        u, v = _primal(factored, top.left[:, :1], top.right[:, :1])
        size = ((top.values[:1] - penalty.trace).clamp_min(1e-3 * penalty.trace) / problem.lipschitz()).sqrt()
        x, z = torch.cat([x, -u * size], dim=1), torch.cat([z, v * size], dim=1)
        x, z, _, _ = factored.minimise(x, z, penalty.trace, penalty.ridge, max_iterations=local_iterations)
        u, s, v = svd_of_product(x, z)
        x, z = u * s.sqrt(), v * s.sqrt()
        mean = from_images(problem, factored.row_root._matmul(u), factored.col_root._matmul(v), s)
        at = problem.loss(mean.psi(problem))
        images = torch.cat([mean.right_image, random_images(problem, 8, seed=iteration)], dim=1)
        found = leading_values(problem, at.gradient, images, accuracy=0.01 * tolerance)
        certificate = _certificate(problem, penalty, mean, at, found, tolerance, iteration)
    spare = random_images(problem, 8, seed=0)
    return MeanSolution(mean, mean.psi(problem), at, certificate, spare, problem.lipschitz())


def _certificate(
    problem: MeanProblem,
    penalty: Penalty,
    mean: LowRank,
    at: LossValue,
    found: Triplets,
    tolerance: float,
    iteration: int,
) -> Certificate:
    """From singular values that are not too small; see :mod:`~mvgp.solvers.spectrum_bound`."""
    primal = at.value + penalty.value(mean.values)

    def dual_of(values: Tensor) -> float:
        return dual_bound(at, values, penalty)

    edge = spectrum_edge(penalty, found, mean.rank)
    bound = bound_spectrum(problem, at.gradient, found, edge, dual_of, primal * (1 - tolerance))
    failure = bound.failure * (iteration + 1)  # one confirmation in every iteration so far
    return Certificate(primal, dual_of(bound.values), tolerance, iteration, mean.rank, "hybrid", failure)


def _primal(factored: FactoredProblem, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """U = G_M^T C and V = G_N^T D."""
    return factored.row_root.mT._matmul(left), factored.col_root.mT._matmul(right)


def svd_of_product(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, s, V of X Z^T from its factors; null directions are dropped."""
    qx, rx = torch.linalg.qr(x)
    qz, rz = torch.linalg.qr(z)
    u, s, vt = torch.linalg.svd(rx @ rz.mT, full_matrices=False)
    kept = s > 1e-7 * s[:1].clamp_min(1e-300)
    return qx @ u[:, kept], s[kept], qz @ vt[kept].mT
