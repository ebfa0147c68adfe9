"""ScaledCovariance: the covariance under a prior and a noise that are both multiplied by one number."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from linear_operator import LinearOperator
from torch import Tensor

from .joint import Joint
from .pair_variance import VarianceMethod
from .query import Query

if TYPE_CHECKING:
    from .gaussian import PosteriorCovariance


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
        found = self.inner.joint(query)
        return replace(found, matrix=found.matrix.mul_(self.scale), size=self.scale * found.size)

    def sample(self, query: Query, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """(num_samples, Q): joint samples with mean 0."""
        return self.scale**0.5 * self.inner.sample(query, num_samples, generator)


def unscaled(covariance: PosteriorCovariance) -> tuple[PosteriorCovariance, float]:
    """S and s."""
    if isinstance(covariance, ScaledCovariance):
        return covariance.inner, covariance.scale
    return covariance, 1.0
