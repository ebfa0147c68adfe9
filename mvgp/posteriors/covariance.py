r"""The covariance S of a posterior, equation (3): what it must offer, and its kinds.

:class:`ConditionalCovariance` is equation (3) itself, :class:`ScaledCovariance` a multiple of another covariance, and
:class:`NoCovariance` says why there is none. :class:`WholeListCovariance` is for lists that are too long to be
conditioned on cell by cell, :mod:`~mvgp.posteriors.factor` has one more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn, Protocol

import torch
from linear_operator import LinearOperator
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from ..checks import check_positive
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import ConvergenceError, InputError, SizeError
from ..linalg.cost import DEFAULT_LIMITS, Limits
from ..linalg.pairs import PairIndex
from ..linalg.spectra import Operators, Terms, as_terms, columns, diagonal_at
from ..linalg.sums import grid_covariance, sum_bounds
from ..tensor_checks import check_right, check_samples
from .joint import Joint, check_joint_size, joint_covariance
from .query import Query
from .system import ObservedSystem, VarianceMethod, covariance_blocks, pair_variance, right_sides

ACCURACY = 0.01  # relative, of a variance given whole lists, unless another one is requested


class PosteriorCovariance(Protocol):
    """What a posterior needs of its covariance S: a variance and a joint matrix, from which the rest can follow."""

    pairs: PairIndex
    noise: Tensor

    def operator(self, query: Query) -> LinearOperator:
        """S at the query's cells, (Q, Q), or of each batch of them, (*B, Q', Q')."""
        if not query.batch_shape:
            return DenseLinearOperator(self.joint(query).matrix.to(self.noise.dtype))
        batches = torch.arange(len(query), device=query.pairs.rows.device).view(-1, query.shape[-1])
        blocks = torch.stack([self.joint(query.part(batch)).matrix for batch in batches])
        return DenseLinearOperator(blocks.view(*query.shape, query.shape[-1]).to(self.noise.dtype))

    def everywhere(self, query: Query) -> LinearOperator:
        """S over the whole grid, (M N, M N); ``query`` is every cell."""
        return self.operator(query)

    def variance(self, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None) -> Tensor:
        """(Q,): its diagonal."""
        ...

    def joint(self, query: Query) -> Joint:
        """S at the query's cells as a dense matrix."""
        ...

    def sample(self, query: Query, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """(num_samples, Q): joint samples with mean 0."""
        return self.joint(query).sample(num_samples, generator).to(self.noise.dtype)


class ConditionalCovariance(ObservedSystem):
    r"""Equation (3): :math:`S = K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}`; see :class:`ObservedSystem`."""

    def operator(self, query: Query) -> LinearOperator:
        """S at the query's cells, (Q, Q), lazy; of each batch of cells, (*B, Q', Q'), dense."""
        if query.batch_shape:
            return DenseLinearOperator(covariance_blocks(self, query).view(*query.shape, query.shape[-1]))
        return PosteriorCovarianceLinearOperator(query.covariance(), self.cross(query), self, query)

    def everywhere(self, query: Query) -> LinearOperator:
        """S over the whole grid, (M N, M N), lazy; ``query`` is every cell, row by row."""
        if self.closed_form is not None:
            return self.closed_form
        return PosteriorCovarianceLinearOperator(grid_covariance(self.terms), self.cross(query), self, query)

    def variance(self, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None) -> Tensor:
        """(Q,): the diagonal of S; see :mod:`~mvgp.posteriors.system`."""
        return pair_variance(self, query, method, accuracy)

    def joint(self, query: Query) -> Joint:
        """S at the query's cells as a dense matrix; see :mod:`~mvgp.posteriors.joint`."""
        return joint_covariance(self, query)

    def sample(self, query: Query, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        r"""(num_samples, Q): joint samples with mean 0 and covariance S, by Matheron's rule.

        A sample of the prior at the query and at the observed cells, less what conditioning on the
        latter predicts: :math:`f_* - K_{*T} (K_{TT} + D)^{-1} (f_T + \epsilon)`. For new inputs that require a gradient
        it is a factor of S times noise.
        """
        if query.carries_gradient:
            matrix = covariance_blocks(self, query.joined()).squeeze(0)
            return Joint(matrix, len(self.pairs)).sample(num_samples, generator)
        at_query, at_observed = query.prior_samples(self.pairs, num_samples, generator)
        observed = at_observed.mT  # (T, S)
        measured = torch.randn(observed.shape, generator=generator, dtype=observed.dtype, device=observed.device)
        scale = self.noise.sqrt().unsqueeze(-1) if self.noise.dim() else self.noise.sqrt()
        weights = self.solve(observed + scale * measured)
        return at_query - self.cross(query)._matmul(weights).mT


class PosteriorCovarianceLinearOperator(LinearOperator):
    r""":math:`S = K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}` over Q cells.

    A product is a few Kronecker products and one solve. The posterior is a snapshot: its solver is constant in the
    hyperparameters.

    :param prior: K_** (Q, Q).
    :param cross: K_*T (Q, T).
    :param conditional: solves with K_TT + D.
    :param query: the Q cells.
    """

    def __init__(
        self, prior: LinearOperator, cross: LinearOperator, conditional: ConditionalCovariance, query: Query
    ) -> None:
        super().__init__(prior, cross, conditional=conditional, query=query)
        self.prior, self.cross, self.conditional, self.query = prior, cross, conditional, query

    def _size(self) -> torch.Size:
        return self.prior.shape

    def _transpose_nonbatch(self) -> PosteriorCovarianceLinearOperator:
        return PosteriorCovarianceLinearOperator(self.prior.mT, self.cross, self.conditional, self.query)

    def _matmul(self, rhs: Tensor) -> Tensor:
        if rhs.dim() == 1:
            return self._matmul(rhs.unsqueeze(-1)).squeeze(-1)
        return self.prior._matmul(rhs) - self.cross._matmul(self._solved(rhs))

    def matmul(self, other: Any) -> Any:
        """Product with a tensor or operator; without gradients by the operator itself, so that its caches serve."""
        check_right(other, self.shape[-1], self.dtype)
        if isinstance(other, Tensor) and not (torch.is_grad_enabled() and (self.requires_grad or other.requires_grad)):
            return self._matmul(other)
        return super().matmul(other)

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        """Of <L, (K_** - C A^-1 C^T) R>: through K_**, and through C on either side of the constant A^-1."""
        left, right = (vecs.unsqueeze(-1) if vecs.dim() == 1 else vecs for vecs in (left_vecs, right_vecs))
        by_left, by_right = (self._solved(vecs) for vecs in (left, right))
        of_prior = self.prior._bilinear_derivative(left, right)
        first, second = self.cross._bilinear_derivative(left, by_right), self.cross._bilinear_derivative(right, by_left)
        of_cross = [None if a is None or b is None else -(a + b) for a, b in zip(first, second, strict=True)]
        return (*of_prior, *of_cross)

    def _solved(self, vecs: Tensor) -> Tensor:
        """(..., T, C): (K_TT + D)^-1 K_T* times (..., Q, C)."""
        seen = self.cross.mT._matmul(vecs)  # (..., T, C)
        flat = self.conditional.solve(seen.movedim(-2, 0).flatten(1))
        return flat.unflatten(1, (*seen.shape[:-2], seen.shape[-1])).movedim(0, -2)

    def _diagonal(self) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.requires_grad):  # the query knows no detach()
            return self.conditional.variance(self.query).to(self.dtype).expand(self.shape[:-1])

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        chosen, back = torch.unique(col_index, return_inverse=True)
        picked = torch.zeros(self.shape[-1], len(chosen), dtype=self.dtype, device=self.device).scatter_(
            0, chosen.unsqueeze(0), 1.0
        )
        return self._matmul(picked)[(*batch_indices, row_index, back)]

    def _expand_batch(self, batch_shape: Any) -> PosteriorCovarianceLinearOperator:
        prior, cross = self.prior._expand_batch(batch_shape), self.cross._expand_batch(batch_shape)
        return PosteriorCovarianceLinearOperator(prior, cross, self.conditional, self.query)

    def to_dense(self) -> Tensor:
        """(Q, Q); exactly symmetric, unless gradients to the factors are wanted."""
        if self.query.carries_gradient and self.requires_grad and not self.batch_shape:
            return covariance_blocks(self.conditional, self.query).squeeze(0)
        dense = self._matmul(torch.eye(self.shape[-1], dtype=self.dtype, device=self.device))
        return dense if dense.requires_grad else (dense + dense.mT) / 2

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """(num_samples, ..., Q) joint samples by Matheron's rule."""
        batch = self.batch_shape
        count = check_samples(num_samples, self.shape[:-1].numel())
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.requires_grad):
            drawn = self.conditional.sample(self.query, count * batch.numel())
        return drawn.view(count, *batch, self.shape[-1])


