"""Mixture: scores and uncertainties of one model that was fitted to several sets of negatives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from ...descriptions import describe
from ...errors import InputError
from ...hyperparameters.records import AveragedRanker
from ...posteriors.covariance import NoCovariance
from ...posteriors.gaussian import GaussianPosterior
from ...posteriors.ranks import STD_ACCURACY
from ...text import Description
from ..auto.bootstrap import PILOT
from ..auto.fit import AutoRanker
from .reasons import Reasons, reasons

CONTENDERS = 0.02  # how long a sample of the contenders takes, relative to one of all columns


class Mixture(AveragedRanker):
    """The equal mixture of rankers, one for each set of negatives: its uncertainty includes that about the set."""

    @property
    def has_uncertainty(self) -> bool:
        """Whether every ranker is a posterior with a covariance, or ``auto``."""
        return all(
            isinstance(part, AutoRanker)
            or (isinstance(part, GaussianPosterior) and not isinstance(part.conditional, NoCovariance))
            for part in self.posteriors
        )

    @override
    def scores(self, rows: Any = None) -> Tensor:
        # one part at a time and in double precision: a ranked list of all rows must fit in memory
        total = self.posteriors[0].scores(rows).double()
        for part in self.posteriors[1:]:
            total = total + part.scores(rows)
        return total / len(self.posteriors)

    def uncertainty(
        self, row: int, k: int, cols: Tensor, *, step: Callable[[], object] | None = None, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """(Q,) P(in the top k) and (Q,) standard deviation of some columns of a row."""
        if len(self.posteriors) == 1 and isinstance(self.posteriors[0], AutoRanker):
            chance, deviation = self.posteriors[0].bootstrap(row, k, **options)
            if step is not None:
                step()
            return chance[cols], deviation[cols]
        return self.top_probability(row, k, step=step, **options)[cols], self.std(row, cols).cpu()

    def expected_seconds(self, row: int, num_samples: int = 1000) -> float | None:
        """How long :meth:`uncertainty` of a row will take, roughly, by one sample; None for models that do not tell."""
        if len(self.posteriors) != 1 or not isinstance(self.posteriors[0], AutoRanker):
            return None
        self.posteriors[0].samples(row, 1)  # what is computed once
        began = time.perf_counter()
        self.posteriors[0].samples(row, 1)
        return (time.perf_counter() - began) * (PILOT + num_samples * CONTENDERS)

    def reasons(self, row: int, cols: Any, **options: Any) -> tuple[Reasons, ...]:
        """Why each of some columns (C,) is in the list of a row: :func:`~mvgp.prioritise.ranking.reasons.reasons`."""
        return reasons(self, row, cols, **options)

    def why(self, row: int, cols: Any, **options: Any) -> tuple[Reasons, ...] | None:
        """:meth:`reasons` of ``auto``, which has them at once; None for other models."""
        if not all(isinstance(part, AutoRanker) for part in self.posteriors):
            return None
        return self.reasons(row, cols, **options)

    def std(self, row: int, cols: Any) -> Tensor:
        """(Q,): standard deviations of a row's scores."""
        parts, cols = self._gaussian(), torch.as_tensor(cols)
        rows = torch.full_like(cols, row)
        means = torch.stack([part.mean(rows, cols).double() for part in parts])  # (S, Q)
        variances = torch.stack([part.variance(rows, cols, accuracy=STD_ACCURACY).double() for part in parts])
        return mixture_std(means, variances)

    def top_probability(self, row: int, k: int, *, step: Callable[[], object] | None = None, **options: Any) -> Tensor:
        """(N,): P(in the top k) of every item of a row, averaged over the posteriors; ``step`` is called after each."""
        total = torch.zeros(self.shape[1], dtype=torch.float64)
        for part in self._gaussian():
            total += part.top_probability(row, k, **options).cpu()
            if step is not None:
                step()
        return total / len(self.posteriors)

    def _gaussian(self) -> tuple[GaussianPosterior, ...]:
        if not self.has_uncertainty:
            kinds = sorted({type(part).__name__ for part in self.posteriors})
            raise InputError(f"{', '.join(kinds)} has scores and no uncertainty; ask with uncertainty=False")
        return tuple(part for part in self.posteriors if isinstance(part, GaussianPosterior))


def mixture_std(means: Tensor, variances: Tensor) -> Tensor:
    """(...) of the equal mixture of S parts (S, ...): the mean of the variances plus the variance of the means."""
    return (variances.mean(0) + means.var(0, unbiased=False)).sqrt()


def describe_prioritiser(fitted: Any) -> Description:
    """The model and its setting, the data, the first of its rankers, and what hiding links has shown."""
    first = describe(fitted.rankers[0])
    count, known = len(fitted.rankers), len(fitted.known)
    lines = [
        ("model", f"{fitted.model}: {fitted.setting}"),
        ("fits", "1" if count == 1 else f"{count}, one for each set of sampled negatives; scores are their average"),
        ("data", f"{fitted.shape[0]:,} x {fitted.shape[1]:,}, {known:,} known links"),
        ("source", fitted.source or "not given"),
        ("ranker", first.title),
        *first.lines,
        *(("trust", sentence) for sentence in (fitted.trust.in_words() if fitted.trust is not None else ())),
    ]
    return Description("Prioritiser: ranks the columns of each row", tuple(lines))
