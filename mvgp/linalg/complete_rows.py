r"""The system :math:`K + D` over all N cells of R rows: products and solutions as dense blocks (R, N).

With the eigenpairs :math:`K_R = U \Lambda U^T` of the rows' kernel and equal noise it falls apart into one system for
each eigenvalue,

.. math:: (\lambda_i K_N + \sigma^2 I) x_i = (U^T B)_i, \qquad X = U [x_1, \dots, x_R]^T,

and each of them is a function of :math:`K_N`: closed form where its eigenpairs are known, a Chebyshev series with
coefficients of its own for each i where it is a polynomial of a sparse matrix, conjugate gradients otherwise. Nothing
of size N x N is formed for the last two.

Where both kernels are such polynomials and all noise is equal, no eigenpairs are needed at all
(:mod:`~mvgp.linalg.two_sided`).

Some cells may have another noise (known links beside unlabelled cells). They are few, and enter by Woodbury's identity.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from linear_operator import LinearOperator
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from ..errors import SizeError
from . import chebyshev, cost, two_sided
from .chebyshev import ChebyshevLinearOperator
from .conjugate_gradients import Solution, SolveReport, conjugate_gradients
from .pairs import BLOCK, Pattern
from .spectra import SpectralLinearOperator, block
from .two_sided import TwoSidedSeries

REFINEMENTS = 4  # rounds of iterative refinement
MOST_TERMS = 512  # of a Chebyshev series; conjugate gradients beyond


class CompleteRowsSystem:
    r""":math:`K_R \otimes K_N + D`, D equal to ``noise`` but for some cells.

    The eigenpairs are those of the rows; those of the columns where these are fewer and all rows are chosen.

    :param row_op: K_M (M, M).
    :param col_op: K_N (N, N).
    :param chosen: (R,) ascending: the rows all of whose cells are observed.
    :param noise: variance of a cell.
    :param special: (P,) ascending positions of cells, row by row among the R N, with another noise; None for none.
    :param special_noise: their variance, at most ``noise``.
    :param limits: sizes up to which eigenpairs are computed.
    """

    def __init__(
        self,
        row_op: LinearOperator,
        col_op: LinearOperator,
        chosen: Tensor,
        noise: float,
        special: Tensor | None = None,
        special_noise: float | None = None,
        limits: cost.Limits = cost.DEFAULT_LIMITS,
    ) -> None:
        self.shape = (len(chosen), int(col_op.shape[-1]))
        if len(chosen) < row_op.shape[-1]:
            row_op = DenseLinearOperator(block(row_op, chosen, chosen))
            self._flipped = False
        else:
            self._flipped = self.shape[1] < self.shape[0]
        self._short, self._long = (col_op, row_op) if self._flipped else (row_op, col_op)
        self.noise, self.limits = noise, limits
        differs = special is not None and len(special) > 0 and special_noise != noise
        self._special = special if differs else None
        self.special_noise = noise if special_noise is None else special_noise

    @cached_property
    def _eigenpairs(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues (S,) and eigenvectors (S, S) of the short side's kernel, all of them."""
        if self._short.shape[-1] > self.limits.rows_eigenpairs:
            raise SizeError(
                f"a mean of full rank over whole lists of {self.shape[0]:,} rows and {self.shape[1]:,} columns needs "
                f"the eigenpairs of the shorter side, which are computed up to {self.limits.rows_eigenpairs:,}; "
                "use TraceGP with a trace norm"
            )
        op = self._short
        if isinstance(op, SpectralLinearOperator) and op.vectors.shape[0] == op.vectors.shape[1]:
            return op.spectrum.clamp_min(0), op.vectors
        values, vectors = torch.linalg.eigh(op.to_dense())
        return values.clamp_min(0), vectors

    @property
    def _vectors(self) -> Tensor:
        """(S, S): eigenvectors of the short side's kernel."""
        return self._eigenpairs[1]

    @cached_property
    def _special_cells(self) -> tuple[Tensor, Tensor]:
        """(P,) rows and (P,) columns of the special cells in the block."""
        assert self._special is not None
        return self._special // self.shape[1], self._special % self.shape[1]

    def product(self, x: Tensor) -> Tensor:
        """(R, N): K_R X K_N."""
        x = x.mT if self._flipped else x  # (S, L)
        out = columns_product(self._long, columns_product(self._short, x).mT)  # (L, S)
        return out if self._flipped else out.mT

    def times(self, x: Tensor) -> Tensor:
        """(R, N): (K + D) X."""
        return self.product(x) + self.noise_times(x)

    def noise_times(self, x: Tensor) -> Tensor:
        """(R, N): D X."""
        out = self.noise * x
        if self._special is not None:
            at = self._special_cells
            out[at] = self.special_noise * x[at]
        return out

    def diagonal(self) -> Tensor:
        """(R, N): the prior variance of every cell."""
        rows, cols = (self._long, self._short) if self._flipped else (self._short, self._long)
        return rows.diagonal().unsqueeze(1) * cols.diagonal()

    def solve(self, rhs: Tensor, tolerance: float, max_iterations: int = 1000) -> Solution:
        """X (R, N) with (K + D) X = B (R, N), with the measured residual; refined while that helps."""
        scale = float(rhs.norm())
        if scale == 0:
            return Solution(torch.zeros_like(rhs), SolveReport("complete rows", 0.0, tolerance, 0))
        value, iterations = self._inverse_times(rhs, tolerance, max_iterations)
        left = rhs - self.times(value)
        residual = float(left.norm()) / scale
        for _ in range(REFINEMENTS):
            if residual <= tolerance or not residual < float("inf"):
                break
            step, used = self._inverse_times(left, tolerance, max_iterations)
            step += value
            left = rhs - self.times(step)
            reached, iterations = float(left.norm()) / scale, iterations + used
            if not reached < residual:
                break
            value, residual = step, reached
        return Solution(value, SolveReport("complete rows", residual, tolerance, iterations))

    def inverse_times(self, rhs: Tensor, tolerance: float) -> Tensor:
        """(R, N): (K + D)^-1 B for a preconditioner, no residual measured."""
        return self._inverse_times(rhs, tolerance, 1000)[0]

    def _inverse_times(self, rhs: Tensor, tolerance: float, max_iterations: int) -> tuple[Tensor, int]:
        """(R, N): (K + D)^-1 B, and the iterations that the special cells took."""
        series = self._two_sided(tolerance)
        if series is not None:
            return series(rhs.mT).mT if self._flipped else series(rhs), 0
        vectors = self._vectors
        across = rhs if self._flipped else rhs.mT  # (L, S)
        turned = self._shifted(across @ vectors, tolerance)  # (L, S)
        if self._special is None:
            return self._back(turned), 0
        # (M - c P^T P)^-1 = M^-1 + M^-1 P^T (I / c - P M^-1 P^T)^-1 P M^-1; c: what their noise lacks
        lack = self.noise - self.special_noise
        inner = conjugate_gradients(
            lambda x: x / lack - self._at_special(self._spread(x.squeeze(1), tolerance)).unsqueeze(1),
            self._at_special(turned).unsqueeze(1),
            tolerance=tolerance,
            max_iterations=max_iterations,
        )
        turned += self._spread(inner.value.squeeze(1), tolerance)
        return self._back(turned), inner.solve_report.iterations

    def _two_sided(self, tolerance: float) -> TwoSidedSeries | None:
        """The inverse as a series in both kernels' sparse matrices, where there is one."""
        short, long = self._short, self._long
        lazy = isinstance(short, ChebyshevLinearOperator) and isinstance(long, ChebyshevLinearOperator)
        if self._special is not None or not lazy or short.batch_shape or long.batch_shape:
            return None
        return two_sided.inverse_series(short, long, self.noise, tolerance / 10)

    def _back(self, turned: Tensor) -> Tensor:
        """(R, N) from (L, S) in the short side's eigenvectors."""
        vectors = self._vectors
        return turned @ vectors.mT if self._flipped else vectors @ turned.mT

    @cached_property
    def _pattern(self) -> tuple[Pattern, Tensor]:
        """Where the special cells are in the block (L, S), and their order (P,) there."""
        rows, cols = self._special_cells
        long, short = (rows, cols) if self._flipped else (cols, rows)
        order = torch.argsort(long * self._short.shape[-1] + short)
        return Pattern(long[order], short[order], (self._long.shape[-1], self._short.shape[-1])), order

    def _spread(self, values: Tensor, tolerance: float) -> Tensor:
        """(L, S): M^-1 P^T v in the short side's eigenvectors, from v (P,)."""
        pattern, order = self._pattern
        return self._shifted(pattern.matrix(values[order]) @ self._vectors, tolerance)

    def _at_special(self, turned: Tensor) -> Tensor:
        """(P,): the entries at the special cells, from (L, S) in the short side's eigenvectors."""
        pattern, order = self._pattern
        entries = pattern.sample(turned, self._vectors)
        return torch.empty_like(entries).index_copy_(0, order, entries)

    def _shifted(self, rhs: Tensor, tolerance: float) -> Tensor:
        """(L, S): solutions of (lambda_i K_L + noise) x_i = b_i, the columns of B (L, S)."""
        return shifted_solve(self._long, self._eigenpairs[0], self.noise, rhs, tolerance, self.limits)


