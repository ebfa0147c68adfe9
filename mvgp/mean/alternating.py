r"""Algorithm 1 of the paper: the mean and the targets of a ranking in turns.

.. math:: \min_{B,\, a,\, r \in C}\; \tfrac12 \sum_t w_t (\psi_t + a_{m_t} - r_t)^2 + h(B), \qquad \psi = G_M B G_N^T

Block-coordinate descent: (B, a) for fixed r is a squared loss, r for fixed (B, a) is the projection (8). Without the
row bias a this is the problem that any solver of the mean solves at once when given a
:class:`~mvgp.likelihoods.RetargetedLoss`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..checks import check_callable, check_flag, check_whole_number
from ..errors import InputError
from ..likelihoods.losses import BiasedSquaredLoss, RetargetedLoss, SquaredLoss
from ..linalg.pairs import Pattern
from ..tensor_checks import as_reals
from .low_rank import LowRank, MeanSolution
from .problem import Certificate, MeanProblem, Penalty, check_requirements, check_solve
from .proximal import REQUIRES, solve_proximal


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
    check_requirements("solve_alternating", REQUIRES, problem.loss, penalty)
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
