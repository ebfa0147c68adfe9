"""GaussianPosterior: a mean and a covariance, and everything that follows from them."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import LinearOperator
from torch import Tensor

from ..data.checks import check_index
from ..linalg import PairIndex
from ..priors import MatrixGP
from .coefficients import CHUNK, Coefficients, pair_means, row_scores
from .query import AxisQuery, Query


class PosteriorCovariance(Protocol):
    """What a posterior needs of its covariance S."""

    pairs: PairIndex

    def operator(self, query: Query) -> LinearOperator:
        """S at the query's cells, (Q, Q)."""
        ...

    def everywhere(self, query: Query) -> LinearOperator:
        """S over the whole grid, (M N, M N); ``query`` is every cell."""
        ...

    def variance(self, query: Query) -> Tensor:
        """(Q,): its diagonal."""
        ...

    def sample(self, query: Query, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """(num_samples, Q): joint samples with mean 0."""
        ...


class GaussianPosterior:
    r"""A Gaussian process over the matrix: mean :math:`b + k_M A k_N^T`, covariance S of equation (3).

    Cells are given by their row and column, (Q,) each. For kernels with inputs, ``row_inputs`` and
    ``col_inputs`` ask about rows and columns that the prior has never seen: positions then count
    within the new inputs.

    :param prior: a copy of the prior as it was when fitted.
    :param ops: its covariances (K_M, K_N).
    :param coefficients: A, the representer coefficients of the mean.
    :param conditional: the covariance.
    """

    def __init__(
        self,
        prior: MatrixGP,
        ops: tuple[LinearOperator, LinearOperator],
        coefficients: Coefficients,
        conditional: PosteriorCovariance,
    ) -> None:
        self.prior, self._ops = prior, ops
        self.coefficients, self.conditional = coefficients, conditional

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.prior.shape

    def _query(self, rows: Any, cols: Any, row_inputs: Any, col_inputs: Any) -> Query:
        return Query(self.prior, self._ops, rows, cols, row_inputs, col_inputs)

    @torch.no_grad()
    def __call__(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> MultivariateNormal:
        """The joint posterior at pairs (``rows``, ``cols``): mean (Q,), lazy covariance (Q, Q)."""
        query = self._query(rows, cols, row_inputs, col_inputs)
        mean = query.prior_mean() + pair_means(self.coefficients, query)
        return MultivariateNormal(mean, self.conditional.operator(query))

    @torch.no_grad()
    def mean(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> Tensor:
        """(Q,): posterior mean at pairs."""
        query = self._query(rows, cols, row_inputs, col_inputs)
        return query.prior_mean() + pair_means(self.coefficients, query)

    @torch.no_grad()
    def variance(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> Tensor:
        """(Q,): posterior variance at pairs (of the noise-free entry), in bounded memory."""
        return self.conditional.variance(self._query(rows, cols, row_inputs, col_inputs))

    @torch.no_grad()
    def sample(
        self,
        rows: Any,
        cols: Any,
        num_samples: int = 1,
        *,
        row_inputs: Any = None,
        col_inputs: Any = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """(num_samples, Q): joint samples at pairs, exact up to the solver's tolerance."""
        query = self._query(rows, cols, row_inputs, col_inputs)
        mean = query.prior_mean() + pair_means(self.coefficients, query)
        return mean + self.conditional.sample(query, num_samples, generator)

    @torch.no_grad()
    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): posterior means of whole rows, all of them when ``rows`` (R,) is left out."""
        chosen = check_index(range(self.shape[0]) if rows is None else rows, self.shape[0], "rows")
        chosen = chosen.to(self._ops[0].device)
        row_side, col_side = (
            AxisQuery(axis, op) for axis, op in zip((self.prior.row_axis, self.prior.col_axis), self._ops, strict=True)
        )
        cols = torch.arange(self.shape[1], device=chosen.device)
        out = torch.empty(len(chosen), self.shape[1], dtype=self.prior.dtype, device=chosen.device)
        for start in range(0, len(chosen), CHUNK):
            part = chosen[start : start + CHUNK]
            out[start : start + CHUNK] = row_scores(self.coefficients, row_side, col_side, part)
            out[start : start + CHUNK] += self.prior.mean_module.block(part, cols)
        return out

    @torch.no_grad()
    def covariance(self) -> LinearOperator:
        """S over all cells, (M N, M N), row-major, applied lazily."""
        everything = PairIndex.complete(self.shape, self._ops[0].device)
        return self.conditional.everywhere(self._query(everything.rows, everything.cols, None, None))

    def __repr__(self) -> str:
        m, n = self.shape
        return f"{type(self).__name__}({m} x {n}, {len(self.conditional.pairs)} observed)"
