"""ConditionalCovariance: what remains of the prior's covariance once some cells have been observed."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..errors import SizeError
from ..linalg import (
    KroneckerLinearOperator,
    PairIndex,
    PairLinearOperator,
    SpectralKroneckerLinearOperator,
    root,
)
from ..linalg.bounds import spectral_bounds
from ..linalg.solvers import CHOLESKY_LIMIT, DENSE_LIMIT, CholeskySolver, Method, Solver, SpectralSolver, make_solver
from .covariance import PosteriorCovarianceLinearOperator
from .joint import Joint, joint_covariance
from .krylov_cache import KrylovCache
from .pair_variance import VarianceMethod, pair_variance
from .query import Query


class _Solve(torch.autograd.Function):
    """x = A^-1 b for the constant symmetric A = K_TT + D; its gradient is another solve."""

    @staticmethod
    def forward(ctx: Any, rhs: Tensor, conditional: ConditionalCovariance) -> Tensor:
        ctx.conditional = conditional
        own = rhs.to(conditional.noise.dtype)  # an operator may have been converted, its solver keeps its precision
        return (
            conditional.solver.solve(own, conditional.tolerance).checked(strict=conditional.strict).value.to(rhs.dtype)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.conditional.solve(gradients[0]), None


class ConditionalCovariance:
    r"""Equation (3): :math:`S = K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}`.

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

    def restricted(self, which: Tensor) -> ConditionalCovariance:
        """Given the observations ``which`` (J,) alone; its variances are at least as large."""
        noise = self.noise[which] if self.noise.dim() else self.noise
        return ConditionalCovariance(
            self.ops,
            self.pairs[which],
            noise,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            strict=self.strict,
        )

    @cached_property
    def single(self) -> ConditionalCovariance:
        """The same in single precision."""
        return ConditionalCovariance(
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

    def operator(self, query: Query) -> LinearOperator:
        """S at the query's cells, (Q, Q), lazy."""
        prior = PairLinearOperator(query.row_side.covariance(), query.col_side.covariance(), query.pairs)
        return PosteriorCovarianceLinearOperator(prior, self.cross(query), self, query)

    def everywhere(self, query: Query) -> LinearOperator:
        """S over the whole grid, (M N, M N), lazy; ``query`` is every cell, row by row."""
        closed = self.closed_form
        if closed is not None:
            return closed
        return PosteriorCovarianceLinearOperator(KroneckerLinearOperator(*self.ops), self.cross(query), self, query)

    def variance(self, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None) -> Tensor:
        """(Q,): the diagonal of S; see :mod:`~mvgp.posteriors.pair_variance`."""
        return pair_variance(self, query, method, accuracy)

    def joint(self, query: Query) -> Joint:
        """S at the query's cells as a dense matrix; see :mod:`~mvgp.posteriors.joint`."""
        return joint_covariance(self, query)

    def sample(self, query: Query, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        r"""(num_samples, Q): joint samples with mean 0 and covariance S, by Matheron's rule.

        A sample of the prior at the query and at the observed cells, less what conditioning on the
        latter predicts: :math:`f_* - K_{*T} (K_{TT} + D)^{-1} (f_T + \epsilon)`.
        """
        (row_op, row_start), (col_op, col_start) = query.row_side.extended(), query.col_side.extended()
        row_root, col_root = root(row_op), root(col_op)
        at_query, at_observed = [], []
        for _ in range(num_samples):
            size = (row_root.shape[-1], col_root.shape[-1])
            noise = torch.randn(size, generator=generator, dtype=row_op.dtype, device=row_op.device)
            grid = col_root._matmul(row_root._matmul(noise).mT).mT
            at_query.append(grid[query.pairs.rows + row_start, query.pairs.cols + col_start])
            at_observed.append(grid[self.pairs.rows, self.pairs.cols])
        observed = torch.stack(at_observed, dim=1)  # (T, S)
        measured = torch.randn(observed.shape, generator=generator, dtype=observed.dtype, device=observed.device)
        scale = self.noise.sqrt().unsqueeze(-1) if self.noise.dim() else self.noise.sqrt()
        weights = self.solve(observed + scale * measured)
        return torch.stack(at_query) - self.cross(query)._matmul(weights).mT
