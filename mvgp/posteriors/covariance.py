r"""The covariance S of a posterior, equation (3): what it must offer, and its kinds.

:class:`ConditionalCovariance` is equation (3) itself, :class:`ScaledCovariance` a multiple of another covariance, and
:class:`NoCovariance` says why there is none. :mod:`~mvgp.posteriors.whole_lists` and :mod:`~mvgp.posteriors.factor`
have further ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn, Protocol

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..errors import InputError
from ..linalg.kronecker import KroneckerLinearOperator
from ..linalg.pair_operator import PairLinearOperator
from ..linalg.pairs import PairIndex
from ..linalg.roots import root
from ..tensor_checks import check_right, check_samples
from .joint import Joint, joint_covariance
from .query import Query
from .system import ObservedSystem
from .variance import VarianceMethod, pair_variance


class PosteriorCovariance(Protocol):
    """What a posterior needs of its covariance S."""

    pairs: PairIndex
    noise: Tensor

    def operator(self, query: Query) -> LinearOperator:
        """S at the query's cells, (Q, Q)."""
        ...

    def everywhere(self, query: Query) -> LinearOperator:
        """S over the whole grid, (M N, M N); ``query`` is every cell."""
        ...

    def variance(self, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None) -> Tensor:
        """(Q,): its diagonal."""
        ...

    def joint(self, query: Query) -> Joint:
        """S at the query's cells as a dense matrix."""
        ...

    def sample(self, query: Query, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """(num_samples, Q): joint samples with mean 0."""
        ...


class ConditionalCovariance(ObservedSystem):
    r"""Equation (3): :math:`S = K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}`; see :class:`ObservedSystem`."""

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
        """(Q,): the diagonal of S; see :mod:`~mvgp.posteriors.variance`."""
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


class PosteriorCovarianceLinearOperator(LinearOperator):
    r""":math:`S = K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}` over Q cells.

    A product is a few Kronecker products and one solve. The diagonal comes from the query's own
    method, samples from Matheron's rule. The posterior is a snapshot: its solver is constant in the
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
        seen = self.cross.mT._matmul(rhs)  # (..., T, C)
        flat = self.conditional.solve(seen.movedim(-2, 0).flatten(1))
        inner = flat.unflatten(1, (*seen.shape[:-2], seen.shape[-1])).movedim(0, -2)
        return self.prior._matmul(rhs) - self.cross._matmul(inner)

    def matmul(self, other: Any) -> Any:
        """Product with a tensor or operator; without gradients by the operator itself, so that its caches serve."""
        check_right(other, self.shape[-1], self.dtype)
        if isinstance(other, Tensor) and not (torch.is_grad_enabled() and (self.requires_grad or other.requires_grad)):
            return self._matmul(other)
        return super().matmul(other)

    def _diagonal(self) -> Tensor:
        return self.conditional.variance(self.query).to(self.dtype).expand(self.shape[:-1])

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        chosen, back = torch.unique(col_index, return_inverse=True)
        picked = torch.zeros(self.shape[-1], len(chosen), dtype=self.dtype, device=self.device)
        picked[chosen, torch.arange(len(chosen), device=self.device)] = 1.0
        return self._matmul(picked)[(*batch_indices, row_index, back)]

    def _expand_batch(self, batch_shape: Any) -> PosteriorCovarianceLinearOperator:
        prior, cross = self.prior._expand_batch(batch_shape), self.cross._expand_batch(batch_shape)
        return PosteriorCovarianceLinearOperator(prior, cross, self.conditional, self.query)

    def to_dense(self) -> Tensor:
        """(Q, Q); exactly symmetric, unless gradients to the factors are wanted."""
        dense = self._matmul(torch.eye(self.shape[-1], dtype=self.dtype, device=self.device))
        return dense if dense.requires_grad else (dense + dense.mT) / 2

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """(num_samples, Q) joint samples by Matheron's rule."""
        return self.conditional.sample(self.query, check_samples(num_samples, self.shape[-1]))


class ScaledCovariance:
    r"""Equation (3) with :math:`s K` and :math:`s D` in place of K and D, which is :math:`s S`.

    :param inner: S.
    :param scale: s.
    """

    def __init__(self, inner: PosteriorCovariance, scale: float) -> None:
        self.inner, self.scale = inner, scale
        self.pairs, self.noise = inner.pairs, scale * inner.noise

    def operator(self, query: Query) -> LinearOperator:
        """Scaled S at the query's cells, (Q, Q), lazy."""
        return self.inner.operator(query) * self.scale

    def everywhere(self, query: Query) -> LinearOperator:
        """Scaled S over the whole grid, (M N, M N), lazy."""
        return self.inner.everywhere(query) * self.scale

    def variance(self, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None) -> Tensor:
        """(Q,): its diagonal."""
        return self.scale * self.inner.variance(query, method, accuracy)

    def joint(self, query: Query) -> Joint:
        """Scaled S at the query's cells as a dense matrix."""
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
    """Takes the place of a covariance; every use of it is an error.

    :param pairs: the observed pairs.
    :param reason: the message.
    :param error: its class.
    """

    def __init__(self, pairs: PairIndex, reason: str, error: type[Exception] = InputError) -> None:
        self.pairs, self.reason, self.error = pairs, reason, error

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self.error(self.reason)

    operator = everywhere = variance = joint = sample = _refuse
    noise = property(_refuse)
