"""Ranks of a row: how certain they are, and what to test next. :class:`RankQueries` is a part of every posterior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from ..checks import check_between, check_positive, check_seed, check_whole_number, without_gradient
from ..data.positive_unlabelled import positive_pairs
from ..errors import InputError
from ..tensor_checks import check_index, check_matrix, check_one_index, check_samples, check_values
from .covariance import PosteriorCovariance
from .joint import Joint
from .tables import TestPlan, TopTable, plan_tests

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
        low, high = rank_interval(samples, share, best)
        names = getattr(exclude, "col_names", None)
        return TopTable(
            items=chosen,
            names=None if names is None else tuple(names[item] for item in chosen.tolist()),
            mean=line.mean[best],
            std=self.variance(at, chosen, accuracy=STD_ACCURACY).sqrt(),
            top_probability=top_probability(samples, places)[best],
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
        return line.spread(top_probability(line.samples(num_samples, seed), places))

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
        low, high = rank_interval(line.samples(num_samples, seed), share)
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
        probabilities = self.top_probability(row, k, exclude=exclude, num_samples=num_samples, seed=seed)
        return expected_hits(probabilities, chosen)

    @without_gradient
    def beats(self, row: Any, item: Any, other: Any) -> float:
        """P(``item`` scores higher than ``other``) in a row, in closed form."""
        line = check_one_index(row, self.shape[0], "row")
        items = [check_one_index(at, self.shape[1], name) for at, name in ((item, "item"), (other, "other"))]
        mean, s = self.mean([line, line], items), self.joint([line, line], items).matrix
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

        See :mod:`mvgp.posteriors.tables` for the score. Measured items should be in ``exclude``.

        :param noise: variance of a measurement; that of the observations with the least noise when left out.
        """
        places, number = check_whole_number(k, "k"), check_whole_number(count, "count")
        noise = None if noise is None else check_positive(noise, "noise")
        line = _Row(self, row, exclude)
        at_top = top_probability(line.samples(num_samples, seed), places)
        error = float(self.conditional.noise.min()) if noise is None else noise
        names = getattr(exclude, "col_names", None)
        return plan_tests(line.joint.matrix, at_top, line.items, line.mean, error, number, places, names)


class _Row:
    """The candidates of a row and their joint posterior.

    :param exclude: as for :meth:`RankQueries.top`.
    """

    def __init__(self, posterior: RankQueries, row: Any, exclude: Any) -> None:
        at, shape = check_one_index(row, posterior.shape[0], "row"), posterior.shape
        self.items = candidates(at, exclude, shape).to(posterior.device)  # (C,)
        self.rows = torch.full_like(self.items, at)  # (C,)
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


def candidates(row: int, exclude: Any, shape: tuple[int, int]) -> Tensor:
    """(C,) ascending: the items of a row that are not excluded.

    :param row: the row.
    :param exclude: as for :func:`mvgp.metrics.ranking_scores`: an ``ObservedMatrix``, whose entries above 0 count,
        anything else with ``rows`` and ``cols``, or a pair (rows, cols) of vectors; ``None`` for no items.
    :param shape: (M, N).
    """
    keep = torch.ones(shape[1], dtype=torch.bool)
    if exclude is not None:
        rows, cols = positive_pairs(exclude, shape, "exclude")
        keep[cols[rows == row]] = False
    if not keep.any():
        raise InputError(f"exclude: expected at least one item of row {row} to be left, got all {shape[1]} excluded")
    return keep.nonzero().squeeze(1)


def top_probability(samples: Any, k: int) -> Tensor:
    """(N,): the probability that each item is among the k best of its row.

    Items that tie for the last places share them equally, so the probabilities add up to k, or to N if k exceeds N.

    :param samples: (S, N) joint samples of the N candidates of a row.
    :param k: how many places the top has.

    Example:
        >>> from mvgp.posteriors.ranks import top_probability
        >>> top_probability([[3.0, 2.0, 1.0], [3.0, 1.0, 1.0]], k=2).tolist()
        [1.0, 0.75, 0.25]

    """
    drawn, places = check_sample_matrix(samples), check_whole_number(k, "k")
    if places >= drawn.shape[1]:
        return torch.ones(drawn.shape[1], dtype=torch.float64, device=drawn.device)
    last = drawn.topk(places, dim=1).values[:, -1:]  # (S, 1) the score on place k
    above, level = drawn > last, drawn == last
    share = (places - above.sum(1, keepdim=True)).double() / level.sum(1, keepdim=True)  # (S, 1) in (0, 1]
    return (above.sum(0) + (share * level).sum(0)) / len(drawn)


