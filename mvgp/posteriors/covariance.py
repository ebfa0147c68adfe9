"""PosteriorCovarianceLinearOperator: equation (3) as an operator, applied and never formed."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from .conditional import ConditionalCovariance
from .query import Query


class PosteriorCovarianceLinearOperator(LinearOperator):
    r""":math:`S = K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}` over Q cells.

    A product is a few Kronecker products and one solve. The diagonal comes from the query's own
    method, samples from Matheron's rule. Constant in the hyperparameters: no gradients.

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
        return self

    def _matmul(self, rhs: Tensor) -> Tensor:
        if rhs.dim() == 1:
            return self._matmul(rhs.unsqueeze(-1)).squeeze(-1)
        if rhs.dim() > 2:
            flat = self._matmul(rhs.movedim(-2, 0).flatten(1))
            return flat.unflatten(1, (*rhs.shape[:-2], rhs.shape[-1])).movedim(0, -2)
        inner = self.conditional.solve(self.cross.mT._matmul(rhs))
        return self.prior._matmul(rhs) - self.cross._matmul(inner)

    def matmul(self, other: Any) -> Any:
        """Product with a tensor or operator; by the operator itself, so that its caches serve."""
        return self._matmul(other) if isinstance(other, Tensor) else super().matmul(other)

    def _diagonal(self) -> Tensor:
        return self.conditional.variance(self.query)

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        chosen, back = torch.unique(col_index, return_inverse=True)
        picked = torch.zeros(self.shape[-1], len(chosen), dtype=self.dtype, device=self.device)
        picked[chosen, torch.arange(len(chosen), device=self.device)] = 1.0
        return self._matmul(picked)[row_index, back]

    def to_dense(self) -> Tensor:
        """(Q, Q), exactly symmetric."""
        dense = self._matmul(torch.eye(self.shape[-1], dtype=self.dtype, device=self.device))
        return (dense + dense.mT) / 2

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """(num_samples, Q) joint samples by Matheron's rule."""
        return self.conditional.sample(self.query, num_samples)