class ScaledCovariance:
    r"""Equation (3) with :math:`s K` and :math:`s D` in place of K and D, which is :math:`s S`.

    :param inner: S.
    :param scale: s.
    """

    def __init__(self, inner: PosteriorCovariance, scale: float) -> None:
        self.inner, self.scale = inner, scale
        self.pairs, self.noise = inner.pairs, scale * inner.noise

    def operator(self, query: Query) -> LinearOperator:
        """(Q, Q), lazy."""
        return self.inner.operator(query) * self.scale

    def everywhere(self, query: Query) -> LinearOperator:
        """(M N, M N), lazy."""
        return self.inner.everywhere(query) * self.scale

    def variance(self, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None) -> Tensor:
        """(Q,): its diagonal."""
        return self.scale * self.inner.variance(query, method, accuracy)

    def joint(self, query: Query) -> Joint:
        """As a dense matrix (Q, Q)."""
        joint = self.inner.joint(query)
        return replace(joint, matrix=joint.matrix.mul_(self.scale), size=self.scale * joint.size)

    def sample(self, query: Query, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """(num_samples, Q): joint samples with mean 0."""
        return self.scale**0.5 * self.inner.sample(query, num_samples, generator)


def unscaled(covariance: PosteriorCovariance) -> tuple[PosteriorCovariance, float]:
    """The covariance S without its scale, and the scale s."""
    if isinstance(covariance, ScaledCovariance):
        return covariance.inner, covariance.scale
    return covariance, 1.0


class NoCovariance:
    """Takes the place of a covariance; every use of it is an error with a reason."""

    def __init__(self, pairs: PairIndex, reason: str, error: type[Exception] = InputError) -> None:
        self.pairs, self.reason, self.error = pairs, reason, error

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self.error(self.reason)

    operator = everywhere = variance = joint = sample = _refuse
    noise = property(_refuse)


class WholeListCovariance(PosteriorCovariance):
    r"""The covariance given whole lists, at some cells at a time; every variance has a proved accuracy.

    Every cell of many rows is observed, most of them with a small weight. A cell far from the one in question has
    little influence, and a bound on it needs no look at the far cells: with x solving the system of the nearest
    observations J, r the residual of the whole system, and mu a lower bound on the eigenvalues of A,

    .. math:: k^T A^{-1} k = k_J^T x + r^T A^{-1} r \le k_J^T x + \|r\|^2 / \mu.

    On whole rows r is the difference of two matrices of low rank; its norm follows from small Gram matrices.

    :param ops: the prior covariances (K_M, K_N), or such a pair for each term of a sum.
    :param data: the positives; all cells of their rows are observed.
    :param noise: () noise variance of a positive; an unlabelled cell has noise / weight.
    :param tolerance: relative residual of solutions.
    :param limits: how many of the nearest observations are used.
    """

    def __init__(
        self,
        ops: Operators | Terms,
        data: PositiveUnlabelled,
        noise: Tensor,
        *,
        tolerance: float,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.terms, device = as_terms(ops), as_terms(ops)[0][0].device
        self.noise, self.weight, self.tolerance, self.limits = noise, data.weight, tolerance, limits
        self.lists = data.lists
        self.pairs = PairIndex(data.rows.to(device), data.cols.to(device), data.shape)
        self._listed = data.pattern.chosen.to(device)  # (A,)
        self._positive = self.pairs.rows * data.shape[1] + self.pairs.cols  # (P,) ascending
        self.lowest_eigenvalue = sum_bounds(self.terms)[0] + float(noise)

    def _nearest(self, query: Query, count: int) -> ConditionalCovariance:
        """The covariance given the ``count`` observations nearest to the query's cells alone."""
        largest, most = [part.largest_factors() for part in query.parts], self.limits.list_candidates
        by_row = torch.stack([of_rows * of_cols.max() for of_rows, of_cols in largest]).sum(0)[self._listed]
        by_col = torch.stack([of_rows.max() * of_cols for of_rows, of_cols in largest]).sum(0)
        rows = self._listed[by_row.topk(min(most[0], len(by_row))).indices]
        cols = by_col.topk(min(most[1], len(by_col))).indices
        keys = rows.unsqueeze(1) * self.pairs.shape[1] + cols  # (a, b)
        at = torch.searchsorted(self._positive, keys).clamp_max(len(self._positive) - 1)
        noise = torch.where(self._positive[at] == keys, self.noise, self.noise / self.weight)  # (a, b)
        prior = sum(diagonal_at(row, rows).unsqueeze(1) * diagonal_at(col, cols) for row, col in self.terms)
        size = sum(of_rows[rows].unsqueeze(1) * of_cols[cols] for of_rows, of_cols in largest) / (prior + noise).sqrt()
        best = size.flatten().topk(min(count, size.numel())).indices
        key, order = keys.flatten()[best].sort()
        pairs = PairIndex(key // self.pairs.shape[1], key % self.pairs.shape[1], self.pairs.shape)
        each, limits = noise.flatten()[best][order], self.limits
        return ConditionalCovariance(
            self.terms, pairs, each, tolerance=self.tolerance, method="cholesky", limits=limits
        )

    def variance(self, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None) -> Tensor:
        """(Q,): at most a share ``accuracy``, one per cent by default, above the variance given every cell."""
        self._refuse_gradient(query)
        if method not in ("auto", "bounded"):
            raise InputError(f"method: the covariance of whole lists has 'bounded' alone, got {method!r}")
        accuracy = ACCURACY if accuracy is None else check_positive(accuracy, "accuracy")
        out = torch.empty_like(query.prior_variance())
        for row in query.pairs.active_rows.tolist():
            of_row = (query.pairs.rows == row).nonzero().squeeze(1)
            for group in of_row.split(self.limits.list_group):
                out[group] = self._bounded(query.part(group), accuracy)
        return out

    def _bounded(self, query: Query, accuracy: float) -> Tensor:
        prior, count = query.prior_variance(), self.limits.list_nearest
        while True:
            nearest = self._nearest(query, count)
            (_, rhs), *_ = right_sides(nearest, query, len(query))  # (J, q)
            x = nearest.solve(rhs)
            above = (prior - (rhs * x).sum(0)).clamp_min(0)
            missing = self._residual(query, nearest, x) / self.lowest_eigenvalue
            if (missing <= accuracy * (above - missing)).all():
                return torch.minimum(above, prior)
            if count >= self.limits.dense:
                worst = float((missing / above.clamp_min(torch.finfo(above.dtype).tiny)).max())
                raise ConvergenceError(
                    f"variances given whole lists are known to {worst:.2g} from the {count:,} nearest cells, "
                    f"{accuracy:g} was asked for; allow less accuracy"
                )
            count = min(2 * count, self.limits.dense)

    def _residual(self, query: Query, nearest: ConditionalCovariance, x: Tensor) -> Tensor:
        r"""(q,): :math:`\|r\|^2` over all cells of the listed rows.

        As a matrix, r is :math:`k_M k_N^T - K_M X K_N` on the listed rows, summed over the terms of the prior, and zero
        on the nearest cells.
        """
        pairs, cells = nearest.pairs, query.pairs
        sides = []
        for part, (row_op, col_op) in zip(query.parts, self.terms, strict=True):
            left = torch.cat([part.row_side.columns(cells.active_rows), columns(row_op, pairs.active_rows)], 1)
            right = torch.cat([part.col_side.columns(cells.active_cols), columns(col_op, pairs.active_cols)], 1)
            sides.append((left[self._listed], right))
        grams = [(a.mT @ c, d.mT @ b) for a, b in sides for c, d in sides]  # of the rows, and of the columns
        offset = len(cells.active_rows), len(cells.active_cols)
        total = x.new_zeros(x.shape[1])
        for q in range(x.shape[1]):
            inner = x.new_zeros(sides[0][0].shape[1], sides[0][1].shape[1])
            inner[offset[0] + pairs.local_rows, offset[1] + pairs.local_cols] = -x[:, q]
            inner[cells.local_rows[q], cells.local_cols[q]] = 1.0
            for of_rows, of_cols in grams:
                total[q] += (inner * (of_rows @ inner @ of_cols)).sum()
        return (total - (nearest.noise.unsqueeze(1) * x).square().sum(0)).clamp_min(0)

    def joint(self, query: Query) -> Joint:
        """S at the query's cells, given the nearest observations; larger than S, if anything."""
        self._refuse_gradient(query)
        check_joint_size(query, self.limits)
        return self._nearest(query, self.limits.dense).joint(query)

    def _refuse_gradient(self, query: Query) -> None:
        """Bounds from the nearest cells jump where other cells become the nearest."""
        for side in (side for part in query.parts for side in (part.row_side, part.col_side)):
            if side.carries_gradient:
                raise InputError(
                    f"{side.axis.name}_inputs: requires a gradient, which bounds of variances given whole lists do not "
                    "have; the mean does"
                )

    def everywhere(self, query: Query) -> LinearOperator:
        """Refused."""
        raise SizeError(
            f"the covariance given whole lists of {len(self._listed):,} rows is offered for some cells at a time, "
            "not for the whole grid"
        )