def rank_interval(samples: Any, level: float = 0.9, items: Any = None) -> tuple[Tensor, Tensor]:
    """(I,) and (I,): the lowest and the highest rank of a central credible interval; rank 1 is the best.

    Of the samples, at most (1 - level) / 2 lie below the interval and as many above. A tie counts as the best of its
    ranks for the lower end and as the worst for the upper one.

    :param samples: (S, N) joint samples of the N candidates of a row.
    :param level: probability of the interval, between 0 and 1.
    :param items: (I,) positions among the candidates; all N when left out.

    Example:
        >>> from mvgp.posteriors.ranks import rank_interval
        >>> low, high = rank_interval([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0]], level=0.9)
        >>> low.tolist(), high.tolist()
        ([1, 2, 2], [1, 3, 3])

    """
    drawn, share = check_sample_matrix(samples), check_between(level, "level")
    num_samples, num_items = drawn.shape
    chosen = drawn
    if items is not None:
        chosen = drawn[:, check_index(items, num_items, "items").to(drawn.device)].contiguous()  # (S, I)
    ordered = drawn.sort(dim=1).values
    best = num_items + 1 - torch.searchsorted(ordered, chosen, right=True, out_int32=True)  # (S, I)
    worst = num_items - torch.searchsorted(ordered, chosen, out_int32=True)  # (S, I)
    # the rounding of (1 - 0.9) / 2 must not cost a sample
    cut = min(int((1 - share) / 2 * num_samples + 1e-9), (num_samples - 1) // 2)
    low = best.mT.contiguous().kthvalue(cut + 1).values
    high = worst.mT.contiguous().kthvalue(num_samples - cut).values
    return low.long(), high.long()


def expected_hits(probabilities: Any, chosen: Any) -> float:
    """How many of the chosen items are expected in the top k: the sum of their probabilities.

    :param probabilities: (N,) probability of each item to be in the top k.
    :param chosen: (C,) distinct items.

    Example:
        >>> from mvgp.posteriors.ranks import expected_hits
        >>> expected_hits([1.0, 0.75, 0.25], chosen=[0, 2])
        1.25

    """
    shares = check_values(probabilities, None, "probabilities", torch.float64)
    size = len(shares)
    bad = (shares < 0) | (shares > 1 + 1e-9)
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"probabilities[{at}]: expected a number from 0 to 1, got {shares[at].item()}")
    picked = check_index(chosen, size, "chosen").to(shares.device)
    values, counts = torch.unique(picked, return_counts=True)
    if len(values) < len(picked):
        raise InputError(f"chosen: expected distinct items, got {int(values[counts > 1][0])} more than once")
    return float(shares[picked].sum())


def beats(samples: Any, i: int, j: int) -> float:
    """The probability that item i has a higher score than item j; a tie counts 1/2.

    :param samples: (S, N) joint samples of the N candidates of a row.
    :param i: position of the one.
    :param j: position of the other.

    Example:
        >>> from mvgp.posteriors.ranks import beats
        >>> beats([[3.0, 2.0], [1.0, 1.0]], 0, 1)
        0.75

    """
    drawn = check_sample_matrix(samples)
    first, second = (drawn[:, check_one_index(at, drawn.shape[1], name)] for at, name in ((i, "i"), (j, "j")))
    return float((first > second).double().mean() + (first == second).double().mean() / 2)


def check_sample_matrix(samples: Any) -> Tensor:
    """(S, N) finite real numbers, at least one of them."""
    matrix = check_matrix(samples, "samples", shape="(S, N)")
    return matrix.contiguous()
