r"""The system :math:`K + D` over all N cells of R rows: products and solutions as dense blocks (R, N).

With the eigenpairs :math:`K_R = U \Lambda U^T` of the rows' kernel and equal noise it falls apart into one system for
each eigenvalue,

.. math:: (\lambda_i K_N + \sigma^2 I) x_i = (U^T B)_i, \qquad X = U [x_1, \dots, x_R]^T,

and each of them is a function of :math:`K_N`: closed form where its eigenpairs are known, a Chebyshev series with
coefficients of its own for each i where it is a polynomial of a sparse matrix, conjugate gradients otherwise. Nothing
of size N x N is formed for the last two.

Where both kernels are such polynomials and all noise is equal, no eigenpairs are needed at all
(:class:`~mvgp.linalg.chebyshev.TwoSidedSeries`).

Some cells may have another noise (known links beside unlabelled cells). They are few, and enter by Woodbury's identity.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from linear_operator import LinearOperator
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from ..errors import SizeError
from . import chebyshev, cost
from .chebyshev import ChebyshevLinearOperator, TwoSidedSeries
from .conjugate_gradients import Solution, SolveReport, conjugate_gradients
from .pairs import BLOCK, Pattern
from .spectra import SpectralLinearOperator, Terms, block

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

    @property
    def short_side(self) -> int:
        """The side whose eigenpairs are used."""
        return int(self._short.shape[-1])

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

    def with_special(self, special: Tensor) -> CompleteRowsSystem:
        """The same system with other special cells (P,); it shares the eigenpairs."""
        other = copy.copy(self)
        for name in ("_special_cells", "_pattern"):
            other.__dict__.pop(name, None)
        other._special = special if len(special) > 0 and self.special_noise != self.noise else None
        return other

    def solve(self, rhs: Tensor, tolerance: float, max_iterations: int = 1000, start: Tensor | None = None) -> Solution:
        """X (R, N) with (K + D) X = B (R, N), with the measured residual; refined while that helps.

        :param start: (R, N) to begin from; 0 when left out.
        """
        scale = float(rhs.norm())
        if scale == 0:
            return Solution(torch.zeros_like(rhs), SolveReport("complete rows", 0.0, tolerance, 0))
        if start is None:
            value, iterations = self._inverse_times(rhs, tolerance, max_iterations)
        else:
            value, iterations = start, 0
        left = rhs - self.times(value)
        residual = float(left.norm()) / scale
        for _ in range(REFINEMENTS):
            if residual <= tolerance or not residual < float("inf"):
                break
            # what is left is small already, and needs fewer digits of its own
            step, used = self._inverse_times(left, min(0.3 * tolerance / residual, 0.1), max_iterations)
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
        return chebyshev.inverse_series(short, long, self.noise, tolerance / 10)

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


class MainEffects:
    r"""Main effects, deflated: a kernel of rank one has eigenvalues as large as its axis is long.

    The subspace of all :math:`\xi y^T` (effects of the columns) and :math:`y \eta^T` (of the rows), y free.

    Products of the system with a member cost a few vectors, so that the system on the subspace,
    :math:`Z^T A Z`, is solved by conjugate gradients at the cost of a few rows.

    :param system: A.
    :param terms: its kernels on both axes, for each term.
    :param effects: axis (0: rows) of a kernel of rank one, and its unit vector (n, 1).
    """

    def __init__(self, system: CompleteRowsSystem, terms: Terms, effects: Sequence[tuple[int, Tensor]]) -> None:
        self.system, self.terms = system, terms
        self.effects = [(axis, vectors.squeeze(1)) for axis, vectors in effects]
        height, width = system.shape
        self._sizes = [width if axis == 0 else height for axis, _ in self.effects]
        # (K_R xi) and (K_N eta) of every term
        self._images = [[term[axis]._matmul(vector) for term in terms] for axis, vector in self.effects]

    def _down(self, x: Tensor) -> Tensor:
        """(n,): Z^T of a block (R, N)."""
        return torch.cat([vector @ x if axis == 0 else x @ vector for axis, vector in self.effects])

    def _outer(self, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Z y as a sum of outer products of (R,) and (N,)."""
        parts = zip(self.effects, y.split(self._sizes), strict=True)
        return [(vector, part) if axis == 0 else (part, vector) for (axis, vector), part in parts]

    def _kernel_outer(self, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        """K Z y as a sum of outer products."""
        out = []
        for (axis, _), part, images in zip(self.effects, y.split(self._sizes), self._images, strict=True):
            for term, image in zip(self.terms, images, strict=True):
                own = term[1 - axis]._matmul(part)
                out.append((image, own) if axis == 0 else (own, image))
        return out

    def _at_special(self, outer: list[tuple[Tensor, Tensor]]) -> Tensor:
        """(P,): a sum of outer products at the special cells."""
        rows, cols = self.system._special_cells
        return torch.stack([a[rows] * b[cols] for a, b in outer]).sum(0)

    def _coarse_times(self, y: Tensor) -> Tensor:
        """(n,): Z^T A Z y."""
        plain, system = self._outer(y), self.system
        outer = [*self._kernel_outer(y), *((system.noise * a, b) for a, b in plain)]
        total = []
        for axis, vector in self.effects:
            total.append(
                sum((b * (a @ vector) if axis == 0 else a * (b @ vector) for a, b in outer), vector.new_zeros(()))
            )
        if system._special is not None:
            (rows, cols), lack = system._special_cells, system.noise - system.special_noise
            values = lack * self._at_special(plain)
            for at, (axis, vector) in enumerate(self.effects):
                index, own = (cols, vector[rows]) if axis == 0 else (rows, vector[cols])
                total[at] = total[at].index_add(0, index, -own * values)
        return torch.cat(total)

    def _coarse_solve(self, rhs: Tensor) -> Tensor:
        """(n,): (Z^T A Z)^-1 times (n,), to the precision."""
        tolerance = 1e-11 if rhs.dtype == torch.float64 else 1e-6
        solution = conjugate_gradients(
            lambda y: self._coarse_times(y.squeeze(1)).unsqueeze(1), rhs.unsqueeze(1), tolerance=tolerance
        )
        return solution.value.squeeze(1)

    def correct(self, r: Tensor) -> tuple[Tensor, Tensor]:
        """(R, N): Z (Z^T A Z)^-1 Z^T r, and A times it."""
        y = self._coarse_solve(self._down(r))
        plain = self._outer(y)
        value = _outer_sum(plain)
        image = _outer_sum(self._kernel_outer(y)) + self.system.noise_times(value)
        return value, image

    def complete(self, r: Tensor, z: Tensor) -> Tensor:
        """(R, N): what to add to an approximation z of A^-1 r, so that its residual has no share in the subspace."""
        y = self._coarse_solve(self._down(r) - self._down_image(z))
        return _outer_sum(self._outer(y))

    def _down_image(self, z: Tensor) -> Tensor:
        """(n,): Z^T A z, as (A Z)^T z."""
        system = self.system
        total = []
        noisy = system.noise_times(z)
        for (axis, vector), images in zip(self.effects, self._images, strict=True):
            own = vector @ noisy if axis == 0 else noisy @ vector
            for term, image in zip(self.terms, images, strict=True):
                own = own + term[1 - axis]._matmul(image @ z if axis == 0 else z @ image)
            total.append(own)
        return torch.cat(total)


def _outer_sum(outer: list[tuple[Tensor, Tensor]]) -> Tensor:
    """(R, N): a sum of outer products."""
    return torch.stack([a for a, _ in outer], dim=1) @ torch.stack([b for _, b in outer])
