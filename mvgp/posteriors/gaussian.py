r"""Posteriors: a mean and a covariance, and everything that follows from them.

The covariance of :class:`FullPosterior` and :class:`TracePosterior` can be rescaled to the maximum marginal likelihood.
Multiply the prior's covariance and the noise by a number s. A plain posterior keeps its mean, and so does the
trace-constrained one with :math:`\sqrt{s}\, l_1` and :math:`s\, l_2` in equation (5); the covariance becomes
:math:`s S`. The evidence bound depends on s through

.. math:: -\tfrac T2 \log s - \tfrac{1}{2 s} \left( (r - \psi_T)^T D^{-1} (r - \psi_T) + \|\psi - b\|_K^2 \right)

with r the observed values, or the retargeted scores of a ranking. Its maximum is at s = the bracket divided by T; for
the plain posterior that is :math:`(r - b)^T (K_{TT} + D)^{-1} (r - b) / T`, the maximum of the marginal likelihood.
"""

from __future__ import annotations

import copy
import os
import statistics
from dataclasses import replace
from typing import Any, Self

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import LinearOperator
from linear_operator.operators import ZeroLinearOperator
from torch import Tensor

from .. import hooks
from ..checks import check_between, check_generator, check_positive, without_gradient
from ..errors import InputError
from ..linalg.conjugate_gradients import SolveReport
from ..linalg.pairs import PairIndex
from ..mean.low_rank import LowRank, MeanSolution
from ..mean.problem import Certificate, Penalty
from ..mean.ridge import RidgeSolution
from ..priors.matrix_gp import MatrixGP
from ..tensor_checks import check_index, check_samples
from .all_cells import RowsMethod, VarianceEstimate, row_variances
from .covariance import NoCovariance, PosteriorCovariance, ScaledCovariance, unscaled
from .explain import Duals, Explanation, explain_cell
from .query import LINE_BATCH, AxisQuery, Coefficients, Query, pair_means, row_scores
from .ranks import Joint, RankQueries
from .system import VarianceMethod
from .updates import NewObservations


class GaussianPosterior(RankQueries, NewObservations):
    r"""A Gaussian process over the matrix: mean :math:`b + k_M A k_N^T`, covariance S of equation (3).

    Cells are given by their row and column, (Q,) each. For kernels with inputs, ``row_inputs`` and ``col_inputs`` ask
    about new rows and columns; positions then count within the new inputs. A posterior is constant: no answer carries
    a gradient, and inputs that require one are refused.

    :param prior: a copy of the prior as it was when fitted; if it takes gradients, a snapshot of it is kept.
    :param ops: its covariances (K_M, K_N).
    :param coefficients: A, the representer coefficients of the mean.
    :param conditional: the covariance.
    """

    _duals: Duals | None = None  # set by a fit, and by the loader
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
        self._ops: tuple[LinearOperator, LinearOperator] = (row_op, col_op)
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

    def _query(self, rows: Any, cols: Any, row_inputs: Any = None, col_inputs: Any = None) -> Query:
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
        return self._mean(self._query(rows, cols, row_inputs, col_inputs))

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

        :param method: one of the table in :mod:`mvgp.posteriors.system`; by default what fits the size.
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

        Exact where that takes a minute, estimated from random vectors elsewhere, :mod:`mvgp.posteriors.all_cells`.

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
        chosen = self._rows(rows)
        return row_variances(self.conditional, self._query, chosen, method, accuracy, max_probes, seed, progress)

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
        query = self._query(rows, cols)
        return replace(self.conditional.joint(query), mean=self._mean(query))

    @without_gradient
    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): posterior means of whole rows, all of them when ``rows`` (R,) is left out."""
        chosen = self._rows(rows)
        row_side, col_side = AxisQuery(self.prior.row_axis, self._ops[0]), AxisQuery(self.prior.col_axis, self._ops[1])
        cols = torch.arange(self.shape[1], device=chosen.device)
        out = torch.empty(len(chosen), self.shape[1], dtype=self.prior.dtype, device=chosen.device)
        for start in range(0, len(chosen), LINE_BATCH):
            where = slice(start, start + LINE_BATCH)
            out[where] = row_scores(self.coefficients, row_side, col_side, chosen[where])
            out[where] += self.prior.mean_module.block(chosen[where], cols)
        return out

    @without_gradient
    def explain(self, row: int, col: int, *, row_inputs: Any = None, col_inputs: Any = None) -> Explanation:
        """Why the mean of one cell is what it is: the exact share of every known pair, equation (14).

        The shares, the prior mean and what unlabelled cells add sum to the score, up to the accuracy of the fit.

        Example:
            >>> import gpytorch, mvgp, torch
            >>> from mvgp.kernels import PrecomputedKernel
            >>> two, four = (PrecomputedKernel(0.5 + 0.5 * torch.eye(size).double()) for size in (2, 4))
            >>> data = mvgp.ObservedMatrix([0, 1], [0, 1], [3.0, -1.0], (2, 4))
            >>> likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
            >>> why = mvgp.FullGP(mvgp.MatrixGP(two, four), likelihood).fit(data).explain(0, 1)
            >>> list(zip(why.rows.tolist(), why.cols.tolist(), why.shares.round(decimals=2).tolist()))
            [(0, 0, 0.95), (1, 1, -0.44)]

        """
        if self._duals is None:
            raise InputError(
                "explain: this posterior does not know what its pairs carry; fit it again, or save it with a newer mvgp"
            )
        query = self._query(row, col, row_inputs, col_inputs)
        return explain_cell([query], [self._duals], float(self._mean(query).sum()), float(query.prior_mean().sum()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole or not at all, replacing an old one; :func:`mvgp.load` gives it back."""
        hooks.save_posterior(self, path)

    @without_gradient
    def covariance(self) -> LinearOperator:
        """S over all cells, (M N, M N), row-major, applied lazily."""
        everything = PairIndex.complete(self.shape, self.device)
        return self.conditional.everywhere(self._query(everything.rows, everything.cols))

    def __repr__(self) -> str:
        m, n = self.shape
        return f"{type(self).__name__}({m} x {n}, {len(self.conditional.pairs)} observed)"


