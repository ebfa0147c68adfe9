"""GaussianPosterior: a mean and a covariance, and everything that follows from them."""

from __future__ import annotations

import os
import statistics
from dataclasses import replace
from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import LinearOperator
from linear_operator.operators import ZeroLinearOperator
from torch import Tensor

from .. import hooks
from ..checks import check_between, check_generator, without_gradient
from ..linalg.pairs import PairIndex
from ..priors.matrix_gp import MatrixGP
from ..tensor_checks import check_index, check_samples
from .all_cells import RowsMethod, VarianceEstimate, row_variances
from .covariance import PosteriorCovariance
from .joint import Joint
from .query import LINE_BATCH, AxisQuery, Coefficients, Query, pair_means, row_scores
from .ranks import RankQueries
from .variance import VarianceMethod


class GaussianPosterior(RankQueries):
    r"""A Gaussian process over the matrix: mean :math:`b + k_M A k_N^T`, covariance S of equation (3).

    Cells are given by their row and column, (Q,) each. For kernels with inputs, ``row_inputs`` and
    ``col_inputs`` ask about rows and columns that the prior has never seen: positions then count
    within the new inputs.

    A posterior is constant: no answer carries a gradient, and inputs that require one are refused.

    :param prior: a copy of the prior as it was when fitted; if it takes gradients, a snapshot of it is kept.
    :param ops: its covariances (K_M, K_N).
    :param coefficients: A, the representer coefficients of the mean.
    :param conditional: the covariance.
    """

    _noise: float | None = None  # set by a fit, and by the loader

    def __init__(
        self,
        prior: MatrixGP,
        ops: tuple[LinearOperator, LinearOperator],
        coefficients: Coefficients,
        conditional: PosteriorCovariance,
    ) -> None:
        learnable = any(values.requires_grad for values in (*prior.parameters(), *prior.buffers()))
        self.prior = prior.snapshot() if learnable else prior
        row_op, col_op = (op.detach() if op.requires_grad else op for op in ops)
        self._ops = (row_op, col_op)
        self.coefficients, self.conditional = coefficients, conditional

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.prior.shape

    @property
    def noise(self) -> float | None:
        """Noise variance of an observation with weight 1, the likelihood's at the fit; None if it is not known."""
        if self._noise is not None:
            return self._noise
        variances = self.conditional.noise  # () where all weights are 1
        return float(variances) if variances.dim() == 0 else None

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        device: torch.device = self._ops[0].device
        return device

    def _query(self, rows: Any, cols: Any, row_inputs: Any, col_inputs: Any) -> Query:
        return Query(self.prior, self._ops, rows, cols, row_inputs, col_inputs)

    def _mean(self, query: Query) -> Tensor:
        return query.prior_mean() + pair_means(self.coefficients, query)

    def _rows(self, rows: Any) -> Tensor:
        """(R,) positions of rows, all of them for None."""
        return check_index(range(self.shape[0]) if rows is None else rows, self.shape[0], "rows").to(self.device)

    @without_gradient
    def __call__(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> MultivariateNormal:
        """The joint posterior at pairs (``rows``, ``cols``): mean (Q,), lazy covariance (Q, Q)."""
        query = self._query(rows, cols, row_inputs, col_inputs)
        mean = self._mean(query)
        if gpytorch.settings.skip_posterior_variances.on():
            nothing = ZeroLinearOperator(len(query), len(query), dtype=mean.dtype, device=mean.device)
            return MultivariateNormal(mean, nothing)
        return MultivariateNormal(mean, self.conditional.operator(query))

    @without_gradient
    def mean(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> Tensor:
        """(Q,): posterior mean at pairs."""
        query = self._query(rows, cols, row_inputs, col_inputs)
        return self._mean(query)

    @without_gradient
    def variance(
        self,
        rows: Any,
        cols: Any,
        *,
        row_inputs: Any = None,
        col_inputs: Any = None,
        method: VarianceMethod = "auto",
        accuracy: float | None = None,
    ) -> Tensor:
        """(Q,): posterior variance at pairs (of the noise-free entry), in bounded memory.

        :param method: one of the table in :mod:`mvgp.posteriors.variance`; by default what fits the size.
        :param accuracy: largest relative error, such as 0.01, where an exact value would take long.
        """
        return self.conditional.variance(self._query(rows, cols, row_inputs, col_inputs), method, accuracy)

    @without_gradient
    def interval(
        self, rows: Any, cols: Any, level: float = 0.9, *, row_inputs: Any = None, col_inputs: Any = None
    ) -> tuple[Tensor, Tensor]:
        """(Q,) and (Q,): ends of the central credible intervals of the noise-free entries."""
        share, inputs = check_between(level, "level"), {"row_inputs": row_inputs, "col_inputs": col_inputs}
        mean, variance = self.mean(rows, cols, **inputs), self.variance(rows, cols, **inputs)
        reach = statistics.NormalDist().inv_cdf((1 + share) / 2) * variance.sqrt()
        return mean - reach, mean + reach

    @without_gradient
    def variances(
        self,
        rows: Any = None,
        *,
        method: RowsMethod = "auto",
        accuracy: float = 0.05,
        max_probes: int = 512,
        seed: int = 0,
        progress: bool = False,
    ) -> VarianceEstimate:
        """Posterior variances of whole rows, all of them when ``rows`` (R,) is left out, with their standard errors.

        Exact where that takes about a minute, estimated from random vectors elsewhere; see
        :mod:`mvgp.posteriors.all_cells`.

        :param method: "exact" or "stochastic" overrides the choice.
        :param accuracy: of an estimated standard deviation, relative, at two standard errors, for nearly all cells.
        :param max_probes: limit for the number of random vectors.
        :param progress: whether to show a bar.

        Example:
            >>> import gpytorch, mvgp, torch
            >>> from mvgp.kernels import PrecomputedKernel
            >>> two, four = (PrecomputedKernel(torch.eye(size, dtype=torch.float64)) for size in (2, 4))
            >>> data = mvgp.ObservedMatrix([0, 1], [0, 1], [3.0, -3.0], (2, 4))
            >>> likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
            >>> likelihood.noise = 1.0
            >>> mvgp.FullGP(mvgp.MatrixGP(two, four), likelihood).fit(data).variances([0]).values
            tensor([[0.5000, 1.0000, 1.0000, 1.0000]], dtype=torch.float64)

        """
        return row_variances(
            self.conditional,
            lambda row, col: self._query(row, col, None, None),
            self._rows(rows),
            method=method,
            accuracy=accuracy,
            max_probes=max_probes,
            seed=seed,
            progress=progress,
        )

    @without_gradient
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
        num_samples, generator = check_samples(num_samples, max(len(query), 1)), check_generator(generator)
        mean = self._mean(query)
        return mean + self.conditional.sample(query, num_samples, generator)

    @without_gradient
    def joint(self, rows: Any, cols: Any) -> Joint:
        """The joint distribution at up to 20,000 pairs: its mean, its covariance as a dense matrix, cheap samples."""
        query = self._query(rows, cols, None, None)
        mean = self._mean(query)
        return replace(self.conditional.joint(query), mean=mean)

    @without_gradient
    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): posterior means of whole rows, all of them when ``rows`` (R,) is left out."""
        chosen = self._rows(rows)
        row_side, col_side = (
            AxisQuery(axis, op) for axis, op in zip((self.prior.row_axis, self.prior.col_axis), self._ops, strict=True)
        )
        cols = torch.arange(self.shape[1], device=chosen.device)
        out = torch.empty(len(chosen), self.shape[1], dtype=self.prior.dtype, device=chosen.device)
        for start in range(0, len(chosen), LINE_BATCH):
            part = chosen[start : start + LINE_BATCH]
            out[start : start + LINE_BATCH] = row_scores(self.coefficients, row_side, col_side, part)
            out[start : start + LINE_BATCH] += self.prior.mean_module.block(part, cols)
        return out

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole or not at all; :func:`mvgp.load` gives it back, in any process.

        :param path: of the file; an existing one is replaced.
        """
        hooks.save_posterior(self, path)

    @without_gradient
    def covariance(self) -> LinearOperator:
        """S over all cells, (M N, M N), row-major, applied lazily."""
        everything = PairIndex.complete(self.shape, self.device)
        return self.conditional.everywhere(self._query(everything.rows, everything.cols, None, None))

    def __repr__(self) -> str:
        m, n = self.shape
        return f"{type(self).__name__}({m} x {n}, {len(self.conditional.pairs)} observed)"
