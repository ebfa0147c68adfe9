"""RankQueries: how certain the ranks of a row are, and what to test next. The part of a posterior about lists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..checks import check_between, check_one_index, check_positive, check_seed, check_whole_number, without_gradient
from ..linalg.checks import check_samples
from . import ranks
from .acquisition import TestPlan, plan_tests
from .joint import Joint
from .top_table import TopTable

if TYPE_CHECKING:
    from .gaussian import PosteriorCovariance

STD_ACCURACY = 0.01  # of the standard deviations in a table, where exact ones would take long


class RankQueries(ABC):
    """Questions about one row, answered from the joint posterior of its candidates.

    Their joint covariance is formed once for each question, :mod:`~mvgp.posteriors.joint`; where more than some
    10,000 pairs were observed it is conditioned on those nearest to the row.
    """

    conditional: PosteriorCovariance

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(M, N)"""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where it computes."""

    @abstractmethod
    def mean(self, rows: Any, cols: Any) -> Tensor:
        """(Q,): posterior mean at pairs."""

    @abstractmethod
    def variance(self, rows: Any, cols: Any, *, accuracy: float | None = None) -> Tensor:
        """(Q,): posterior variance at pairs."""

    @abstractmethod
    def joint(self, rows: Any, cols: Any) -> Joint:
        """The joint covariance at pairs."""

    @without_gradient
    def top(
        self,
        row: Any,
        k: int = 20,
        *,
        exclude: Any = None,
        level: float = 0.9,
        num_samples: int = 1000,
        seed: int = 0,
    ) -> TopTable:
        """The k best items of a row by posterior mean, each with its standard deviation and P(in the top k).

        The probabilities and the intervals of ranks are shares of joint samples of the row's candidates: with S
        samples, a probability p has a standard error of sqrt(p (1 - p) / S).

        :param row: the row.
        :param k: how many items; also the k of P(in the top k).
        :param exclude: known positives that are no candidates: an ``ObservedMatrix``, whose entries above 0 count, a
            ``PositiveUnlabelled`` or a pair (rows, cols). The names of items are taken from it, too.
        :param level: probability of the intervals of ranks.
        :param num_samples: S.
        :param seed: of the samples; other random numbers are left alone.

        Example:
            >>> import gpytorch, mvgp, torch
            >>> from mvgp.kernels import PrecomputedKernel
            >>> two, four = (PrecomputedKernel(torch.eye(size, dtype=torch.float64)) for size in (2, 4))
            >>> data = mvgp.ObservedMatrix([0, 0, 0], [0, 1, 2], [3.0, -3.0, 3.0], (2, 4))
            >>> model = mvgp.FullGP(mvgp.MatrixGP(two, four), gpytorch.likelihoods.GaussianLikelihood().double())
            >>> model.fit(data).top(0, k=2, exclude=([0], [0])).items.tolist()
            [2, 3]

        """
        places, share = check_whole_number(k, "k"), check_between(level, "level")
        line = _Row(self, row, exclude)
        samples = line.samples(num_samples, seed)
        best = line.mean.argsort(descending=True, stable=True)[:places]
        chosen, at = line.items[best], line.rows[best]
        low, high = ranks.rank_interval(samples, share, best)
        names = getattr(exclude, "col_names", None)
        return TopTable(
            items=chosen,
            names=None if names is None else tuple(names[item] for item in chosen.tolist()),
            mean=line.mean[best],
            std=self.variance(at, chosen, accuracy=STD_ACCURACY).sqrt(),
            top_probability=ranks.top_probability(samples, places)[best],
            rank_low=low,
            rank_high=high,
            k=places,
            level=share,
        )

    @without_gradient
    def top_probability(
        self, row: Any, k: int = 20, *, exclude: Any = None, num_samples: int = 1000, seed: int = 0
    ) -> Tensor:
        """(N,): P(in the top k) of every item of a row; 0 for excluded ones. Arguments as for :meth:`top`."""
        places = check_whole_number(k, "k")
        line = _Row(self, row, exclude)
        return line.spread(ranks.top_probability(line.samples(num_samples, seed), places))

    @without_gradient
    def rank_interval(
        self,
        row: Any,
        level: float = 0.9,
        *,
        exclude: Any = None,
        num_samples: int = 1000,
        seed: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """(N,) and (N,): best and worst rank of a credible interval of every item of a row; 0 for excluded ones."""
        share = check_between(level, "level")
        line = _Row(self, row, exclude)
        low, high = ranks.rank_interval(line.samples(num_samples, seed), share)
        return line.spread(low), line.spread(high)

    @without_gradient
    def expected_hits(
        self,
        row: Any,
        chosen: Any,
        k: int = 20,
        *,
        exclude: Any = None,
        num_samples: int = 1000,
        seed: int = 0,
    ) -> float:
        """How many of the ``chosen`` items (C,) of a row are expected in its top k. Arguments as for :meth:`top`."""
        found = self.top_probability(row, k, exclude=exclude, num_samples=num_samples, seed=seed)
        return ranks.expected_hits(found, chosen)

    @without_gradient
    def beats(self, row: Any, item: Any, other: Any) -> float:
        """P(``item`` scores higher than ``other``) in a row, in closed form."""
        one = check_one_index(row, self.shape[0], "row")
        two = [check_one_index(place, self.shape[1], name) for place, name in ((item, "item"), (other, "other"))]
        mean, s = self.mean([one, one], two), self.joint([one, one], two).matrix
        lead = float(mean[0] - mean[1])
        spread = float((s[0, 0] + s[1, 1] - 2 * s[0, 1]).clamp_min(0)) ** 0.5
        if spread == 0:
            return 0.5 + 0.5 * ((lead > 0) - (lead < 0))
        return float(torch.special.ndtr(torch.tensor(lead / spread, dtype=torch.float64)))

    @without_gradient
    def next_tests(
        self,
        row: Any,
        count: int = 10,
        k: int = 20,
        *,
        exclude: Any = None,
        noise: float | None = None,
        num_samples: int = 1000,
        seed: int = 0,
    ) -> TestPlan:
        """The ``count`` items of a row whose measurement would settle its top k most, one after the other.

        See :mod:`mvgp.posteriors.acquisition` for the score. Measured items should be in ``exclude``.

        :param noise: variance of a measurement; that of the observations with the least noise when left out.
        """
        places, wanted = check_whole_number(k, "k"), check_whole_number(count, "count")
        noise = None if noise is None else check_positive(noise, "noise")
        line = _Row(self, row, exclude)
        at_top = ranks.top_probability(line.samples(num_samples, seed), places)
        error = float(self.conditional.noise.min()) if noise is None else noise
        names = getattr(exclude, "col_names", None)
        return plan_tests(line.joint.matrix, at_top, line.items, line.mean, error, wanted, places, names)


class _Row:
    """The candidates of a row and their joint posterior.

    :param exclude: as for :meth:`RankQueries.top`.
    """

    def __init__(self, posterior: RankQueries, row: Any, exclude: Any) -> None:
        one, shape = check_one_index(row, posterior.shape[0], "row"), posterior.shape
        self.items = ranks.candidates(one, exclude, shape).to(posterior.device)  # (C,)
        self.rows = torch.full_like(self.items, one)  # (C,)
        self.mean = posterior.mean(self.rows, self.items)  # (C,)
        self.joint: Joint = posterior.joint(self.rows, self.items)
        self._width = shape[1]

    def samples(self, num_samples: int, seed: int) -> Tensor:
        """(S, C)"""
        count = check_samples(num_samples, len(self.items))
        generator = torch.Generator(self.items.device).manual_seed(check_seed(seed))
        return self.joint.sample(count, generator).to(self.mean)

    def spread(self, values: Tensor) -> Tensor:
        """(N,): values (C,) of the candidates, 0 elsewhere."""
        out = torch.zeros(self._width, dtype=values.dtype, device=values.device)
        out[self.items] = values
        return out