class ScalablePosterior(GaussianPosterior):
    r"""The posterior of :class:`mvgp.FullGP` or :class:`mvgp.TraceGP`, which can be rescaled to :math:`s S`."""

    _evidence_scale: float | None = None

    @property
    def scale(self) -> float:
        """By which covariance and noise are multiplied; 1 for a posterior as it was fitted."""
        return unscaled(self.conditional)[1]

    @property
    def noise(self) -> float | None:
        """Noise variance of an observation with weight 1, at this scale; None if it is not known."""
        return super().noise if self._noise is None else self.scale * self._noise

    @property
    def evidence_scale(self) -> float:
        """The scale of largest evidence bound, relative to the prior as it was given."""
        if self._evidence_scale is None:
            raise InputError("evidence_scale: this posterior is from a file that was written without it; fit it again")
        return self._evidence_scale

    def rescaled(self, scale: float) -> Self:
        """The same mean with ``scale`` times the covariance S of the prior as it was given.

        :param scale: positive; :attr:`evidence_scale` maximises the marginal likelihood.
        """
        scale = check_positive(scale, "scale")
        other = copy.copy(self)
        if not isinstance(self.conditional, NoCovariance):
            other.conditional = ScaledCovariance(unscaled(self.conditional)[0], scale)
        return other

    def calibrated(self) -> Self:
        """The same mean, the covariance rescaled to the maximum marginal likelihood, :attr:`evidence_scale` times S.

        P(in the top k) compares differences of the mean, on the scale of the margin, with deviations on the kernels'.
        """
        return self.rescaled(self.evidence_scale)


class FullPosterior(ScalablePosterior):
    r"""The exact posterior, equations (2) and (3).

    .. math:: \psi = b + K_{*T} (K_{TT} + D)^{-1} (r - b_T), \qquad S = K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}

    :param solve_report: how well the linear system of the mean was solved; None for a ranking, which has a certificate.
    :param certificate: of a ranking: how far its mean is from the optimum; None otherwise.
    :param evidence_scale: see :mod:`~mvgp.posteriors.gaussian`.
    """

    def __init__(
        self,
        *parts: Any,
        solve_report: SolveReport | None = None,
        certificate: Certificate | None = None,
        evidence_scale: float | None = None,
    ) -> None:
        super().__init__(*parts)
        self._evidence_scale = evidence_scale
        self.solve_report, self.certificate = solve_report, certificate


class TracePosterior(ScalablePosterior):
    r"""The mean :math:`\psi = b + G_M B G_N^T` solves the spectral elastic net (5); the covariance is equation (3).

    :param certificate: of the mean: duality gap, iterations, rank.
    :param penalty: the penalty it solves.
    :param mean_factors: the mean in dual coordinates, up to prior mean and biases; None without a trace norm.
    :param solution: what a neighbouring problem can start from; None for a posterior from a file.
    :param evidence_scale: see :mod:`~mvgp.posteriors.gaussian`.
    """

    def __init__(
        self,
        *parts: Any,
        certificate: Certificate,
        penalty: Penalty,
        mean_factors: LowRank | None,
        solution: MeanSolution | RidgeSolution | None = None,
        evidence_scale: float | None = None,
    ) -> None:
        super().__init__(*parts)
        self._evidence_scale = evidence_scale
        self.certificate, self.penalty = certificate, penalty
        self.mean_factors, self.solution = mean_factors, solution

    @property
    def rank(self) -> int:
        """Rank of the mean (before prior mean and biases)."""
        return self.certificate.rank

    @property
    def trace_norm(self) -> float:
        """||B||_*: the radius of the ball whose constraint form, equation (6), has the same mean."""
        if self.mean_factors is None:
            raise InputError("without a trace norm (trace_share = 0) the mean is not of low rank")
        return float(self.mean_factors.values.double().sum())

    @property
    def factors(self) -> tuple[Tensor, Tensor]:
        """(M, R) and (N, R): their product is the mean, up to prior mean and biases."""
        if self.mean_factors is None:
            raise InputError("without a trace norm (trace_share = 0) the mean is not of low rank; use scores or mean")
        mean = self.mean_factors
        return mean.left_image * mean.values.sqrt(), mean.right_image * mean.values.sqrt()
