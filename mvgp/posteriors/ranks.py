"""Ranks of a row: how certain they are, and what to test next. They are read off joint samples of its cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from ..checks import check_between, check_generator, check_positive, check_seed, check_whole_number, without_gradient
from ..data.positive_unlabelled import positive_pairs
from ..errors import InputError, NotPositiveSemidefiniteError, SizeError
from ..linalg.cost import Limits
from ..tensor_checks import check_index, check_matrix, check_one_index, check_samples, check_values, refuse_where
from .query import Query
from .system import FACTOR_BATCH, ObservedSystem, covariance_blocks, nearest_observations, right_sides
from .tables import TestPlan, TopTable, plan_tests

STD_ACCURACY = 0.01  # of the standard deviations in a table, where exact ones would take long
SINGLE_FROM = 4096  # cells from which a joint covariance is formed and factored in single precision


@dataclass(frozen=True)
class Joint:
    """A dense covariance of Q cells.

    :param matrix: (Q, Q).
    :param observations: how many observations it is conditioned on: the nearest ones, when not all. Leaving out
        the rest makes it larger, never smaller.
    :param size: the largest variance it was computed from, that of the prior; its rounding errors are of this size.
    :param mean: (Q,) of the entries; None stands for 0.
    """

    matrix: Tensor
    observations: int
    size: float = 0.0
    mean: Tensor | None = None

    def sample(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """(num_samples, Q): joint samples of the entries."""
        num_samples, generator = check_samples(num_samples, len(self.matrix)), check_generator(generator)
        root = _root(self.matrix, self.size)
        noise = torch.randn(root.shape[1], num_samples, generator=generator, dtype=root.dtype, device=root.device)
        drawn = (root @ noise).mT
        return drawn if self.mean is None else self.mean.to(drawn) + drawn


def joint_covariance(system: ObservedSystem, query: Query) -> Joint:
    r""":math:`K_{**} - H^T H` with :math:`H = L^{-1} K_{T*}` and L the factor of :math:`K_{TT} + D`."""
    check_joint_size(query, system.limits)
    if query.carries_gradient:
        matrix = covariance_blocks(system, query.joined()).squeeze(0)
        return Joint(matrix, len(system.pairs))
    closed = system.closed_form
    if closed is not None and not query.is_new and len(query.pairs.active_rows) == 1:
        weights = closed.row_vectors[query.pairs.active_rows[0]].square() @ closed.spectrum  # (S,)
        vectors = closed.col_vectors[query.pairs.cols]  # (Q, S)
        return Joint((vectors * weights) @ vectors.mT, len(system.pairs))
    if len(system.pairs) > system.limits.dense:
        system = system.restricted(nearest_observations(system, query, system.limits.joint_nearest))
    working = torch.float32 if len(query) >= SINGLE_FROM else system.noise.dtype
    matrix = _prior(query, working)
    size = float(matrix.diagonal().amax()) if len(matrix) else 0.0
    half = matrix.new_empty(0, len(query))  # H (T, Q), or a few more rows
    for where, rhs in right_sides(system, query, FACTOR_BATCH):
        part = system.half_solve(rhs).to(working)
        half = half if len(half) == len(part) else half.new_empty(len(part), len(query))
        half[:, where] = part
    matrix.addmm_(half.mT, half, alpha=-1)
    return Joint(matrix, len(system.pairs), size)


def check_joint_size(query: Query, limits: Limits) -> None:
    """Refuse more cells than a dense covariance is formed for."""
    if len(query) > limits.joint_cells:
        raise SizeError(f"a joint covariance is formed for up to {limits.joint_cells:,} cells, got {len(query):,}")


def _prior(query: Query, dtype: torch.dtype) -> Tensor:
    """(Q, Q): the prior's covariance, some columns at a time, so that nothing else of this size is needed."""
    out = torch.empty(len(query), len(query), dtype=dtype, device=query.pairs.rows.device)
    for start in range(0, len(query), FACTOR_BATCH):
        where = slice(start, start + FACTOR_BATCH)
        out[:, where] = query.covariance_columns(where)
    return out


