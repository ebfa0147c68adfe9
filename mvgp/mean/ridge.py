r"""No trace norm at all: the plain Hilbert norm, on one dual coefficient for each observed pair.

With :math:`h(B) = \tfrac{l_2}{2} \|B\|_F^2` the dual coordinates of the solution live on the observed pairs:
:math:`\psi_T = K_{TT} \alpha` and :math:`\|B\|_F^2 = \alpha^T K_{TT} \alpha`. Nothing of low rank is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..checks import check_instance, check_positive
from ..errors import InputError
from ..likelihoods.losses import SquaredLoss, WholeListSquaredLoss, long_dot
from ..linalg.complete_sums import make_rows_system
from ..linalg.conjugate_gradients import Solution
from ..linalg.pair_operator import Terms
from ..linalg.pairs import CompleteRows, PairIndex, Pattern
from ..linalg.sum_solvers import make_sum_solver
from ..linalg.sums import pair_covariance
from ..progress import report_step
from .problem import Certificate, MeanProblem, check_requirements, check_solve

REQUIRES = {"loss": ("__call__", "curvature")}


@dataclass(frozen=True)
class RidgeSolution:
    """Dual coefficients of the mean.

    :param coefficients: (T,) alpha.
    :param psi: (T,) at the observed pairs.
    :param certificate: the evidence.
    """

    coefficients: Tensor
    psi: Tensor
    certificate: Certificate


def solve_ridge(
    problem: MeanProblem | Sequence[MeanProblem],
    l2: float,
    *,
    tolerance: float,
    max_iterations: int = 1000,
    start: RidgeSolution | None = None,
) -> RidgeSolution:
    r"""The squared loss is a linear system; any other loss goes by accelerated gradients in alpha.

    .. math:: \min_\alpha f(K_{TT} \alpha) + \tfrac{l_2}{2} \alpha^T K_{TT} \alpha

    :param problem: loss f and kernels of an M x N matrix; of a sum of terms one for each, with the same loss and pairs.
        All terms have the same coefficients, as :math:`K_{TT}` is the sum over the terms.
    :param l2: weight of the squared Frobenius norm of B, positive.
    :param tolerance: on the relative duality gap.
    :param max_iterations: of the solver.
    :param start: a solution of a neighbouring problem, for a warm start.
    """
    problems = [problem] if isinstance(problem, MeanProblem) else list(problem)
    problem = problems[0]
    tolerance, max_iterations = check_solve(problem, tolerance, max_iterations)
    if any(other.loss is not problem.loss or other.pattern is not problem.pattern for other in problems):
        raise InputError("problem: expected terms with the same loss and the same pairs")
    check_requirements("solve_ridge", REQUIRES, problem.loss)
    l2 = check_positive(l2, "l2")
    if start is not None:
        check_instance(start, "start", RidgeSolution, "a RidgeSolution")
    product = kernel_product(problems)
    # how good the answer is, is for the duality gap to say
    accuracy = min(tolerance, 1e-6) if problem.dtype == torch.float64 else 1e-5
    solution = _linear_system(problems, l2, accuracy)
    if solution is not None:
        alpha, iterations = solution.value.reshape(-1), solution.solve_report.iterations
        psi = product(alpha)
        return RidgeSolution(alpha, psi, _certify(problem, product, psi, alpha, l2, tolerance, iterations))

    lipschitz = sum(each.lipschitz() for each in problems)
    now = start.coefficients if start else torch.zeros(len(problem.pattern), dtype=problem.dtype, device=problem.device)
    psi = start.psi if start else product(now)
    before, psi_before = now, psi
    # strongly convex in B: constant momentum, step 1 / (L + l2)
    root = (l2 / (lipschitz + l2)) ** 0.5
    beta = (1 - root) / (1 + root)
    certificate = _certify(problem, product, psi, now, l2, tolerance, 0)
    for iteration in range(1, max_iterations + 1):
        if certificate.converged:
            break
        ahead, psi_ahead = now + beta * (now - before), psi + beta * (psi - psi_before)
        before, psi_before = now, psi
        now = ahead - (problem.loss(psi_ahead).gradient + l2 * ahead) / (lipschitz + l2)
        psi = product(now)
        if iteration % 5 == 0 or iteration == max_iterations:
            certificate = _certify(problem, product, psi, now, l2, tolerance, iteration)
            report_step("gap", certificate.relative_gap, tolerance)
    return RidgeSolution(now, psi, certificate)


def kernel_product(problems: Sequence[MeanProblem]) -> Callable[[Tensor], Tensor]:
    """K_TT times (T,)."""
    pattern, terms = problems[0].pattern, _terms(problems)
    if isinstance(pattern, CompleteRows):
        system = make_rows_system(terms, pattern.chosen, 0.0)
        return lambda x: system.product(x.view(system.shape)).reshape(-1)
    pairs = PairIndex(pattern.rows, pattern.cols, pattern.shape)
    return pair_covariance(terms, pairs)._matmul


def _terms(problems: Sequence[MeanProblem]) -> Terms:
    return tuple((each.row_op, each.col_op) for each in problems)


def _linear_system(problems: Sequence[MeanProblem], l2: float, accuracy: float) -> Solution | None:
    r""":math:`(K_{TT} + l_2 / w) \alpha = r` for a squared loss; None for any other, subclasses included."""
    problem, terms = problems[0], _terms(problems)
    loss, pattern = problem.loss, problem.pattern
    if type(loss) is WholeListSquaredLoss and isinstance(pattern, CompleteRows):
        system = make_rows_system(terms, pattern.chosen, l2 / loss.weight, loss.positions, l2)
        return system.solve(loss.targets(problem.dtype, len(pattern)).view(system.shape), accuracy)
    if type(loss) is SquaredLoss and isinstance(pattern, Pattern):
        noise = torch.tensor(l2, dtype=problem.dtype, device=problem.device)
        each = noise if loss.weights is None else noise / loss.weights
        solver = make_sum_solver(terms, PairIndex(pattern.rows, pattern.cols, pattern.shape), each)
        return solver.solve(loss.targets.unsqueeze(1), accuracy)
    return None


def _certify(
    problem: MeanProblem,
    product: Callable[[Tensor], Tensor],
    psi: Tensor,
    alpha: Tensor,
    l2: float,
    tolerance: float,
    iterations: int,
) -> Certificate:
    """Equation (11) with h*(Y) = ||Y||_F^2 / (2 l2) and ||Y||_F^2 = theta^T K_TT theta."""
    at = problem.loss(psi)
    primal = at.value + l2 / 2 * long_dot(alpha, psi)
    norm = long_dot(at.gradient, product(at.gradient)) / l2
    # the bound -c^2/2 (quadratic + norm) - c linear is best at c; any other conjugate is known best at c = 1
    best = min(max(-at.linear / max(at.quadratic + norm, 1e-300), 0.0), 1.0) if at.linear == at.linear else 1.0
    dual = -(best**2) / 2 * norm - at.conjugate(best)
    return Certificate(primal, dual, tolerance, iterations, min(problem.shape), "ridge")
