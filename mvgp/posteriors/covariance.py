"""PosteriorCovarianceLinearOperator: equation (3) as an operator, applied and never formed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..linalg.checks import check_right, check_samples
from .query import Query

if TYPE_CHECKING:
    from .conditional import ConditionalCovariance


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