def _root(matrix: Tensor, size: float) -> Tensor:
    """(Q, R) with root root^T = ``matrix`` up to rounding: Cholesky's, or by eigenpairs where that is singular.

    Eigenpairs of a singular matrix have no gradient; where one is wanted gpytorch's jitter is added, and it warns.

    :param size: of the numbers that ``matrix`` is a difference of, when larger than itself.
    """
    if matrix.requires_grad:
        factor: Tensor = psd_safe_cholesky(matrix)
        return factor
    chol, info = torch.linalg.cholesky_ex(matrix)
    if info == 0:
        return chol
    lift = 10 * len(matrix) * torch.finfo(matrix.dtype).eps * max(size, float(matrix.diagonal().amax()))
    if len(matrix) > SINGLE_FROM:
        chol, info = torch.linalg.cholesky_ex(matrix.diagonal_scatter(matrix.diagonal() + lift))
        if info == 0:
            return chol
        raise NotPositiveSemidefiniteError(
            f"the posterior covariance of {len(matrix)} cells is not positive semi-definite in {matrix.dtype} (pivot "
            f"{int(info)}); raise the noise, or ask about fewer cells, for which double precision is used"
        )
    values, vectors = torch.linalg.eigh(matrix)
    if values[0] < -max(lift, 1e-12):
        least = values[0].item()
        raise NotPositiveSemidefiniteError(
            f"the posterior covariance of {len(matrix)} cells has an eigenvalue of {least:.3g}; raise the noise"
        )
    return vectors * values.clamp_min(0).sqrt()


