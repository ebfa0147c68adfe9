"""ConditionalCovariance: what remains of the prior's covariance once some cells have been observed."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..linalg import (
    KroneckerLinearOperator,
    PairIndex,
    PairLinearOperator,
    SpectralKroneckerLinearOperator,
    root,
)
from ..linalg.solvers import Method, Solver, SpectralSolver, make_solver
from .covariance import PosteriorCovarianceLinearOperator
from .query import Query

CHUNK_BYTES = 8 * 2**20  # one batch of right-hand sides; larger ones leave the cache
CHUNK_LEAST = 16  # right-hand sides of a batch in any case


class _Solve(torch.autograd.Function):
    """x = A^-1 b for the constant symmetric A = K_TT + D; its gradient is another solve."""

    @staticmethod
    def forward(ctx: Any, rhs: Tensor, conditional: ConditionalCovariance) -> Tensor:
        ctx.conditional = conditional
        own = rhs.to(conditional.noise.dtype)  # an operator may have been converted, its solver keeps its precision
        return conditional.solver.solve(own, conditional.tolerance).checked().value.to(rhs.dtype)

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
    ) -> None:
        self.ops, self.pairs, self.noise = ops, pairs, noise
        self.tolerance, self._method, self._max_iterations = tolerance, method, max_iterations

    @cached_property
    def solver(self) -> Solver:
        """Of :math:`K_{TT} + D`; made when first needed, since a mean alone may never ask."""
        return make_solver(*self.ops, self.pairs, self.noise, method=self._method, max_iterations=self._max_iterations)

    def solve(self, rhs: Tensor) -> Tensor:
        """(T, C): (K_TT + D)^-1 times (T, C); raises when the tolerance is missed."""
        found: Tensor = _Solve.apply(rhs, self)
        return found

    @property
    def closed_form(self) -> SpectralKroneckerLinearOperator | None:
        """S over the whole grid by eigenpairs, if every cell was observed with equal noise."""
        if not isinstance(self.solver, SpectralSolver):
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

    def variance(self, query: Query) -> Tensor:
        """(Q,): the diagonal of S, between 0 and the prior's variance; exact up to the solver's tolerance."""
        prior = query.prior_variance()
        closed = self.closed_form
        if closed is not None and not query.is_new:
            width = query.pairs.shape[1]
            cells = query.pairs.rows * width + query.pairs.cols
            parts = [closed._get_indices(part, part) for part in cells.split(4096)]
            return torch.minimum(torch.cat(parts).clamp_min(0), prior)
        reduction = torch.empty_like(prior)
        width = max(CHUNK_LEAST, CHUNK_BYTES // (len(self.pairs) * prior.element_size()))
        for start in range(0, len(query), width):
            part = query.pairs[slice(start, start + width)]
            of_rows = query.row_side.columns(part.active_rows)[self.pairs.rows]  # (T, u)
            of_cols = query.col_side.columns(part.active_cols)[self.pairs.cols]  # (T, v)
            rhs = of_rows[:, part.local_rows] * of_cols[:, part.local_cols]  # (T, q) = K_T*
            reduction[start : start + width] = (rhs * self.solve(rhs)).sum(0)
        return torch.minimum((prior - reduction).clamp_min(0), prior)

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
