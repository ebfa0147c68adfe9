"""Mixture: several posteriors of one matrix, each as likely as the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..metrics.sources import Ranker
from ..posteriors import GaussianPosterior
from ..posteriors.no_covariance import NoCovariance
from ..posteriors.rank_queries import STD_ACCURACY


class Mixture:
    """One ranker for each set of negatives; a score is their average, an uncertainty includes that about the set.

    :param rankers: of the same shape, at least one; posteriors, if uncertainties are to be asked for.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.kernels import PrecomputedKernel
        >>> from mvgp.prioritise.mixture import Mixture
        >>> one, two = (PrecomputedKernel(torch.eye(size, dtype=torch.float64)) for size in (1, 2))
        >>> model = mvgp.FullGP(mvgp.MatrixGP(one, two), gpytorch.likelihoods.GaussianLikelihood(noise=1.0).double())
        >>> sets = [mvgp.ObservedMatrix([0], [0], [value], (1, 2)) for value in (1.0, 3.0)]
        >>> mixture = Mixture([model.fit(data) for data in sets])
        >>> mixture.scores().shape, mixture.std(0, [0, 1]).shape
        (torch.Size([1, 2]), torch.Size([2]))

    """

    def __init__(self, rankers: Sequence[Ranker]) -> None:
        self.rankers = tuple(rankers)
        shapes = {tuple(ranker.shape) for ranker in self.rankers}
        if len(shapes) != 1:
            raise InputError(f"rankers: expected at least one, all of the same shape, got {sorted(shapes)}")

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.rankers[0].shape

    @property
    def has_uncertainty(self) -> bool:
        """Whether every ranker is a posterior with a covariance."""
        return all(
            isinstance(one, GaussianPosterior) and not isinstance(one.conditional, NoCovariance) for one in self.rankers
        )

    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): average scores of whole rows, all of them when ``rows`` (R,) is left out."""
        total = self.rankers[0].scores(rows).double()
        for ranker in self.rankers[1:]:
            total = total + ranker.scores(rows)
        return total / len(self.rankers)

    def std(self, row: int, cols: Any) -> Tensor:
        """(Q,): standard deviations of a row's scores: the mean of the variances plus the variance of the means."""
        at = torch.as_tensor(cols)
        rows = torch.full_like(at, row)
        means = torch.stack([one.mean(rows, at).double() for one in self._posteriors()])  # (S, Q)
        inner = torch.stack([one.variance(rows, at, accuracy=STD_ACCURACY).double() for one in self._posteriors()])
        return (inner.mean(0) + means.var(0, unbiased=False)).sqrt()

    def top_probability(
        self,
        row: int,
        k: int,
        *,
        exclude: Any = None,
        num_samples: int = 1000,
        seed: int = 0,
        step: Callable[[], object] | None = None,
    ) -> Tensor:
        """(N,): P(in the top k) of every item of a row, averaged over the posteriors.

        :param step: called after each posterior, to show progress.
        """
        total = torch.zeros(self.shape[1], dtype=torch.float64)
        for one in self._posteriors():
            total += one.top_probability(row, k, exclude=exclude, num_samples=num_samples, seed=seed).cpu()
            if step is not None:
                step()
        return total / len(self.rankers)

    def _posteriors(self) -> tuple[GaussianPosterior, ...]:
        if not self.has_uncertainty:
            kinds = sorted({type(one).__name__ for one in self.rankers})
            raise InputError(f"{', '.join(kinds)} has scores and no uncertainty; ask with uncertainty=False")
        return tuple(one for one in self.rankers if isinstance(one, GaussianPosterior))
