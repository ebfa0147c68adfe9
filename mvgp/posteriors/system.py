"""ObservedSystem: the linear system behind every posterior, made when it is first needed.

KrylovCache: rough variances of many cells from one small subspace (after LOVE, Pleiss et al. 2018).

With W (T, k) an orthonormal basis of a Krylov space of :math:`A = K_{TT} + D`, Galerkin's method replaces
:math:`k^T A^{-1} k` by :math:`k^T W (W^T A W)^{-1} W^T k`, which is never larger: variances come out too large, if
anything. Smooth kernels need few directions; with rough ones, such as those of sparse graphs, it says little.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

import gpytorch
import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..errors import SizeError
from ..linalg.kronecker import SpectralKroneckerLinearOperator
from ..linalg.pair_operator import PairLinearOperator
from ..linalg.pairs import PairIndex
from ..linalg.solvers import CHOLESKY_LIMIT, DENSE_LIMIT, CholeskySolver, Method, Solver, SpectralSolver, make_solver
from ..linalg.spectra import spectral_bounds
from .query import Query


class KrylovCache:
    """A basis W and the factor of W^T A W.

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
        ahead = times(start.unsqueeze(1)).squeeze(1)
        for step in range(size):
            for _ in range(2):  # once is not enough in floating point
                ahead = ahead - basis[:, :step] @ (basis[:, :step].mT @ ahead)
            length = ahead.norm()
            if not length > 0:  # the space is exhausted
                basis, images = basis[:, :step], images[:, :step]
                break
            basis[:, step] = ahead / length
            ahead = images[:, step] = times(basis[:, step : step + 1]).squeeze(1)
        small = basis.mT @ images
        self.basis, self.chol = basis, torch.linalg.cholesky((small + small.mT) / 2)

    def reduction(self, cross: LinearOperator) -> Tensor:
        """(Q,): what the observations take from the prior's variance, at most; ``cross`` is K_*T (Q, T)."""
        seen = cross._matmul(self.basis)  # (Q, k)
        return torch.linalg.solve_triangular(self.chol, seen.mT, upper=False).square().sum(0)


class _Solve(torch.autograd.Function):
    """x = A^-1 b for the constant symmetric A = K_TT + D; its gradient is another solve."""

    @staticmethod
    def forward(ctx: Any, rhs: Tensor, conditional: ObservedSystem) -> Tensor:
        ctx.conditional = conditional
        own = rhs.to(conditional.noise.dtype)  # an operator may have been converted, its solver keeps its precision
        return (
            conditional.solver.solve(own, conditional.tolerance).checked(strict=conditional.strict).value.to(rhs.dtype)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.conditional.solve(gradients[0]), None


class ObservedSystem:
    r"""The system :math:`K_{TT} + D` of the observed cells: solutions, factors, products, bounds.

    It depends on where was observed and with which noise, not on the values.

    :param ops: the prior covariances (K_M, K_N).
    :param pairs: the T observed cells.
    :param noise: () or (T,) noise variances, the diagonal of D.
    :param tolerance: relative residual of solutions with :math:`K_{TT} + D`.
    :param method: how they are computed.
    :param max_iterations: limit for conjugate gradients.
    :param strict: whether missing the tolerance is an error rather than a warning.
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
    ) -> None:
        self.ops, self.pairs, self.noise, self.strict = ops, pairs, noise, strict
        self.tolerance, self._method, self.max_iterations = tolerance, method, max_iterations

    @cached_property
    def solver(self) -> Solver:
        """Of :math:`K_{TT} + D`; made when first needed, since a mean alone may never ask."""
        return make_solver(*self.ops, self.pairs, self.noise, method=self._method, max_iterations=self.max_iterations)

    def solve(self, rhs: Tensor) -> Tensor:
        """(T, C): (K_TT + D)^-1 times (T, C); raises when the tolerance is missed."""
        found: Tensor = _Solve.apply(rhs, self)
        return found

    @cached_property
    def covariance(self) -> PairLinearOperator:
        """K_TT (T, T), lazy."""
        return PairLinearOperator(*self.ops, self.pairs)

    @cached_property
    def dense(self) -> CholeskySolver:
        """A dense factor of K_TT + D, whatever else the solver is; for few observations."""
        if self._solver_is_dense and isinstance(self.solver, CholeskySolver):
            return self.solver
        if len(self.pairs) > DENSE_LIMIT:
            raise SizeError(
                f"a dense factor of K_TT + noise is offered up to {DENSE_LIMIT:,} observed pairs, there are "
                f"{len(self.pairs):,}; use method='cg' or 'bounded'"
            )
        return CholeskySolver(self.covariance, self.noise.expand(len(self.pairs)))

    @property
    def has_dense(self) -> bool:
        """Whether a dense factor of K_TT + D is there, or is what the solver makes."""
        return "dense" in self.__dict__ or self._solver_is_dense

    @property
    def _solver_is_dense(self) -> bool:
        """Whether the solver is a dense factor; known without making it."""
        small = len(self.pairs) <= CHOLESKY_LIMIT and not self._is_complete
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
    def least(self) -> float:
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
        """Given the observations ``which`` (J,) alone; its variances are at least as large."""
        noise = self.noise[which] if self.noise.dim() else self.noise
        return type(self)(
            self.ops,
            self.pairs[which],
            noise,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            strict=self.strict,
        )

    @cached_property
    def single(self) -> Self:
        """The same in single precision."""
        return type(self)(
            (self.ops[0].to(torch.float32), self.ops[1].to(torch.float32)),
            self.pairs,
            self.noise.float(),
            tolerance=max(self.tolerance, 1e-5),
            max_iterations=self.max_iterations,
            strict=self.strict,
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
