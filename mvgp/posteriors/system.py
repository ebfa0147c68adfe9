r"""The linear system behind every posterior, :math:`A = K_{TT} + D` over the observed cells."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

import gpytorch
import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..errors import SizeError
from ..linalg.cost import DEFAULT_LIMITS, Limits
from ..linalg.kronecker import SpectralKroneckerLinearOperator
from ..linalg.pair_operator import PairLinearOperator
from ..linalg.pairs import PairIndex
from ..linalg.solvers import CholeskySolver, Method, Solver, SpectralSolver, make_solver
from ..linalg.spectra import spectral_bounds
from .query import Query


class ObservedSystem:
    r"""The system :math:`K_{TT} + D` of the observed cells: solutions, factors, products, bounds.

    It depends on the observed cells and their noise, not on the values. What costs time (a solver, a dense factor)
    is made when it is first needed.

    :param ops: the prior covariances (K_M, K_N).
    :param pairs: the T observed cells.
    :param noise: () or (T,) noise variances, the diagonal of D.
    :param tolerance: relative residual of solutions with :math:`K_{TT} + D`.
    :param method: how they are computed.
    :param max_iterations: limit for conjugate gradients.
    :param strict: whether missing the tolerance is an error rather than a warning.
    :param limits: up to which sizes direct methods are used.
    """

    def __init__(
        self,
        ops: tuple[LinearOperator, LinearOperator],
        pairs: PairIndex,
        noise: Tensor,
        *,
        tolerance: float,
        method: Method = "auto",
        max_iterations: int = 1000,
        strict: bool = True,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.ops, self.pairs, self.noise, self.strict = ops, pairs, noise, strict
        self.tolerance, self._method, self.max_iterations = tolerance, method, max_iterations
        self.limits = limits

    @cached_property
    def solver(self) -> Solver:
        """Of :math:`K_{TT} + D`; made when first needed, since a mean alone may never ask."""
        return make_solver(
            *self.ops,
            self.pairs,
            self.noise,
            method=self._method,
            max_iterations=self.max_iterations,
            limits=self.limits,
        )

    def solve(self, rhs: Tensor) -> Tensor:
        """(T, C): (K_TT + D)^-1 times (T, C); raises when the tolerance is missed."""
        solution: Tensor = _Solve.apply(rhs, self)
        return solution

    @cached_property
    def covariance(self) -> PairLinearOperator:
        """K_TT (T, T), lazy."""
        return PairLinearOperator(*self.ops, self.pairs)

    @cached_property
    def dense(self) -> CholeskySolver:
        """A dense factor of K_TT + D, whatever else the solver is; for few observations."""
        if self._solver_is_dense and isinstance(self.solver, CholeskySolver):
            return self.solver
        if len(self.pairs) > self.limits.dense:
            raise SizeError(
                f"a dense factor of K_TT + noise is offered up to {self.limits.dense:,} observed pairs, there are "
                f"{len(self.pairs):,}; use method='cg' or 'bounded'"
            )
        return CholeskySolver(self.covariance, self.noise.expand(len(self.pairs)))

    @property
    def has_dense(self) -> bool:
        """Whether a dense factor of K_TT + D exists, or is what the solver makes."""
        return "dense" in self.__dict__ or self._solver_is_dense

    @property
    def _solver_is_dense(self) -> bool:
        """Whether the solver is a dense factor; known without making it."""
        small = len(self.pairs) <= self.limits.cholesky and not self._is_complete
        return self._method == "cholesky" or (self._method == "auto" and small)

    @property
    def _is_complete(self) -> bool:
        """Whether every cell was observed with equal noise."""
        return self.noise.dim() == 0 and len(self.pairs) == self.ops[0].shape[-1] * self.ops[1].shape[-1]

    @cached_property
    def cache(self) -> KrylovCache:
        """A small subspace for rough variances of many cells, as large as ``max_root_decomposition_size``."""
        return KrylovCache(self.times, self.pairs, self.noise)

    def times(self, dense: Tensor) -> Tensor:
        """(T, C): K_TT + D times (T, C)."""
        return self.covariance._matmul(dense) + self.noise.reshape(-1, 1) * dense

    @cached_property
    def diagonal(self) -> Tensor:
        """(T,): of K_TT + D."""
        return self.covariance._diagonal() + self.noise

    @cached_property
    def lowest_eigenvalue(self) -> float:
        """A lower bound on the eigenvalues of K_TT + D."""
        low_rows, low_cols = spectral_bounds(self.ops[0])[0], spectral_bounds(self.ops[1])[0]
        return low_rows * low_cols + float(self.noise.min())

    def half_solve(self, rhs: Tensor) -> Tensor:
        """(T, C): L^-1 times (T, C) with the dense factor L of K_TT + D, once it is known to be accurate."""
        return self.dense.half(rhs, self.tolerance, strict=self.strict)

    def inverse_diagonal(self) -> Tensor:
        """(T,): the diagonal of (K_TT + D)^-1 given a dense factor, the inverse of its diagonal otherwise."""
        if self.has_dense:
            return torch.cholesky_inverse(self.dense.chol).diagonal()
        return 1 / self.diagonal

    def restricted(self, which: Tensor) -> Self:
        """The system of the observations ``which`` (J,) alone; variances given it are at least as large."""
        return self._similar(self.ops, self.pairs[which], self.noise[which] if self.noise.dim() else self.noise)

    @cached_property
    def single(self) -> Self:
        """The same in single precision."""
        ops = (self.ops[0].to(torch.float32), self.ops[1].to(torch.float32))
        return self._similar(ops, self.pairs, self.noise.float(), lowest_tolerance=1e-5)

    def _similar(
        self,
        ops: tuple[LinearOperator, LinearOperator],
        pairs: PairIndex,
        noise: Tensor,
        lowest_tolerance: float = 0.0,
    ) -> Self:
        """Another system with the same settings, its method chosen by its size."""
        return type(self)(
            ops,
            pairs,
            noise,
            tolerance=max(self.tolerance, lowest_tolerance),
            max_iterations=self.max_iterations,
            strict=self.strict,
            limits=self.limits,
        )

    @property
    def is_closed_form(self) -> bool:
        """Whether every cell was observed with equal noise, and the kernels are small enough for their eigenpairs."""
        return self._is_complete and isinstance(self.solver, SpectralSolver)

    @property
    def closed_form(self) -> SpectralKroneckerLinearOperator | None:
        """S over the whole grid by eigenpairs, if every cell was observed with equal noise."""
        if not self.is_closed_form or not isinstance(self.solver, SpectralSolver):
            return None
        spectrum = self.noise * self.solver.shrink  # s2 lam mu / (lam mu + s2)
        return SpectralKroneckerLinearOperator(spectrum, self.solver.row_pairs[1], self.solver.col_pairs[1])

    def cross(self, query: Query) -> PairLinearOperator:
        """K_*T (Q, T), lazy."""
        return PairLinearOperator(query.row_side.cross(), query.col_side.cross(), query.pairs, self.pairs)


class _Solve(torch.autograd.Function):
    """x = A^-1 b for the constant symmetric A = K_TT + D; its gradient is another solve."""

    @staticmethod
    def forward(ctx: Any, rhs: Tensor, system: ObservedSystem) -> Tensor:
        ctx.system = system
        own = rhs.to(system.noise.dtype)  # an operator may have been converted, its solver keeps its precision
        return system.solver.solve(own, system.tolerance).checked(strict=system.strict).value.to(rhs.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.system.solve(gradients[0]), None


class KrylovCache:
    r"""Rough variances of many cells from one small subspace (after LOVE, Pleiss et al. 2018).

    With W (T, k) an orthonormal basis of a Krylov space of :math:`A = K_{TT} + D`, Galerkin's method replaces
    :math:`k^T A^{-1} k` by :math:`k^T W (W^T A W)^{-1} W^T k`, which is never larger: variances come out too large, if
    anything. Smooth kernels need few directions; with rough ones, such as those of sparse graphs, it says little.

    :param times: maps (T, C) to A times it.
    :param pairs: the T observed cells.
    :param noise: () or (T,), for the type of its entries.
    """

    def __init__(self, times: Callable[[Tensor], Tensor], pairs: PairIndex, noise: Tensor) -> None:
        size = min(gpytorch.settings.max_root_decomposition_size.value(), len(pairs))
        generator = torch.Generator().manual_seed(0)  # the same answers every time
        start = torch.randn(len(pairs), generator=generator, dtype=torch.float64).to(noise)
        basis = noise.new_zeros(len(pairs), size)
        images = torch.zeros_like(basis)
        vector = times(start.unsqueeze(1)).squeeze(1)
        for step in range(size):
            for _ in range(2):  # once is not enough in floating point
                vector = vector - basis[:, :step] @ (basis[:, :step].mT @ vector)
            length = vector.norm()
            if not length > 0:  # the space is exhausted
                basis, images = basis[:, :step], images[:, :step]
                break
            basis[:, step] = vector / length
            vector = images[:, step] = times(basis[:, step : step + 1]).squeeze(1)
        small = basis.mT @ images
        self.basis, self.chol = basis, torch.linalg.cholesky((small + small.mT) / 2)

    def reduction(self, cross: LinearOperator) -> Tensor:
        """(Q,): what the observations take from the prior's variance, at most; ``cross`` is K_*T (Q, T)."""
        seen = cross._matmul(self.basis)  # (Q, k)
        return torch.linalg.solve_triangular(self.chol, seen.mT, upper=False).square().sum(0)
