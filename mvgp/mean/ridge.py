r"""No trace norm at all: the plain Hilbert norm, on one dual coefficient for each observed pair.

With :math:`h(B) = \tfrac{l_2}{2} \|B\|_F^2` the dual coordinates of the solution live on the observed pairs:
:math:`\psi_T = K_{TT} \alpha` and :math:`\|B\|_F^2 = \alpha^T K_{TT} \alpha`. Nothing of low rank is needed.

In a sum of terms, those with this penalty count as one, of the kernel :math:`K_R = \sum_r K_r / l_{2r}` on the observed
cells. Each has the mean :math:`K_r \alpha / l_{2r}` with the same :math:`\alpha` (at the optimum :math:`-\theta`), so
that together they cost :math:`\tfrac12 \alpha^T K_R \alpha` and no singular value. With W a bound on the curvature of
the loss, a step of the solver needs :math:`(W^{-1} + K_R)^{-1}`: a dense factor for few cells, conjugate gradients for
many (:class:`RidgeTerms`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import check_instance, check_positive
from ..errors import InputError
from ..likelihoods.losses import (
    Loss,
    SinglePrecisionLoss,
    SquaredLoss,
    WeightedLoss,
    WholeListLoss,
    WholeListSquaredLoss,
    long_dot,
)
from ..likelihoods.pointwise import PointwiseLoss
from ..linalg.complete_sums import make_rows_system
from ..linalg.conjugate_gradients import Solution
from ..linalg.pair_operator import PairLinearOperator
from ..linalg.pairs import CompleteRows, PairIndex, Pattern
from ..linalg.solvers import Solver
from ..linalg.spectra import Factor, SpectralLinearOperator, Terms, diagonal_at
from ..linalg.sums import make_sum_solver, pair_covariance
from ..progress import report_step
from ..tensor_checks import check_list
from .problem import Certificate, MeanProblem, check_requirements, check_solve

DENSE_CELLS = 6000  # observed cells up to which K_R + W^-1 is factored, as it serves many right-hand sides
MAX_PRODUCTS = 200  # of conjugate gradients in one step
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
    problems = (
        [problem] if isinstance(problem, MeanProblem) else check_list(problem, "problem", "a problem of each term")
    )
    for at, each in enumerate(problems):
        check_instance(each, f"problem[{at}]", MeanProblem, "mvgp.mean.MeanProblem")
    if not problems:
        raise InputError("problem: expected one for each term, got none")
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


# Several terms ----------------------------------------------------------------------------------


class RidgeTerms:
    """Products with K_R, and solutions of (W^-1 + K_R) x = b.

    :param problems: kernels of the ridge terms, at least one.
    :param weights: l2 of each.
    :param loss: its curvature is bounded by W.
    :param dense_cells: observed cells up to which the matrix is factored.
    """

    def __init__(
        self, problems: Sequence[MeanProblem], weights: Sequence[float], loss: Loss, dense_cells: int = DENSE_CELLS
    ) -> None:
        self.problems, self.weights = tuple(problems), tuple(weights)
        self.pattern = problems[0].pattern
        self.inverse_metric = inverse_curvature(loss, problems[0])  # (T,) or (): W^-1
        self.dense_cells = dense_cells

    @cached_property
    def _products(self) -> list[PairLinearOperator]:
        return [PairLinearOperator(problem.row_op, problem.col_op, self._pairs) for problem in self.problems]

    @cached_property
    def _pairs(self) -> PairIndex:
        return PairIndex(self.pattern.rows, self.pattern.cols, self.pattern.shape)

    @cached_property
    def _whole_rows(self) -> list[tuple[_Lines, list[tuple[int, _Lines]]]]:
        """On whole rows: each distinct column kernel, with the numbers and row kernels of the terms that have it."""
        assert isinstance(self.pattern, CompleteRows)
        chosen, everything = self.pattern.chosen, torch.arange(self.pattern.shape[1], device=self.inverse_metric.device)
        groups: dict[int, tuple[_Lines, list[tuple[int, _Lines]]]] = {}
        for at, problem in enumerate(self.problems):
            if id(problem.col_op) not in groups:
                groups[id(problem.col_op)] = _Lines(problem.col_op, everything, len(chosen)), []
            groups[id(problem.col_op)][1].append((at, _Lines(problem.row_op, chosen, len(everything))))
        return list(groups.values())

    def times(self, coefficients: Tensor) -> Tensor:
        """(T,): K_R times (T,)."""
        return self._times(coefficients, [1 / weight for weight in self.weights])

    def times_one(self, term: int, coefficients: Tensor) -> Tensor:
        """(T,): K_r of one term times (T,)."""
        return self._times(coefficients, [float(at == term) for at in range(len(self.weights))])

    def _times(self, coefficients: Tensor, factors: Sequence[float]) -> Tensor:
        out = torch.zeros_like(coefficients)
        if not isinstance(self.pattern, CompleteRows):
            for product, factor in zip(self._products, factors, strict=True):
                if factor:
                    out.add_(product._matmul(coefficients), alpha=factor)
            return out
        grid = coefficients.view(-1, self.pattern.shape[1])  # (A, N)
        for cols, terms in self._whole_rows:
            if not any(factors[at] for at, _ in terms):
                continue
            half = cols(grid.mT).mT  # (A, N)
            for at, rows in terms:
                if factors[at]:
                    out.view_as(grid).add_(rows(half), alpha=factors[at])
        return out

    def _term_diagonal(self, problem: MeanProblem) -> Tensor:
        """(T,) of K_r."""
        if isinstance(self.pattern, CompleteRows):
            rows = diagonal_at(problem.row_op, self.pattern.chosen)
            return (rows.unsqueeze(1) * problem.col_op.diagonal()).reshape(-1)
        return diagonal_at(problem.row_op, self.pattern.rows) * diagonal_at(problem.col_op, self.pattern.cols)

    @cached_property
    def diagonal(self) -> Tensor:
        """(T,) of K_R."""
        terms = zip(self.problems, self.weights, strict=True)
        return torch.stack([self._term_diagonal(problem) / weight for problem, weight in terms]).sum(0)

    @property
    def damping(self) -> Tensor:
        """(T,): the share W^-1 / (W^-1 + diag K_R)."""
        return self.inverse_metric / (self.inverse_metric + self.diagonal)

    @cached_property
    def _factor(self) -> Tensor | None:
        """(T, T): the Cholesky factor, in double precision; None for many cells."""
        if len(self.pattern) > self.dense_cells:
            return None
        matrix = torch.diag(self.inverse_metric.double().expand(len(self.pattern)))
        for problem, weight in zip(self.problems, self.weights, strict=True):
            matrix.add_(PairLinearOperator(problem.row_op, problem.col_op, self._pairs).to_dense(), alpha=1 / weight)
        return torch.linalg.cholesky(matrix)

    @cached_property
    def _solver(self) -> Solver | None:
        """On single cells, with the preconditioner that the kernels need; a main effect has one of its own."""
        if isinstance(self.pattern, CompleteRows) or self._main_effect is not None:
            return None
        terms = zip(self.problems, self.weights, strict=True)
        scaled = tuple((problem.row_op * (1 / weight), problem.col_op) for problem, weight in terms)
        return make_sum_solver(scaled, self._pairs, self.inverse_metric)

    def solve(self, rhs: Tensor, accuracy: float) -> tuple[Tensor, Tensor]:
        """(T,) x with (W^-1 + K_R) x = ``rhs`` (T,) to a relative residual of ``accuracy``, and (T,) K_R x."""
        if self._factor is not None:
            x = torch.cholesky_solve(rhs.double().unsqueeze(1), self._factor).squeeze(1).to(rhs.dtype)
            return x, rhs - self.inverse_metric * x
        if self._solver is not None:
            x = self._solver.solve(rhs.unsqueeze(1), accuracy).value.squeeze(1)
            return x, self.times(x)
        return self._iterate(rhs, accuracy)

    def _iterate(self, rhs: Tensor, accuracy: float) -> tuple[Tensor, Tensor]:
        """Preconditioned conjugate gradients, which carry the product along."""
        x, image, residual = torch.zeros_like(rhs), torch.zeros_like(rhs), rhs.clone()
        goal = accuracy * float(rhs.norm())
        z = self._precondition(residual)
        direction, size = z, float(residual @ z)
        for _ in range(MAX_PRODUCTS):
            if float(residual.norm()) <= goal or size <= 0:
                break
            product = self.times(direction)
            whole = product + self.inverse_metric * direction
            rate = size / float(direction @ whole)
            x.add_(direction, alpha=rate)
            image.add_(product, alpha=rate)
            residual.sub_(whole, alpha=rate)
            z = self._precondition(residual)
            following = float(residual @ z)
            direction = z + (following / size) * direction
            size = following
        return x, image

    @cached_property
    def _main_effect(self) -> _MainEffect | None:
        """The ridge term with the largest eigenvalues among those with a kernel of rank one; None without such."""
        found: list[tuple[float, int, bool]] = []
        for at, (problem, weight) in enumerate(zip(self.problems, self.weights, strict=True)):
            for op, is_row in ((problem.row_op, True), (problem.col_op, False)):
                if isinstance(op, SpectralLinearOperator) and op.vectors.shape[1] == 1:
                    found.append((float(op.spectrum) / weight, at, is_row))
        if not found:
            return None
        _, term, is_row = max(found)
        problem, weight = self.problems[term], self.weights[term]
        op, other = (problem.row_op, problem.col_op) if is_row else (problem.col_op, problem.row_op)
        rest = self.diagonal - self._term_diagonal(problem) / weight + self.inverse_metric
        sizes = op.spectrum * other.diagonal() / weight
        return _MainEffect(self.pattern, op.vectors, is_row, sizes.unsqueeze(1), 1 / rest)

    def _precondition(self, residual: Tensor) -> Tensor:
        """(T,): the inverse of the diagonal, or of the diagonal and a main effect."""
        if self._main_effect is not None:
            return self._main_effect(residual)
        return residual / (self.inverse_metric + self.diagonal)


@dataclass(frozen=True)
class _MainEffect:
    r"""The inverse of :math:`D + P S P^T` by Woodbury's identity, with :math:`P = \xi \otimes I`.

    A main effect, a constant kernel on an axis, has eigenvalues as large as that axis is long, too many to leave to
    conjugate gradients. The other kernel counts by its diagonal.

    :param vector: xi (n, 1), of the rows or of the columns.
    :param sizes: S (k, 1), on the other axis.
    :param inverse: (T,) the diagonal of D^-1.
    """

    pattern: Pattern | CompleteRows
    vector: Tensor
    is_row: bool
    sizes: Tensor
    inverse: Tensor

    def _sums(self, values: Tensor, vector: Tensor) -> Tensor:
        """(k, 1): P^T times (T,)."""
        return (self.pattern.matrix_t(values) if self.is_row else self.pattern.matrix(values)) @ vector

    @cached_property
    def _inner(self) -> Tensor:
        """(k, 1): S (I + S P^T D^-1 P)^-1."""
        return self.sizes / (1 + self.sizes * self._sums(self.inverse, self.vector.square()))

    def __call__(self, residual: Tensor) -> Tensor:
        """(T,): from (T,)."""
        scaled = self.inverse * residual
        lines = self._inner * self._sums(scaled, self.vector)  # (k, 1)
        spread = self.pattern.sample(self.vector, lines) if self.is_row else self.pattern.sample(lines, self.vector)
        return scaled - self.inverse * spread


class _Lines:
    """A kernel of some rows or columns, applied to many vectors, densely or lazily.

    :param op: the kernel.
    :param chosen: (A,) the rows or columns.
    :param count: how many vectors there will be.
    """

    def __init__(self, op: LinearOperator, chosen: Tensor, count: int) -> None:
        self.factor = Factor(op, chosen, chosen)
        self.is_lazy = self.factor.lazy_seconds(count) < self.factor.dense_seconds(count)

    def __call__(self, vectors: Tensor) -> Tensor:
        """(A, C): from (A, C)."""
        return self.factor.apply(vectors, self.is_lazy)


def inverse_curvature(loss: Loss, problem: MeanProblem) -> Tensor:
    """(T,) or (): W^-1, where the second derivative of the loss is at most W; one for each pair, where it has them.

    A loss whose own bound is larger than its weights say (a subclass may have another one) gets its curvature as W.
    """
    inner = loss.loss if isinstance(loss, SinglePrecisionLoss) else loss
    one = torch.ones((), dtype=problem.dtype, device=problem.device)
    inverse = one / max(inner.curvature, torch.finfo(problem.dtype).tiny ** 0.5)
    if isinstance(inner, WholeListLoss):
        each = (one / inner.weight).repeat(len(problem.pattern))
        each[inner.positions] = 1.0
    elif isinstance(inner, PointwiseLoss):
        each = 1 / inner.curvatures.to(problem.dtype).clamp_min(torch.finfo(problem.dtype).tiny ** 0.5)
    elif isinstance(inner, WeightedLoss):
        each = one if inner.weights is None else (1 / inner.weights).to(problem.dtype)
    else:
        return inverse
    ones = one.expand(len(problem.pattern)).contiguous()
    return (
        each
        if loss.quadratic_bound(ones) <= float((1 / each).expand(len(ones)).double().sum()) * (1 + 1e-5)
        else inverse
    )
