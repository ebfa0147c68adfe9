"""Solvers of :math:`(K_{TT} + D) x = b`: direct when that is cheap, preconditioned conjugate gradients otherwise."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, Protocol

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..errors import InputError, NotPositiveSemidefiniteError
from . import cost
from .conjugate_gradients import Map, Solution, SolveReport, conjugate_gradients
from .pair_operator import PairLinearOperator
from .pairs import PairIndex
from .spectra import Factor, SpectralLinearOperator, eigenpairs, product_seconds, spectral_bounds

Method = Literal["auto", "cholesky", "spectral", "cg"]
Eigenpairs = tuple[Tensor, Tensor]  # values (R,) and vectors (N, R)
PLAIN_CONDITION = 100.0  # condition number up to which plain conjugate gradients are quick
REFINEMENTS = 4  # rounds of iterative refinement after a direct method that misses its tolerance
GRAM_SECONDS = 20.0  # at most this long for F^T D^-1 F
MAX_RANK = 4096  # columns of F
ROUNDED = 1000.0  # roundings of the largest product, below which no noise is taken for a preconditioner
PAIR_BATCH = 8192  # observed pairs whose rows of F are formed at a time


def make_solver(
    row_op: LinearOperator,
    col_op: LinearOperator,
    pairs: PairIndex,
    noise: Tensor,
    *,
    method: Method = "auto",
    max_iterations: int = 1000,
    limits: cost.Limits = cost.DEFAULT_LIMITS,
) -> Solver:
    r"""The solver of :math:`K_{TT} + D` that fits its size and structure.

    :param row_op: K_M (M, M).
    :param col_op: K_N (N, N).
    :param pairs: the T observed cells, all distinct.
    :param noise: () equal noise, or (T,) the diagonal of D; positive.
    :param limits: up to which sizes direct methods are used.
    """
    op = PairLinearOperator(row_op, col_op, pairs)
    each = noise.expand(len(pairs))
    complete = len(pairs) == row_op.shape[-1] * col_op.shape[-1]
    closed_form = complete and noise.dim() == 0
    if method == "spectral" and not closed_form:
        raise InputError("method='spectral' needs every cell observed, with equal weights")
    small, most = max(pairs.active_shape) <= limits.eigenpairs, limits.eigenpairs
    if method == "spectral" and not small:
        raise InputError(f"method='spectral' needs at most {most} rows and columns, got {pairs.active_shape}")
    if method == "spectral" or (method == "auto" and closed_form and small):
        return SpectralSolver(op, *factor_eigenpairs(op, limits), noise)
    if method == "cholesky" or len(pairs) == 0 or (method == "auto" and len(pairs) <= limits.cholesky):
        return CholeskySolver(op, each)

    row_low, row_high = spectral_bounds(row_op)
    col_low, col_high = spectral_bounds(col_op)
    condition = (row_high * col_high + float(each.max())) / (row_low * col_low + float(each.min()))
    if condition <= PLAIN_CONDITION:
        return ConjugateGradientSolver(op, each, None, max_iterations)
    factor_pairs = factor_eigenpairs(op, limits)
    preconditioner = WoodburyPreconditioner(*factor_pairs, pairs, each)
    op = compressed(op, *factor_pairs, limits)
    return ConjugateGradientSolver(op, each, preconditioner, max_iterations)


class CholeskySolver:
    """Dense factorisation, for few observed pairs."""

    method = "cholesky"

    def __init__(self, op: LinearOperator, noise: Tensor) -> None:
        self.matrix = op.to_dense()
        self.matrix.diagonal().add_(noise)
        self._smallest_noise = float(noise.min()) if len(noise) else 0.0
        self._is_accurate: bool | None = None  # whether halves from ``chol`` are; measured when first needed
        chol, info = torch.linalg.cholesky_ex(self.matrix)
        # a matrix that is positive definite in double precision only: the best factor that single precision has
        self.chol = chol if info == 0 else self._double_chol.to(self.matrix.dtype)

    @cached_property
    def _double_chol(self) -> Tensor:
        """(T, T): the factor in double precision."""
        chol, info = torch.linalg.cholesky_ex(self.matrix.double())
        if info > 0:
            raise NotPositiveSemidefiniteError(
                f"K_TT + noise is not positive definite in {self.matrix.dtype} (pivot {int(info)} of "
                f"{len(self.matrix)}); the smallest noise variance is {self._smallest_noise:.3g}: raise it, or use "
                "float64"
            )
        return chol

    def times(self, x: Tensor) -> Tensor:
        """(T, C): K_TT + D times (T, C)."""
        return self.matrix @ x

    def inverse(self, rhs: Tensor) -> Tensor:
        """(T, C): the inverse of K_TT + D times (T, C), up to rounding."""
        return torch.cholesky_solve(rhs, self.chol)

    def inverse_diagonal(self) -> Tensor:
        """(T,): the diagonal of (K_TT + D)^-1."""
        return torch.cholesky_inverse(self.chol).diagonal()

    def solve(self, rhs: Tensor, tolerance: float) -> Solution:
        """(T, C) answers for (T, C) right-hand sides, with the measured residual.

        One that misses its tolerance is refined, and in single precision computed once more in double precision.
        """
        value, residual = refine(self.inverse, self.times, rhs, tolerance)
        if residual > tolerance and rhs.dtype == torch.float32:
            wide, chol = self.matrix.double(), self._double_chol
            precise, _ = refine(lambda b: torch.cholesky_solve(b, chol), wide.matmul, rhs.double(), tolerance)
            value, residual = _better(precise.to(rhs.dtype), value, lambda x: wide @ x.double(), rhs.double())
        return Solution(value, SolveReport(self.method, residual, tolerance))

    def half(self, rhs: Tensor, tolerance: float, *, strict: bool = True) -> Tensor:
        """(T, C): L^-1 times (T, C), whose squares add up to b^T (K_TT + D)^-1 b.

        The relative residual of the factor's solutions is measured on the first right-hand side.
        """
        if self._is_accurate is None and rhs.shape[1]:
            first = rhs[:, :1].detach()
            plain = torch.cholesky_solve(first, self.chol)
            residual = relative_residual(self.matrix @ plain, first)
            self._is_accurate = residual <= tolerance
            if not self._is_accurate and rhs.dtype != torch.float32:
                Solution(plain, SolveReport(self.method, residual, tolerance)).checked(strict=strict)
        if self._is_accurate is False and rhs.dtype == torch.float32:
            return torch.linalg.solve_triangular(self._double_chol, rhs.double(), upper=False).to(rhs.dtype)
        return torch.linalg.solve_triangular(self.chol, rhs, upper=False)


class SpectralSolver:
    r"""The closed form on a complete grid with equal noise: :math:`K_M \otimes K_N + \sigma^2 I` by eigenpairs.

    :param row_pairs: eigenvalues (R,) and vectors (M, R); those left out are zero.
    :param col_pairs: eigenvalues (S,) and vectors (N, S); those left out are zero.
    """

    method = "spectral"
    op: LinearOperator

    def __init__(self, op: PairLinearOperator, row_pairs: Eigenpairs, col_pairs: Eigenpairs, noise: Tensor) -> None:
        self.op, self.pairs, self.noise = op, op.left, noise  # noise ()
        self.row_vectors, self.col_vectors = row_pairs[1], col_pairs[1]
        self.products = row_pairs[0].unsqueeze(1) * col_pairs[0]  # (R, S)

    @cached_property
    def shrink(self) -> Tensor:
        """(R, S): the share of each coordinate that is taken for signal."""
        return self.products / (self.products + self.noise)

    @cached_property
    def _double(self) -> SpectralSolver:
        """The same in double precision."""
        assert isinstance(self.op, PairLinearOperator)
        given = self.op.product.row.dense, self.op.product.col.dense
        row, col = (dense.double() for dense in given)
        local = PairIndex(self.pairs.local_rows, self.pairs.local_cols, self.pairs.active_shape)
        pairs = eigenpairs(row, "row kernel", given[0]), eigenpairs(col, "column kernel", given[1])
        return SpectralSolver(PairLinearOperator(row, col, local), *pairs, self.noise.double())

    def times(self, value: Tensor) -> Tensor:
        """(T, C): K_TT + D times (T, C)."""
        return self.op._matmul(value) + self.noise * value

    def inverse(self, rhs: Tensor) -> Tensor:
        """(T, C): the inverse of K_TT + D times (T, C), up to rounding, from the eigenpairs."""
        u, v = self.row_vectors, self.col_vectors
        grid = self.pairs.scatter(rhs)  # (C, M, N)
        inner = u.mT @ grid @ v  # (C, R, S)
        if u.shape[0] == u.shape[1] and v.shape[0] == v.shape[1]:
            return self.pairs.gather(u @ (inner / (self.products + self.noise)) @ v.mT)
        # what the eigenpairs leave out sees the noise alone
        return (rhs - self.pairs.gather(u @ (self.shrink * inner) @ v.mT)) / self.noise

    def solve(self, rhs: Tensor, tolerance: float) -> Solution:
        """(T, C) answers for (T, C) right-hand sides; see :meth:`CholeskySolver.solve`."""
        value, residual = refine(self.inverse, self.times, rhs, tolerance)
        if residual > tolerance and rhs.dtype == torch.float32:
            wide = self._double
            precise, _ = refine(wide.inverse, wide.times, rhs.double(), tolerance)
            value, residual = _better(precise.to(rhs.dtype), value, lambda x: wide.times(x.double()), rhs.double())
        return Solution(value, SolveReport(self.method, residual, tolerance))


class ConjugateGradientSolver:
    """Products only; preconditioned when the spectrum is known to be wide."""

    method = "cg"

    def __init__(
        self, op: LinearOperator, noise: Tensor, preconditioner: Preconditioner | None, max_iterations: int
    ) -> None:
        self.op, self.noise = op, noise.unsqueeze(1)  # (T, 1)
        self.preconditioner, self.max_iterations = preconditioner, max_iterations

    def times(self, x: Tensor) -> Tensor:
        """(T, C): K_TT + D times (T, C)."""
        return self.op._matmul(x) + self.noise * x

    @property
    def inverse(self) -> Map | None:
        """The preconditioner, an approximate inverse; None if there is none."""
        return self.preconditioner

    def solve(self, rhs: Tensor, tolerance: float, start: Tensor | None = None) -> Solution:
        """(T, C) answers for (T, C) right-hand sides, with the measured residual, from ``start`` if there is one."""
        most, conditioner = self.max_iterations, self.preconditioner
        return conjugate_gradients(
            self.times, rhs, tolerance=tolerance, max_iterations=most, preconditioner=conditioner, start=start
        )


Solver = CholeskySolver | SpectralSolver | ConjugateGradientSolver


def factor_eigenpairs(op: PairLinearOperator, limits: cost.Limits) -> tuple[Eigenpairs, Eigenpairs]:
    """The leading eigenpairs of K_M and of K_N on the active rows and columns."""
    row, col = op.product.row, op.product.col
    return leading_eigenpairs(row, "row kernel", limits), leading_eigenpairs(col, "column kernel", limits)


def compressed(
    op: PairLinearOperator, row_pairs: Eigenpairs, col_pairs: Eigenpairs, limits: cost.Limits
) -> PairLinearOperator:
    """The same operator on the active grid, each factor by its eigenpairs where few of them are not zero."""
    local = PairIndex(op.left.local_rows, op.left.local_cols, op.left.active_shape)
    factors: list[LinearOperator | Tensor] = []
    for factor, (values, vectors) in ((op.product.row, row_pairs), (op.product.col, col_pairs)):
        exact = factor.out_size <= limits.eigenpairs
        low_rank = product_seconds(SpectralLinearOperator(values, vectors), 64) < min(
            factor.dense_seconds(64), factor.lazy_seconds(64)
        )
        if not exact and not factor.dense_fits:
            return op
        factors.append(SpectralLinearOperator(values, vectors) if exact and low_rank else factor.dense)
    return PairLinearOperator(factors[0], factors[1], local)


def refine(solve: Map, times: Map, rhs: Tensor, tolerance: float) -> tuple[Tensor, float]:
    """(T, C): the answer of a direct method, corrected for its residual as long as that helps; and its residual."""
    value = solve(rhs)
    back = times(value)
    residual = relative_residual(back, rhs)
    for _ in range(REFINEMENTS):
        if residual <= tolerance or not residual < float("inf"):
            break
        better = value + solve(rhs - back)
        back = times(better)
        reached = relative_residual(back, rhs)
        if not reached < residual:
            break
        value, residual = better, reached
    return value, residual


def _better(first: Tensor, second: Tensor, times: Map, rhs: Tensor) -> tuple[Tensor, float]:
    """The one of two answers with the smaller relative residual, and that residual."""
    tried = [(relative_residual(times(value), rhs), value) for value in (first, second)]
    residual, value = min(tried, key=lambda pair: pair[0] if pair[0] == pair[0] else float("inf"))
    return value, residual


def relative_residual(product: Tensor, rhs: Tensor) -> float:
    """Largest relative residual over the columns; 0 for a zero right-hand side solved by zero."""
    scale = rhs.norm(dim=0)
    gap = (rhs - product).norm(dim=0)
    return float(torch.where(scale > 0, gap / scale.clamp_min(torch.finfo(rhs.dtype).tiny), gap).max())


def leading_eigenpairs(factor: Factor, name: str, limits: cost.Limits = cost.DEFAULT_LIMITS) -> Eigenpairs:
    """Eigenvalues (R,), descending, and orthonormal vectors (N, R) of a square factor.

    All that are not zero up to ``limits.eigenpairs``; beyond that the best approximation in a random Krylov subspace.
    """
    if factor.out_size <= limits.eigenpairs:
        return eigenpairs(factor.dense, name)
    lazily = not factor.dense_fits
    generator = torch.Generator().manual_seed(0)  # the same preconditioner every time
    start = torch.randn(factor.out_size, limits.sketch, generator=generator, dtype=torch.float64)
    basis = start.to(dtype=factor.op.dtype, device=factor.op.device)
    for _ in range(3):
        basis = torch.linalg.qr(factor.apply(basis, lazily)).Q
    small = basis.mT @ factor.apply(basis, lazily)
    values, vectors = eigenpairs((small + small.mT) / 2, name)
    return values, basis @ vectors


class Preconditioner(Protocol):
    r"""The inverse of :math:`F F^T + E`, E diagonal, which is close to :math:`K_{TT} + D`."""

    rank: int  # columns of F
    noise: Tensor  # (T, 1) E
    chol: Tensor  # (k, k) of I + F^T E^-1 F

    def up(self, small: Tensor) -> Tensor:
        """(T, C): F times (k, C)."""

    def __call__(self, dense: Tensor) -> Tensor:
        """(T, C): the inverse times (T, C)."""


class WoodburyPreconditioner:
    r"""A preconditioner for :math:`K_{TT} + D` from the leading eigenpairs of its Kronecker factors.

    With :math:`K_M \approx U \Lambda U^T` and :math:`K_N \approx V \Omega V^T`, the k largest products
    :math:`\lambda_i \omega_j` give :math:`K_{TT} \approx F F^T` with F (T, k) the observed entries of
    :math:`\sqrt{\lambda_i \omega_j}\, u_i v_j^T`, and

    .. math:: (F F^T + D)^{-1} = D^{-1} - D^{-1} F (I + F^T D^{-1} F)^{-1} F^T D^{-1}.

    What is left out has norm at most :math:`\lambda_i \omega_j` of the first product dropped, so the preconditioned
    condition number is at most one plus that over the smallest noise. F is never stored.

    :param row_pairs: eigenvalues (R,) and vectors (M', R) of K_M on the active rows.
    :param col_pairs: eigenvalues (S,) and vectors (N', S) of K_N on the active columns.
    :param pairs: the T observed cells.
    :param noise: (T,) diagonal of D, positive. One so small beside the largest product that rounding would spoil the
        difference above is taken as larger.
    :param cutoff: products of eigenvalues below this times the noise are left out; they do not slow convergence.
    :param gram_entries: largest intermediate matrix on the way to F^T D^-1 F.
    """

    def __init__(
        self,
        row_pairs: Eigenpairs,
        col_pairs: Eigenpairs,
        pairs: PairIndex,
        noise: Tensor,
        *,
        cutoff: float = 0.1,
        gram_entries: int = 5 * 10**7,
    ) -> None:
        (row_values, row_vectors), (col_values, col_vectors) = row_pairs, col_pairs
        products = row_values.unsqueeze(1) * col_values  # (R, S)
        affordable = max(1, int((GRAM_SECONDS * cost.GEMM / len(pairs)) ** 0.5))
        values, order = products.flatten().topk(min(MAX_RANK, products.numel(), affordable))
        order = order[values > cutoff * noise.min()]
        self.i, self.j = order // len(col_values), order % len(col_values)  # (k,)
        used_rows, used_cols = int(self.i.max()) + 1 if len(order) else 1, int(self.j.max()) + 1 if len(order) else 1
        self.u = row_vectors[:, :used_rows] * row_values[:used_rows].sqrt()  # (M', R')
        self.v = col_vectors[:, :used_cols] * col_values[:used_cols].sqrt()  # (N', S')
        self.pairs, self.noise = pairs, noise.clamp_min(ROUNDED * torch.finfo(noise.dtype).eps * values[0]).unsqueeze(1)
        self.rank = len(order)
        gram = self._gram(gram_entries)
        gram.diagonal().add_(1)
        self.chol, info = torch.linalg.cholesky_ex(gram)
        if info > 0:
            raise NotPositiveSemidefiniteError(
                f"the preconditioner I + F^T F / noise is not positive definite in {gram.dtype} (pivot {int(info)} of "
                f"{self.rank}); the smallest noise variance is {noise.min().item():.3g}: raise it, or use float64"
            )

    def _gram(self, entries: int) -> Tensor:
        r"""(k, k): F^T D^-1 F, by the cheaper of two ways.

        On the grid, with W the observed 1 / noise, entry ((i, j), (i', j')) is
        :math:`\sum_{mn} u_{mi} u_{mi'} W_{mn} v_{nj} v_{nj'}`: two products with the squares of U and V.
        """
        (height, r), (width, s) = self.u.shape, self.v.shape
        on_grid = height * s**2 * (width + r**2)
        largest = max(r**2 * s**2, height * r**2, (height + width) * s**2)  # of the matrices below
        if on_grid < len(self.pairs) * self.rank**2 and largest < entries:
            u_squares = (self.u.unsqueeze(2) * self.u.unsqueeze(1)).flatten(1)  # (M', r^2)
            v_squares = (self.v.unsqueeze(2) * self.v.unsqueeze(1)).flatten(1)  # (N', s^2)
            weight = self.pairs.scatter(1 / self.noise).squeeze(0)  # (M', N')
            gram = u_squares.mT @ (weight @ v_squares)  # (r^2, s^2)
            rows = self.i.unsqueeze(1) * r + self.i
            return gram[rows, self.j.unsqueeze(1) * s + self.j]
        gram = self.noise.new_zeros(self.rank, self.rank)
        for start in range(0, len(self.pairs), PAIR_BATCH):
            part = slice(start, start + PAIR_BATCH)
            rows = self.u[self.pairs.local_rows[part]][:, self.i] * self.v[self.pairs.local_cols[part]][:, self.j]
            rows /= self.noise[part].sqrt()
            gram.addmm_(rows.mT, rows)
        return gram

    def _down(self, dense: Tensor) -> Tensor:
        """(k, C): F^T times (T, C)."""
        grid = self.u.mT @ self.pairs.scatter(dense) @ self.v  # (C, R', S')
        return grid[:, self.i, self.j].mT

    def up(self, small: Tensor) -> Tensor:
        """(T, C): F times (k, C)."""
        grid = small.new_zeros(small.shape[1], self.u.shape[1], self.v.shape[1])
        grid[:, self.i, self.j] = small.mT
        return self.pairs.gather(self.u @ grid @ self.v.mT)

    def __call__(self, dense: Tensor) -> Tensor:
        """(T, C) to an approximation of (K_TT + D)^-1 times it."""
        scaled = dense / self.noise
        if self.rank == 0:
            return scaled
        inner = torch.cholesky_solve(self._down(scaled), self.chol)
        return scaled - self.up(inner) / self.noise