class RankQueries:
    """Questions about one row, answered from the joint posterior of its candidates, which is formed for each question.

    Where more than some 10,000 pairs were observed it is conditioned on those nearest to the row.
    """

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
        row_inputs: Any = None,
        col_inputs: Any = None,
    ) -> TopTable:
        """The k best items of a row by posterior mean, each with its standard deviation and P(in the top k).

        Probabilities and intervals of ranks are shares of S joint samples of the row's candidates: a probability p has
        a standard error of sqrt(p (1 - p) / S).

        :param k: how many items; also the k of P(in the top k).
        :param exclude: known positives that are no candidates: an ``ObservedMatrix``, whose entries above 0 count, a
            ``PositiveUnlabelled`` or a pair (rows, cols). The names of items are taken from it, too.
        :param level: probability of the intervals of ranks.
        :param num_samples: S.
        :param seed: of the samples; other random numbers are left alone.
        :param row_inputs: (q, d) new rows, in place of the prior's; ``row`` then counts within them.
        :param col_inputs: (q, d) new items, in place of the prior's; ``exclude`` is then a pair (rows, cols).

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
        line = _Row(self, row, exclude, row_inputs, col_inputs)
        samples = line.samples(num_samples, seed)
        best = line.mean.argsort(descending=True, stable=True)[:places]
        chosen, at = line.items[best], line.rows[best]
        low, high = rank_interval(samples, share, best)
        names = getattr(exclude, "col_names", None)
        return TopTable(
            items=chosen,
            names=None if names is None else tuple(names[item] for item in chosen.tolist()),
            mean=line.mean[best],
            std=line.posterior.variance(at, chosen, accuracy=STD_ACCURACY, **line.inputs).sqrt(),
            top_probability=top_probability(samples, places)[best],
            rank_low=low,
            rank_high=high,
            k=places,
            level=share,
        )

    @without_gradient
    def top_probability(
        self,
        row: Any,
        k: int = 20,
        *,
        exclude: Any = None,
        num_samples: int = 1000,
        seed: int = 0,
        row_inputs: Any = None,
        col_inputs: Any = None,
    ) -> Tensor:
        """(N,): P(in the top k) of every item of a row; 0 for excluded ones. Arguments as for :meth:`top`."""
        places = check_whole_number(k, "k")
        line = _Row(self, row, exclude, row_inputs, col_inputs)
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
        row_inputs: Any = None,
        col_inputs: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """(N,) and (N,): best and worst rank of a credible interval of every item of a row; 0 for excluded ones."""
        share = check_between(level, "level")
        line = _Row(self, row, exclude, row_inputs, col_inputs)
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
        row_inputs: Any = None,
        col_inputs: Any = None,
    ) -> float:
        """How many of the ``chosen`` items (C,) of a row are expected in its top k. Arguments as for :meth:`top`."""
        options = {"exclude": exclude, "num_samples": num_samples, "seed": seed}
        inputs = {"row_inputs": row_inputs, "col_inputs": col_inputs}
        return expected_hits(self.top_probability(row, k, **options, **inputs), chosen)

    @without_gradient
    def beats(self, row: Any, item: Any, other: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> float:
        """P(``item`` scores higher than ``other``) in a row, in closed form."""
        posterior: Any = self  # the whole that this is a part of
        inputs = {"row_inputs": row_inputs, "col_inputs": col_inputs}
        rows, cols = posterior._query([], [], **inputs).pairs.shape
        line = check_one_index(row, rows, "row")
        items = [check_one_index(at, cols, name) for at, name in ((item, "item"), (other, "other"))]
        joint: Joint = posterior.joint([line, line], items, **inputs)
        lead, s = float(posterior.mean([line, line], items, **inputs).flip(0).diff()), joint.matrix
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
        row_inputs: Any = None,
        col_inputs: Any = None,
    ) -> TestPlan:
        """The ``count`` items of a row whose measurement would settle its top k most, one after the other.

        See :mod:`mvgp.posteriors.tables` for the score. Measured items should be in ``exclude``.

        :param noise: variance of a measurement; that of the observations with the least noise when left out.
        """
        places, number = check_whole_number(k, "k"), check_whole_number(count, "count")
        noise = None if noise is None else check_positive(noise, "noise")
        line = _Row(self, row, exclude, row_inputs, col_inputs)
        at_top = top_probability(line.samples(num_samples, seed), places)
        error = float(line.posterior.conditional.noise.min()) if noise is None else noise
        names = getattr(exclude, "col_names", None)
        return plan_tests(line.joint.matrix, at_top, line.items, line.mean, error, number, places, names)


class _Row:
    """The candidates of a row and their joint posterior."""

    def __init__(self, posterior: Any, row: Any, exclude: Any, row_inputs: Any, col_inputs: Any) -> None:
        self.posterior = posterior
        self.inputs = {"row_inputs": row_inputs, "col_inputs": col_inputs}
        query = posterior._query([], [], **self.inputs)
        query.lines([])  # whole rows: no batches
        shape = query.pairs.shape
        if query.is_new and exclude is not None and not isinstance(exclude, tuple | list):
            raise InputError(
                f"exclude: with new inputs expected a pair (rows, cols) of positions within them, got "
                f"{type(exclude).__name__}, which is about the prior's own rows and columns"
            )
        at = check_one_index(row, shape[0], "row")
        self.items = candidates(at, exclude, shape).to(posterior.device)  # (C,)
        self.rows = torch.full_like(self.items, at)  # (C,)
        self.mean = posterior.mean(self.rows, self.items, **self.inputs)  # (C,)
        self.joint: Joint = posterior.joint(self.rows, self.items, **self.inputs)
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
    """(C,) ascending: the items of a row that are not excluded, see :meth:`RankQueries.top`."""
    keep = torch.ones(shape[1], dtype=torch.bool)
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
    """
    drawn, places = _samples(samples), check_whole_number(k, "k")
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
    """
    drawn, share = _samples(samples), check_between(level, "level")
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
    """
    shares = check_values(probabilities, None, "probabilities", torch.float64)
    refuse_where((shares < 0) | (shares > 1 + 1e-9), shares, "probabilities", "a number from 0 to 1")
    picked = check_index(chosen, len(shares), "chosen").to(shares.device)
    values, counts = torch.unique(picked, return_counts=True)
    if len(values) < len(picked):
        raise InputError(f"chosen: expected distinct items, got {int(values[counts > 1][0])} more than once")
    return float(shares[picked].sum())


def beats(samples: Any, i: int, j: int) -> float:
    """The probability that item i has a higher score than item j in ``samples`` (S, N); a tie counts 1/2."""
    drawn = _samples(samples)
    first, second = (drawn[:, check_one_index(at, drawn.shape[1], name)] for at, name in ((i, "i"), (j, "j")))
    return float((first > second).double().mean() + (first == second).double().mean() / 2)


def _samples(samples: Any) -> Tensor:
    """(S, N) finite real numbers, at least one of them."""
    return check_matrix(samples, "samples", shape="(S, N)").contiguous()