def columns_product(op: LinearOperator, dense: Tensor) -> Tensor:
    """(N, C): ``op`` times (N, C), in blocks of columns that stay in cache where it is not dense."""
    if isinstance(op, DenseLinearOperator | SpectralLinearOperator | ChebyshevLinearOperator):
        return op._matmul(dense)
    return torch.cat([op._matmul(part.contiguous()) for part in dense.split(BLOCK, dim=1)], dim=1)


def shifted_solve(
    op: LinearOperator,
    scales: Tensor,
    noise: float,
    rhs: Tensor,
    tolerance: float,
    limits: cost.Limits = cost.DEFAULT_LIMITS,
    max_iterations: int = 1000,
) -> Tensor:
    r"""(N, C): columns with :math:`(s_i K + \sigma^2 I) x_i = b_i`, approximately; the caller measures the residual.

    :param op: K (N, N).
    :param scales: (C,) s, at least 0.
    :param noise: sigma^2.
    :param rhs: (N, C).
    """
    if isinstance(op, ChebyshevLinearOperator) and not op.batch_shape:
        own = chebyshev.coefficients(op.values.detach())
        series = inverse_series(
            lambda nodes: scales.unsqueeze(1) * chebyshev.evaluate(own, nodes).clamp_min(0), noise, tolerance, rhs
        )
        if series is not None:
            return chebyshev.apply(op.matrix, series, rhs)
    elif isinstance(op, SpectralLinearOperator) or op.shape[-1] <= limits.rows_eigenpairs:
        if isinstance(op, SpectralLinearOperator):
            values, vectors = op.spectrum, op.vectors
        else:
            values, vectors = torch.linalg.eigh(op.to_dense())
        seen = vectors.mT @ rhs  # (S, C)
        shrink = values.clamp_min(0).unsqueeze(1) * scales
        # b / noise less what the eigenvectors know better
        return (rhs - vectors @ (shrink / (shrink + noise) * seen)) / noise
    solved = []
    for part, own in zip(rhs.split(BLOCK, dim=1), scales.split(BLOCK), strict=True):
        shape = part.shape

        def times(x: Tensor, shape: torch.Size = shape, own: Tensor = own) -> Tensor:
            dense = x.view(shape)
            return (op._matmul(dense) * own + noise * dense).reshape(-1, 1)

        # the columns of a block as one system: each has an operator of its own
        solution = conjugate_gradients(times, part.reshape(-1, 1), tolerance=tolerance, max_iterations=max_iterations)
        solved.append(solution.value.view(shape))
    return torch.cat(solved, dim=1)


def inverse_series(kernel: Callable[[Tensor], Tensor], noise: float, tolerance: float, like: Tensor) -> Tensor | None:
    r"""(n, C): the series of :math:`1 / (f_i + \sigma^2)` for each i.

    None where it would take more than :data:`MOST_TERMS` terms.

    :param kernel: maps Chebyshev nodes (n,) to the functions f_i there (C, n), none negative.
    """
    finest = max(tolerance / 10, 8 * torch.finfo(like.dtype).eps)
    count = 16
    while count <= MOST_TERMS:
        values = kernel(chebyshev.nodes(count, like.dtype, like.device))
        series = chebyshev.coefficients(1 / (values + noise))  # (C, count)
        degree = chebyshev.degree_needed(series, finest)
        if degree < 0.75 * count:  # the rest of the coefficients are noise
            return series[:, : degree + 1].mT.contiguous()
        count *= 2
    return None
