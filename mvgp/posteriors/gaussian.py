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
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import LinearOperator
from linear_operator.operators import ZeroLinearOperator
from torch import Tensor

from .. import hooks
from ..checks import check_between, check_generator, check_positive, gradient_of, without_gradient
from ..errors import InputError
from ..likelihoods.losses import is_pointwise
from ..linalg.conjugate_gradients import SolveReport
from ..linalg.pairs import PairIndex
from ..linalg.spectra import Operators, Terms, as_terms
from ..mean.low_rank import LowRank, MeanSolution
from ..mean.problem import Certificate, Penalty
from ..mean.ridge import RidgeSolution
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from ..progress import Progress, shows_progress
from ..tensor_checks import check_samples
from .all_cells import RowsMethod, VarianceEstimate, row_variances
from .covariance import NoCovariance, PosteriorCovariance, ScaledCovariance, unscaled
from .explain import Duals, Explanation, explain_cell
from .joint import Joint
from .predictive import Predictions
from .query import LINE_BATCH, Coefficients, Query, pair_means
from .ranks import RankQueries
from .sums import TermMean, each_term, sum_query
from .system import VarianceMethod
from .updates import NewObservations

_carried = gradient_of("row_inputs", "col_inputs")


class GaussianPosterior(RankQueries, NewObservations):
    r"""A Gaussian process over the matrix: mean :math:`b + k_M A k_N^T`, covariance S of equation (3).

    Cells are given by their rows and columns, which broadcast: (Q,) and (Q,), 3 and (Q,), or (R, 1) and (C,) for R x C
    cells; answers have the shape of the cells, (1,) for two numbers. For kernels with inputs, ``row_inputs`` and
    ``col_inputs`` (q, d) ask about new rows and columns; positions then count within the new inputs. Inputs (..., q, d)
    are batches, which broadcast with all but the last dimension of the positions. Under a sum of terms they are inputs
    for all terms, or a list with an entry for each (None for a term on nodes whose own positions are meant). Answers
    carry gradients to new inputs that require them; a posterior is constant in its hyperparameters.

    :param prior: a copy of the prior as it was when fitted; if it takes gradients, a snapshot of it is kept.
    :param ops: its covariances (K_M, K_N), or such a pair for each term of a sum.
    :param coefficients: A, the representer coefficients of the mean, of all terms or of each.
    :param conditional: the covariance.
    """

    gradient_name = "posterior.prior"  # what requires one, if the posterior does
    likelihood: Any = None  # set by a fit whose noise is not one number: as it was, constant
    _duals: Duals | Sequence[Duals] | None = None  # of all terms or of each; set by a fit, and by the loader
    _noise: float | None = None  # set by a fit, and by the loader

    def __init__(
        self,
        prior: MatrixGP | SumGP,
        ops: Operators | Terms,
        coefficients: Coefficients | Sequence[Coefficients],
        conditional: PosteriorCovariance,
    ) -> None:
        learnable = any(values.requires_grad for values in (*prior.parameters(), *prior.buffers()))
        self.prior = prior.snapshot() if learnable else prior
        self._terms: Terms = tuple(
            (row.detach() if row.requires_grad else row, col.detach() if col.requires_grad else col)
            for row, col in as_terms(ops)
        )
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
    def requires_grad(self) -> bool:
        """Whether somebody made its hyperparameters learnable: questions are then refused, their answers are constant.

        The coefficients of a mean depend on the hyperparameters, too, and they are fitted: half a gradient would be
        wrong. Train a prior by :mod:`mvgp.hyperparameters`, and fit again.
        """
        return any(values.requires_grad for values in (*self.prior.parameters(), *self.prior.buffers()))

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return torch.device(self._terms[0][0].device)

    def _query(self, rows: Any, cols: Any, row_inputs: Any = None, col_inputs: Any = None) -> Query:
        if isinstance(self.prior, SumGP):
            return sum_query(self.prior, self._terms, rows, cols, row_inputs, col_inputs)
        return Query(self.prior, self._terms[0], rows, cols, row_inputs, col_inputs)

    def _mean(self, query: Query) -> Tensor:
        means = [pair_means(a, part) for a, part in zip(self._coefficients, query.parts, strict=True)]
        return query.prior_mean() + torch.stack(means).sum(0)

    @property
    def _ops(self) -> Operators:
        """(K_M, K_N) of a prior of one term."""
        if len(self._terms) > 1:
            raise InputError("a sum of terms has several kernels on each axis, this needs a prior of one term")
        return self._terms[0]

    @property
    def _coefficients(self) -> tuple[Coefficients, ...]:
        """Of each term."""
        return each_term(self.coefficients, len(self._terms))

    @property
    def terms(self) -> tuple[TermMean, ...]:
        """The mean of each term of the prior, which answers ``mean(rows, cols)`` and ``scores(rows)``.

        Each has its term's own prior mean, so that they add up to the posterior mean (biases of a fit aside).

        Example:
            >>> import gpytorch, mvgp, torch
            >>> from mvgp.kernels import PrecomputedKernel
            >>> own, flat = (PrecomputedKernel(matrix.double()) for matrix in (torch.eye(2), torch.ones(2, 2)))
            >>> prior = mvgp.MatrixGP(own, own) + mvgp.MatrixGP(flat, own)  # a cell by itself, and the column's effect
            >>> likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
            >>> likelihood.noise = 1.0
            >>> posterior = mvgp.FullGP(prior, likelihood).fit(mvgp.ObservedMatrix([0], [0], [3.0], (2, 2)))
            >>> [term.mean([0, 1], [0, 0]).round(decimals=6).tolist() for term in posterior.terms]
            [[1.0, 0.0], [1.0, 1.0]]

        """
        return tuple(map(TermMean, self.prior.terms, self._terms, self._coefficients))

    @_carried
    def __call__(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> MultivariateNormal:
        """The joint posterior at pairs (``rows``, ``cols``): mean (Q,), lazy covariance (Q, Q).

        It is joint over the last dimension of the cells; others are batches: (R, 1) against (C,) are R distributions of
        C cells each. For all of them jointly give flat positions, or use :meth:`joint`.

        Example:
            >>> import gpytorch, mvgp, torch
            >>> inputs = {"row_inputs": torch.arange(2.0), "col_inputs": torch.arange(4.0)}
            >>> prior = mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), gpytorch.kernels.RBFKernel(), **inputs)
            >>> data = mvgp.ObservedMatrix([0, 1], [0, 1], [3.0, -3.0], (2, 4))
            >>> posterior = mvgp.FullGP(prior, gpytorch.likelihoods.GaussianLikelihood()).fit(data)
            >>> x = torch.tensor([[0.5], [2.5]], dtype=torch.float64, requires_grad=True)
            >>> posterior(1, [0, 1], col_inputs=x).variance.sum().backward()
            >>> x.grad.shape
            torch.Size([2, 1])

        """
        query = self._query(rows, cols, row_inputs, col_inputs)
        mean = self._mean(query).reshape(query.shape)
        if gpytorch.settings.skip_posterior_variances.on():
            shape = (*query.shape, query.shape[-1])
            return MultivariateNormal(mean, ZeroLinearOperator(*shape, dtype=mean.dtype, device=mean.device))
        return MultivariateNormal(mean, self.conditional.operator(query))

    @_carried
    def mean(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> Tensor:
        """(Q,), or the shape of the cells: posterior mean."""
        query = self._query(rows, cols, row_inputs, col_inputs)
        return self._mean(query).reshape(query.shape)

    @_carried
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
        """(Q,), or the shape of the cells: posterior variance (of the noise-free entry), in bounded memory.

        :param method: one of the table in :mod:`mvgp.posteriors.system`; by default what fits the size.
        :param accuracy: largest relative error, such as 0.01, where an exact value would take long.
        """
        query = self._query(rows, cols, row_inputs, col_inputs)
        return self.conditional.variance(query, method, accuracy).reshape(query.shape)

    @_carried
    def interval(
        self, rows: Any, cols: Any, level: float = 0.9, *, row_inputs: Any = None, col_inputs: Any = None
    ) -> tuple[Tensor, Tensor]:
        """(Q,) and (Q,), or the shape of the cells: central credible intervals of the noise-free entries."""
        share, inputs = check_between(level, "level"), {"row_inputs": row_inputs, "col_inputs": col_inputs}
        mean, variance = self.mean(rows, cols, **inputs), self.variance(rows, cols, **inputs)
        reach = statistics.NormalDist().inv_cdf((1 + share) / 2) * variance.sqrt()
        return mean - reach, mean + reach

    @without_gradient
    def variances(
        self,
        rows: Any = None,
        *,
        row_inputs: Any = None,
        col_inputs: Any = None,
        method: RowsMethod = "auto",
        accuracy: float = 0.05,
        max_probes: int = 512,
        seed: int = 0,
        progress: Progress = "auto",
    ) -> VarianceEstimate:
        """Posterior variances of whole rows, all of them when ``rows`` (R,) is left out, with their standard errors.

        Exact where that takes a minute, estimated from random vectors elsewhere (:mod:`mvgp.posteriors.all_cells`).

        :param row_inputs: (q, d) new rows; ``rows`` then count within them. Likewise ``col_inputs``.
        :param method: "exact" or "stochastic" overrides the choice.
        :param accuracy: of an estimated standard deviation, relative, at two standard errors, for nearly all cells.
        :param max_probes: limit for the number of random vectors.
        :param progress: True, False or "auto", see :mod:`mvgp.progress`.
        """
        query = self._query([], [], row_inputs, col_inputs)
        chosen = query.lines(rows)
        return row_variances(self.conditional, query, chosen, method, accuracy, max_probes, seed, progress)

    @shows_progress("samples")
    @_carried
    def sample(
        self,
        rows: Any,
        cols: Any,
        num_samples: int = 1,
        *,
        row_inputs: Any = None,
        col_inputs: Any = None,
        generator: torch.Generator | None = None,
        progress: Progress = "auto",
    ) -> Tensor:
        """(num_samples, Q), or (num_samples, ...) in the shape of the cells: samples, joint over all cells and batches.

        They are exact up to the solver's tolerance, and carry a gradient to new inputs as ``rsample`` does.
        """
        query = self._query(rows, cols, row_inputs, col_inputs)
        num_samples, generator = check_samples(num_samples, max(len(query), 1)), check_generator(generator)
        samples = self._mean(query) + self.conditional.sample(query, num_samples, generator)
        return samples.reshape(num_samples, *query.shape)

    @_carried
    def joint(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> Joint:
        """The joint distribution at up to 20,000 pairs: its mean, its covariance as a dense matrix, cheap samples.

        It is over all cells, (Q,), row by row where they have another shape.
        """
        query = self._query(rows, cols, row_inputs, col_inputs).joined()
        return replace(self.conditional.joint(query), mean=self._mean(query))

    @_carried
    def scores(self, rows: Any = None, *, row_inputs: Any = None, col_inputs: Any = None) -> Tensor:
        """(R, N): posterior means of whole rows, all of them when ``rows`` (R,) is left out.

        :param row_inputs: (q, d) new rows, in place of the prior's; ``rows`` then count within them.
        :param col_inputs: (q, d) new columns, in place of the prior's: the answer is (R, q).
        """
        query = self._query([], [], row_inputs, col_inputs)
        chosen = query.lines(rows)

        def means(part: Tensor) -> Tensor:
            first, *others = (own.line_means(a, part) for own, a in zip(query.parts, self._coefficients, strict=True))
            return sum(others, first) + query.line_prior_means(part)

        if query.carries_gradient:
            return torch.cat([means(part) for part in chosen.split(LINE_BATCH)])
        out = torch.empty(len(chosen), query.parts[0].pairs.shape[1], dtype=self.prior.dtype, device=chosen.device)
        for part, own in zip(chosen.split(LINE_BATCH), out.split(LINE_BATCH), strict=True):
            own[:] = means(part)
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
        duals = each_term(self._duals, len(query.parts))
        return explain_cell(query.parts, duals, float(self._mean(query).sum()), float(query.prior_mean().sum()))

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


class ScalablePosterior(Predictions, GaussianPosterior):
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
        if self.sites is not None or is_pointwise(self.likelihood):  # files have no sites
            raise InputError("evidence_scale: a pointwise likelihood fixes the scale of the latent values; it is 1")
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
