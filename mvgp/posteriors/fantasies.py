"""Fantasies: what a posterior would be if some cells came out this way, or that way; many ways at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from ..checks import check_generator, without_gradient
from ..tensor_checks import check_samples
from .covariance import ConditionalCovariance
from .query import Query


class Fantasies:
    r"""S posteriors on the same pairs, with S means and one covariance, which does not depend on the values.

    .. math:: \psi_s = b + K_{*T} (K_{TT} + D)^{-1} (r_s - b_T), \qquad
        S = K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}

    Made by ``posterior.fantasise``.

    :param posterior: the first of them.
    :param conditional: the covariance of all.
    :param coefficients: (T, S) representer coefficients of the means.
    :param make: the posterior of a number below S.
    """

    def __init__(
        self, posterior: Any, conditional: ConditionalCovariance, coefficients: Tensor, make: Callable[[int], Any]
    ) -> None:
        self.posterior, self.conditional, self.coefficients, self._make = posterior, conditional, coefficients, make

    def __len__(self) -> int:
        return int(self.coefficients.shape[1])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {self.posterior!r})"

    def __getitem__(self, number: int) -> Any:
        """One of the posteriors, a ``FullPosterior``; it shares its covariance with the others."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"expected a number below {len(self)}, got {number}")
        return self._make(number % len(self))

    def _means(self, query: Query) -> Tensor:
        return query.prior_mean() + self.conditional.cross(query)._matmul(self.coefficients).mT

    @without_gradient
    def mean(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> Tensor:
        """(S, Q): posterior means at pairs."""
        return self._means(self.posterior._query(rows, cols, row_inputs, col_inputs))

    def variance(self, rows: Any, cols: Any, **options: Any) -> Tensor:
        """(Q,): posterior variances at pairs, the same for all; ``options`` of a posterior's ``variance``."""
        variance: Tensor = self.posterior.variance(rows, cols, **options)
        return variance

    @without_gradient
    def __call__(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> MultivariateNormal:
        """The joint posteriors at pairs: means (S, Q), one lazy covariance, (S, Q, Q) by expansion."""
        query = self.posterior._query(rows, cols, row_inputs, col_inputs)
        covariance = self.posterior.conditional.operator(query)
        return MultivariateNormal(self._means(query), covariance.expand(len(self), *covariance.shape))

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
        """(num_samples, S, Q): joint samples at pairs; the posteriors share their deviations from the means."""
        query = self.posterior._query(rows, cols, row_inputs, col_inputs)
        num_samples, generator = check_samples(num_samples, max(len(query), 1)), check_generator(generator)
        drawn = self.posterior.conditional.sample(query, num_samples, generator)
        return self._means(query) + drawn.unsqueeze(1)

    def scores(self, rows: Any = None) -> Tensor:
        """(S, R, N): posterior means of whole rows, all of them when ``rows`` (R,) is left out."""
        return torch.stack([self[number].scores(rows) for number in range(len(self))])
