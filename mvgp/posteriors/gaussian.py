"""GaussianPosterior: a mean and a covariance, and everything that follows from them."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import LinearOperator
from torch import Tensor

from ..data.checks import check_index
from ..errors import InputError
from ..linalg import PairIndex
from ..priors import MatrixGP
from . import ranks
from .coefficients import CHUNK, Coefficients, pair_means, row_scores
from .query import AxisQuery, Query
from .top_table import TopTable

SAMPLE_BYTES = 128 * 2**20  # right-hand sides of a batch of samples of a row


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
    def top(
        self,
        row: Any,
        k: int = 20,
        *,
        exclude: Any = None,
        level: float = 0.9,
        num_samples: int = 1000,
        seed: int = 0,
    ) -> TopTable:
        """The k best items of a row by posterior mean, each with its standard deviation and P(in the top k).

        The probabilities and the intervals of ranks are shares of joint samples of the row's candidates: with S
        samples, a probability p has a standard error of sqrt(p (1 - p) / S).

        :param row: the row.
        :param k: how many items; also the k of P(in the top k).
        :param exclude: known positives that are no candidates: an ``ObservedMatrix``, whose entries above 0 count, a
            ``PositiveUnlabelled`` or a pair (rows, cols). The names of items are taken from it, too.
        :param level: probability of the intervals of ranks.
        :param num_samples: S.
        :param seed: of the samples; other random numbers are left alone.

        Example:
            >>> import gpytorch, mvgp, torch
            >>> from mvgp.kernels import PrecomputedKernel
            >>> two, four = (PrecomputedKernel(torch.eye(size, dtype=torch.float64)) for size in (2, 4))
            >>> data = mvgp.ObservedMatrix([0, 0, 0], [0, 1, 2], [3.0, -3.0, 3.0], (2, 4))
            >>> model = mvgp.FullGP(mvgp.MatrixGP(two, four), gpytorch.likelihoods.GaussianLikelihood().double())
            >>> model.fit(data).top(0, k=2, exclude=([0], [0])).items.tolist()
            [2, 3]

        """
        places, share = ranks.check_count(k, "k"), ranks.check_level(level)
        items, samples = self._row_samples(row, exclude, num_samples, seed)
        rows = torch.full_like(items, ranks.check_one(row, self.shape[0], "row"))
        best = self.mean(rows, items).argsort(descending=True, stable=True)[:places]
        chosen, at = items[best], rows[best]
        low, high = ranks.rank_interval(samples, share, best)
        names = getattr(exclude, "col_names", None)
        return TopTable(
            items=chosen,
            names=None if names is None else tuple(names[item] for item in chosen.tolist()),
            mean=self.mean(at, chosen),
            std=self.variance(at, chosen).sqrt(),
            top_probability=ranks.top_probability(samples, places)[best],
            rank_low=low,
            rank_high=high,
            k=places,
            level=share,
        )

    @torch.no_grad()
    def top_probability(
        self, row: Any, k: int = 20, *, exclude: Any = None, num_samples: int = 1000, seed: int = 0
    ) -> Tensor:
        """(N,): P(in the top k) of every item of a row; 0 for excluded ones. Arguments as for :meth:`top`."""
        places = ranks.check_count(k, "k")
        items, samples = self._row_samples(row, exclude, num_samples, seed)
        out = torch.zeros(self.shape[1], dtype=torch.float64, device=samples.device)
        out[items] = ranks.top_probability(samples, places)
        return out

    @torch.no_grad()
    def rank_interval(
        self, row: Any, level: float = 0.9, *, exclude: Any = None, num_samples: int = 1000, seed: int = 0
    ) -> tuple[Tensor, Tensor]:
        """(N,) and (N,): best and worst rank of a credible interval of every item of a row; 0 for excluded ones."""
        share = ranks.check_level(level)
        items, samples = self._row_samples(row, exclude, num_samples, seed)
        low, high = torch.zeros(2, self.shape[1], dtype=torch.long, device=samples.device)
        low[items], high[items] = ranks.rank_interval(samples, share)
        return low, high

    def _row_samples(self, row: Any, exclude: Any, num_samples: int, seed: int) -> tuple[Tensor, Tensor]:
        """(C,) candidates of a row, and (S, C) joint samples of them."""
        one, count = ranks.check_one(row, self.shape[0], "row"), ranks.check_count(num_samples, "num_samples")
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise InputError(f"seed: expected a whole number, got {seed!r}")
        device = self._ops[0].device
        items = ranks.candidates(one, exclude, self.shape).to(device)
        rows, generator = torch.full_like(items, one), torch.Generator(device).manual_seed(seed)
        width = max(16, SAMPLE_BYTES // (8 * max(len(self.conditional.pairs), len(items))))
        parts = [min(width, count - start) for start in range(0, count, width)]
        return items, torch.cat([self.sample(rows, items, part, generator=generator) for part in parts])

    @torch.no_grad()
    def covariance(self) -> LinearOperator:
        """S over all cells, (M N, M N), row-major, applied lazily."""
        everything = PairIndex.complete(self.shape, self._ops[0].device)
        return self.conditional.everywhere(self._query(everything.rows, everything.cols, None, None))

    def __repr__(self) -> str:
        m, n = self.shape
        return f"{type(self).__name__}({m} x {n}, {len(self.conditional.pairs)} observed)"
