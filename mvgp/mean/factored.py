r"""Three solvers to compare with: two algorithms of the paper, and a dense reference.

:func:`solve_hybrid` (Laue 2012) takes greedy rank-one steps and optimises the factors :math:`B = X Z^T` by L-BFGS:

.. math:: f(G_M X Z^T G_N^T) + \tfrac{l_1}{2} (\|X\|_F^2 + \|Z\|_F^2) + \tfrac{l_2}{2} \|X Z^T\|_F^2

is an upper bound on the objective with the spectral elastic net, and meets it at balanced factors.
:func:`solve_dense` is accelerated proximal gradient on the dense matrix, with full SVDs, for small problems.
:func:`solve_alternating` is Algorithm 1 of the paper, the mean and the targets of a ranking in turns:

.. math:: \min_{B,\, a,\, r \in C}\; \tfrac12 \sum_t w_t (\psi_t + a_{m_t} - r_t)^2 + h(B), \qquad \psi = G_M B G_N^T

Block-coordinate descent: (B, a) for fixed r is a squared loss, r for fixed (B, a) is the projection (8). Without the
row bias a this is the problem that any solver of the mean solves at once when given a
:class:`~mvgp.likelihoods.RetargetedLoss`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from linear_operator import LinearOperator
from scipy.optimize import minimize
from torch import Tensor

from ..checks import check_callable, check_flag, check_iterations, check_whole_number
from ..errors import InputError
from ..likelihoods.losses import BiasedSquaredLoss, Loss, LossValue, RetargetedLoss, SquaredLoss
from ..linalg.pairs import Pattern
from ..linalg.spectra import root
from ..progress import report_step
from ..tensor_checks import as_reals
from .low_rank import LowRank, MeanSolution, from_images, leading_values, random_images
from .problem import (
    Certificate,
    MeanProblem,
    Penalty,
    SpectralElasticNet,
    check_requirements,
    check_solve,
    dual_bound,
    times,
)
from .proximal import REQUIRES as PROXIMAL_REQUIRES
from .proximal import solve_proximal
from .spectrum_bound import bound_spectrum, spectrum_edge

REQUIRES = {"loss": ("__call__", "curvature"), "penalty": ("value", "conjugate", "trace", "ridge")}
DENSE_REQUIRES = {"loss": ("__call__", "curvature"), "penalty": ("shrink", "value", "conjugate")}


class FactoredProblem:
    """Roots of the kernels, and the objective of factors X (D_M, R) and Z (D_N, R)."""

    def __init__(self, problem: MeanProblem) -> None:
        self.problem = problem
        self.row_root: LinearOperator = root(problem.row_op)
        self.col_root: LinearOperator = root(problem.col_op)

        self.sizes = int(self.row_root.shape[-1]), int(self.col_root.shape[-1])  # (D_M, D_N)

    def with_loss(self, loss: Loss) -> FactoredProblem:
        """The same kernels with another loss."""
        other = copy.copy(self)
        other.problem = MeanProblem(self.problem.row_op, self.problem.col_op, self.problem.pattern, loss)
        return other

    def psi(self, x: Tensor, z: Tensor) -> Tensor:
        """(T,): at the observed pairs."""
        return self.problem.pattern.sample(self.row_root._matmul(x), self.col_root._matmul(z))

    def random(self, rank: int, scale: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Random factors of the given rank."""
        x, z = (scale * torch.randn(n, rank, generator=generator, dtype=torch.float64) for n in self.sizes)
        return x.to(self.problem.dtype), z.to(self.problem.dtype)

    def from_svd(self, u: Tensor, values: Tensor, v: Tensor) -> LowRank:
        """B = U diag(s) V^T in dual coordinates."""
        return from_images(self.problem, self.row_root._matmul(u), self.col_root._matmul(v), values)

    def objective(self, x: Tensor, z: Tensor, l1: float, l2: float) -> tuple[float, Tensor, Tensor]:
        """Value, and gradients in X and Z."""
        p, q = self.row_root._matmul(x), self.col_root._matmul(z)  # (M, R), (N, R)
        at = self.problem.loss(self.problem.pattern.sample(p, q))
        theta, theta_t = self.problem.sparse(at.gradient)
        of_x, of_z = x.mT @ x, z.mT @ z
        value = at.value + l1 / 2 * float((x.double() ** 2).sum() + (z.double() ** 2).sum())
        value += l2 / 2 * float((of_x.double() * of_z.double()).sum())
        grad_x = self.row_root.mT._matmul(times(theta, q)) + l1 * x + l2 * (x @ of_z)
        grad_z = self.col_root.mT._matmul(times(theta_t, p)) + l1 * z + l2 * (z @ of_x)
        return value, grad_x, grad_z

    def minimise(
        self,
        x: Tensor,
        z: Tensor,
        l1: float,
        l2: float,
        *,
        max_iterations: int,
        watch: Callable[[float], None] | None = None,
    ) -> tuple[Tensor, Tensor, float, int]:
        """A local minimum near (X, Z): the factors, the value, and the evaluations used, each told to ``watch``."""
        rank, cut = x.shape[1], x.numel()

        def flat(a: Tensor, b: Tensor) -> np.ndarray:
            return torch.cat([a.flatten(), b.flatten()]).double().cpu().numpy()

        def factors(vector: np.ndarray) -> tuple[Tensor, Tensor]:
            both = torch.from_numpy(vector).to(dtype=x.dtype, device=x.device)
            return both[:cut].reshape(-1, rank), both[cut:].reshape(-1, rank)

        def call(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, grad_x, grad_z = self.objective(*factors(vector), l1, l2)
            report_step()
            if watch:
                watch(value)
            return value, flat(grad_x, grad_z)

        first = call(flat(x, z))[0]
        options: Any = {"maxiter": max_iterations, "maxfun": 2 * max_iterations, "ftol": 1e-15}
        options["gtol"] = 1e-8 * max(abs(first), 1.0) ** 0.5
        done = minimize(call, flat(x, z), jac=True, method="L-BFGS-B", options=options)
        best_x, best_z = factors(done.x)
        return best_x, best_z, float(done.fun), int(done.nfev)


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
    check_requirements("solve_hybrid", REQUIRES, problem.loss, penalty)
    if not isinstance(penalty, SpectralElasticNet) or penalty.trace == 0:
        raise InputError("the hybrid solver takes a SpectralElasticNet with alpha > 0")
    factored = FactoredProblem(problem)

    def certify(mean: LowRank, iteration: int) -> tuple[LossValue, LowRank, Certificate]:
        """The loss, leading singular triplets of its gradient, and the gap from values that are not too small."""
        at = problem.loss(mean.psi(problem))
        images = torch.cat([mean.right_image, random_images(problem, 8, seed=iteration)], dim=1)
        triplets = leading_values(problem, at.gradient, images, accuracy=0.01 * tolerance)
        primal, edge = at.value + penalty.value(mean.values), spectrum_edge(penalty, triplets, mean.rank)

        def dual_of(values: Tensor) -> float:
            return dual_bound(at, values, penalty)

        bound = bound_spectrum(problem, at.gradient, triplets, edge, dual_of, primal * (1 - tolerance))
        failure = bound.failure * (iteration + 1)  # one confirmation in every iteration so far
        dual = dual_of(bound.values)
        return at, triplets, Certificate(primal, dual, tolerance, iteration, mean.rank, "hybrid", failure)

    x, z = (torch.zeros(size, 0, dtype=problem.dtype, device=problem.device) for size in factored.sizes)
    mean = LowRank.zero(problem)
    at, triplets, certificate = certify(mean, 0)
    for iteration in range(1, max_iterations + 1):
        if certificate.converged:
            break
        # the top pair of the smooth part's gradient enters with a small weight, downhill
        images = torch.cat([triplets.right_image[:, -8:], random_images(problem, 8, seed=iteration)], dim=1)
        parts = [(penalty.ridge, mean)]
        top = leading_values(problem, at.gradient, images, accuracy=1e-6, max_passes=200, parts=parts)
        u = factored.row_root.mT._matmul(top.left[:, :1])  # U = G_M^T C
        v = factored.col_root.mT._matmul(top.right[:, :1])
        size = ((top.values[:1] - penalty.trace).clamp_min(1e-3 * penalty.trace) / problem.lipschitz()).sqrt()
        x, z = torch.cat([x, -u * size], dim=1), torch.cat([z, v * size], dim=1)
        x, z, _, _ = factored.minimise(x, z, penalty.trace, penalty.ridge, max_iterations=local_iterations)
        u, s, v = svd_of_product(x, z)
        x, z = u * s.sqrt(), v * s.sqrt()
        mean = factored.from_svd(u, s, v)
        at, triplets, certificate = certify(mean, iteration)
    spare = random_images(problem, 8, seed=0)
    return MeanSolution(mean, mean.psi(problem), at, certificate, spare, problem.lipschitz())


def svd_of_product(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, s, V of X Z^T from its factors; null directions are dropped."""
    qx, rx = torch.linalg.qr(x)
    qz, rz = torch.linalg.qr(z)
    u, s, vt = torch.linalg.svd(rx @ rz.mT, full_matrices=False)
    kept = s > 1e-7 * s[:1].clamp_min(1e-300)
    return qx @ u[:, kept], s[kept], qz @ vt[kept].mT


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
    check_requirements("solve_dense", DENSE_REQUIRES, problem.loss, penalty)
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
            report_step("gap", certificate.relative_gap, tolerance)
    u, s, vt = torch.linalg.svd(now, full_matrices=False)
    kept = s > 1e-12 * s[:1].clamp_min(1e-300)
    mean = from_images(problem, row_root @ u[:, kept], col_root @ vt[kept].mT, s[kept])
    spare = now.new_zeros(problem.shape[1], 0)
    return MeanSolution(mean, mean.psi(problem), at, certify(iteration), spare, 1 / step)


# In turns ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AlternatingSolution:
    """Where the rounds led.

    :param solution: the mean; its certificate is that of the last half step, with the targets of that step held fixed.
    :param row_bias: (M,) a; zeros when there is none.
    :param targets: (T,) r, the last retargeting.
    :param objectives: after each half step: mean, retargeting, mean, and so on. From the second one on they do not
        increase, but for rounding; from the first one on if the first targets were in the set.
    :param certificate: evidence for the joint problem in (B, r); None with a row bias, for which there is no bound.
    """

    solution: MeanSolution
    row_bias: Tensor
    targets: Tensor
    objectives: tuple[float, ...]
    certificate: Certificate | None

    @property
    def objective(self) -> float:
        """The last one."""
        return self.objectives[-1]


def solve_alternating(
    problem: MeanProblem,
    penalty: Penalty,
    retarget: Callable[[Tensor], Tensor],
    *,
    start: Tensor,
    rounds: int,
    tolerance: float,
    row_bias: bool = False,
    max_iterations: int = 500,
) -> AlternatingSolution:
    """Rounds of two half steps: the mean for the current targets, then the targets for the current mean.

    :param problem: kernels and observed pairs; of its loss only the weights are used.
    :param penalty: h.
    :param retarget: scores (T,) -> r (T,), the projection onto the target set in the norm with these weights.
    :param start: (T,) the first targets: the labels, or zeros to begin with the retargeting of a zero mean.
    :param rounds: how many, at least 1.
    :param tolerance: on the relative duality gap of each mean.
    :param row_bias: whether each row has a free bias, as in the paper; rows are the tasks.
    :param max_iterations: of the solver of the mean, for each round.

    Example:
        >>> import torch
        >>> from linear_operator.operators import IdentityLinearOperator
        >>> from mvgp.likelihoods import project_order
        >>> from mvgp.linalg.pairs import Pattern
        >>> from mvgp.likelihoods import SquaredLoss
        >>> from mvgp.mean import MeanProblem, SpectralElasticNet, solve_alternating
        >>> rows, cols, labels = torch.tensor([0, 0]), torch.tensor([0, 2]), torch.tensor([1.0, -1.0]).double()
        >>> ops = [IdentityLinearOperator(size, dtype=torch.float64) for size in (2, 3)]
        >>> problem = MeanProblem(*ops, Pattern(rows, cols, (2, 3)), SquaredLoss(labels))
        >>> retarget = lambda psi: project_order(psi, labels > 0, rows, margin=1.0)
        >>> net = SpectralElasticNet(1.0, 0.0)
        >>> found = solve_alternating(problem, net, retarget, start=labels, rounds=30, tolerance=1e-9)
        >>> [round(value, 4) for value in found.targets.tolist()], found.certificate.converged
        ([0.5, -0.5], True)

    """
    tolerance, max_iterations = check_solve(problem, tolerance, max_iterations)
    check_requirements("solve_alternating", PROXIMAL_REQUIRES, problem.loss, penalty)
    check_callable(retarget, "retarget", "a function of scores (T,)")
    rounds, row_bias = check_whole_number(rounds, "rounds"), check_flag(row_bias, "row_bias")
    pattern = problem.pattern
    if not isinstance(pattern, Pattern):
        raise InputError(f"problem: expected a Pattern of observed pairs, got {type(pattern).__name__}")
    start = as_reals(start, "start", problem.dtype)
    if start.shape != (len(pattern),):
        raise InputError(f"start: expected targets of shape ({len(pattern)},), got {tuple(start.shape)}")
    weights: Tensor | None = getattr(problem.loss, "weights", None)
    joint = RetargetedLoss(retarget, weights)
    targets = start.to(problem.device, problem.dtype)
    loss: SquaredLoss | BiasedSquaredLoss = SquaredLoss(targets, weights)
    if row_bias:
        loss = BiasedSquaredLoss(targets, weights, pattern.rows, pattern.cols, pattern.shape, 0.0, None)
    inner = MeanProblem(problem.row_op, problem.col_op, pattern, loss)

    objectives: list[float] = []
    solution: MeanSolution | None = None
    bias = torch.zeros(pattern.shape[0], dtype=problem.dtype, device=problem.device)
    for _ in range(rounds):
        solution = _mean(inner, loss, penalty, tolerance, max_iterations, solution)
        objectives.append(solution.certificate.primal)
        if isinstance(loss, BiasedSquaredLoss):
            bias = loss.biases(solution.psi)[0]
        scores = solution.psi + bias[pattern.rows]
        loss.targets = targets = joint.targets(scores)
        objectives.append(SquaredLoss(targets, weights)(scores).value + penalty.value(solution.mean.values))
    assert solution is not None  # there was at least one round
    certificate = None
    if not row_bias:
        whole, at = MeanProblem(problem.row_op, problem.col_op, pattern, joint), joint(solution.psi)
        if bool(at.gradient.any()):
            certificate = solve_proximal(
                whole, penalty, tolerance=tolerance, max_iterations=0, start=solution
            ).certificate
        else:  # all that is known is that nothing is negative
            primal = at.value + penalty.value(solution.mean.values)
            certificate = Certificate(primal, 0.0, tolerance, 0, solution.mean.rank, "proximal")
    return AlternatingSolution(solution, bias, targets, tuple(objectives), certificate)


def _mean(
    problem: MeanProblem,
    loss: SquaredLoss | BiasedSquaredLoss,
    penalty: Penalty,
    tolerance: float,
    max_iterations: int,
    before: MeanSolution | None,
) -> MeanSolution:
    """The mean for fixed targets, from the one before; a gradient that is zero has no vectors to start from."""
    zero = LowRank.zero(problem)
    psi = zero.psi(problem)
    at = loss(psi)
    rounding = (8 * torch.finfo(problem.dtype).eps) ** 2
    if at.quadratic <= rounding * SquaredLoss(loss.targets, loss.weights)(psi).quadratic:  # zero fits, to rounding
        certificate = Certificate(at.value, at.value, tolerance, 0, 0, "proximal")
        return MeanSolution(zero, psi, at, certificate, psi.new_zeros(problem.shape[1], 0), problem.lipschitz())
    if before is not None and (before.mean.rank == 0 or not bool(loss(before.psi).gradient.any())):
        before = None
    return solve_proximal(problem, penalty, tolerance=tolerance, max_iterations=max_iterations, start=before)
