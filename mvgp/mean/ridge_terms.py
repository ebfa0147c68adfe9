r"""All ridge terms of a sum as one: the kernel :math:`K_R = \sum_r K_r / l_{2r}` on the observed cells.

A term with the penalty :math:`\tfrac{l_2}{2} \|B\|_F^2` alone has the mean :math:`K_r \alpha / l_{2r}` with the same
:math:`\alpha` (at the optimum :math:`-\theta`) for all such terms, so that together they cost
:math:`\tfrac12 \alpha^T K_R \alpha` and no singular value. With W a bound on the curvature of the loss, a step of the
solver needs :math:`(W^{-1} + K_R)^{-1}`: a dense factor for few cells, conjugate gradients for many.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from ..likelihoods.losses import Loss, SinglePrecisionLoss, WeightedLoss
from ..likelihoods.whole_lists import WholeListLoss
from ..linalg.pair_operator import Factor, PairLinearOperator
from ..linalg.pairs import PairIndex
from ..linalg.patterns import CompleteRows
from ..linalg.roots import diagonal_at
from ..linalg.solvers import Solver, make_solver
from .problem import MeanProblem

DENSE_CELLS = 6000  # observed cells up to which K_R + W^-1 is factored, as it serves many right-hand sides
MAX_PRODUCTS = 200  # of conjugate gradients in one step


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
    def _products(self) -> list[PairLinearOperator | RowsProduct]:
        if isinstance(self.pattern, CompleteRows):
            return [RowsProduct(problem, self.pattern) for problem in self.problems]
        return [PairLinearOperator(problem.row_op, problem.col_op, self._pairs) for problem in self.problems]

    @cached_property
    def _pairs(self) -> PairIndex:
        return PairIndex(self.pattern.rows, self.pattern.cols, self.pattern.shape)

    def times_one(self, term: int, coefficients: Tensor) -> Tensor:
        """(T,): K_r of one term times (T,)."""
        return self._products[term]._matmul(coefficients)

    def times(self, coefficients: Tensor) -> Tensor:
        """(T,): K_R times (T,)."""
        out = torch.zeros_like(coefficients)
        for product, weight in zip(self._products, self.weights, strict=True):
            out.add_(product._matmul(coefficients), alpha=1 / weight)
        return out

    @cached_property
    def diagonal(self) -> Tensor:
        """(T,) of K_R."""
        total: Tensor | float = 0.0
        for problem, weight in zip(self.problems, self.weights, strict=True):
            if isinstance(self.pattern, CompleteRows):
                rows = diagonal_at(problem.row_op, self.pattern.chosen)
                each = (rows.unsqueeze(1) * problem.col_op.diagonal()).reshape(-1)
            else:
                rows, cols = (
                    diagonal_at(problem.row_op, self.pattern.rows),
                    diagonal_at(problem.col_op, self.pattern.cols),
                )
                each = rows * cols
            total = total + each / weight
        assert isinstance(total, Tensor)
        return total

    @cached_property
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
        """For one term on single cells: with the preconditioner that its kernels need."""
        if len(self.problems) > 1 or isinstance(self.pattern, CompleteRows):
            return None
        problem = self.problems[0]
        return make_solver(problem.row_op, problem.col_op, self._pairs, self.weights[0] * self.inverse_metric)

    def solve(self, rhs: Tensor, accuracy: float) -> tuple[Tensor, Tensor]:
        """(T,) x with (W^-1 + K_R) x = ``rhs`` (T,) to a relative residual of ``accuracy``, and (T,) K_R x."""
        if self._factor is not None:
            x = torch.cholesky_solve(rhs.double().unsqueeze(1), self._factor).squeeze(1).to(rhs.dtype)
            return x, rhs - self.inverse_metric * x
        if self._solver is not None:
            x = self._solver.solve(self.weights[0] * rhs.unsqueeze(1), accuracy).value.squeeze(1)
            return x, self.times(x)
        return self._iterate(rhs, accuracy)

    def _iterate(self, rhs: Tensor, accuracy: float) -> tuple[Tensor, Tensor]:
        """Conjugate gradients with the diagonal as preconditioner, which carry the product along."""
        x, image, residual = torch.zeros_like(rhs), torch.zeros_like(rhs), rhs.clone()
        inverse = 1 / (self.inverse_metric + self.diagonal)
        goal = accuracy * float(rhs.norm())
        z = inverse * residual
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
            z = inverse * residual
            following = float(residual @ z)
            direction = z + (following / size) * direction
            size = following
        return x, image


class RowsProduct:
    """K_M V K_N on whole rows: two dense or lazy products, no list of cells.

    :param problem: the kernels.
    :param pattern: the rows.
    """

    def __init__(self, problem: MeanProblem, pattern: CompleteRows) -> None:
        everything = torch.arange(pattern.shape[1], device=pattern.chosen.device)
        self.rows = Factor(problem.row_op, pattern.chosen, pattern.chosen)
        self.cols = Factor(problem.col_op, everything, everything)
        self.shape = len(pattern.chosen), pattern.shape[1]
        self._lazy_rows = self.rows.lazy_seconds(self.shape[1]) < self.rows.dense_seconds(self.shape[1])
        self._lazy_cols = self.cols.lazy_seconds(self.shape[0]) < self.cols.dense_seconds(self.shape[0])

    def _matmul(self, values: Tensor) -> Tensor:
        """(A N,): from (A N,)."""
        half = self.cols.apply(values.view(self.shape).mT, self._lazy_cols)  # (N, A)
        return self.rows.apply(half.mT, self._lazy_rows).reshape(-1)


def inverse_curvature(loss: Loss, problem: MeanProblem) -> Tensor:
    """(T,) or (): W^-1, where the second derivative of the loss is at most W; the weights, where it has them.

    A loss whose own bound is larger than its weights say (a subclass may have another one) gets its curvature as W.
    """
    inner = loss.loss if isinstance(loss, SinglePrecisionLoss) else loss
    one = torch.ones((), dtype=problem.dtype, device=problem.device)
    inverse = one / max(inner.curvature, torch.finfo(problem.dtype).tiny ** 0.5)
    if isinstance(inner, WholeListLoss):
        each = (one / inner.weight).repeat(len(problem.pattern))
        each[inner.positions] = 1.0
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
