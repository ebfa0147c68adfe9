"""Ranks of a row: how certain they are, and what to test next. They are read off joint samples of its cells."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from .. import hooks
from ..checks import check_between, check_choice, check_positive, check_seed, check_whole_number, without_gradient
from ..data.positive_unlabelled import positive_pairs
from ..errors import InputError
from ..linalg.chebyshev import ChebyshevLinearOperator
from ..linalg.spectra import spectral_bounds
from ..progress import Progress, shows_progress
from ..tensor_checks import check_index, check_matrix, check_one_index, check_samples, check_values, refuse_where
from .covariance import ConditionalCovariance, WholeListCovariance, unscaled
from .joint import Joint
from .query import Query, item_names
from .row_samples import Contenders, narrow
from .tables import RowSamples, TestPlan, TopTable, plan_tests
from .whole_rows import row_sampler

RankMethod = Literal["auto", "joint", "row", "contenders"]
STD_ACCURACY = 0.01  # of the standard deviations in a table, where exact ones would take long
SMALL_ROW = 512  # candidates whose joint covariance is formed without a look at anything faster


class RankQueries:
    """Questions about one row, answered from joint samples of its candidates, which are drawn for each question.

    ===============  ==============================================================================================
    method           how
    ===============  ==============================================================================================
    ``joint``        a dense covariance of all candidates; given the nearest observations where there are more than
                     some 10,000
    ``row``          :mod:`~mvgp.posteriors.row_samples`: products with the root of the column kernel, which has to be
                     that of a graph or of low rank
    ``contenders``   a dense covariance of those who can reach the top k, :mod:`~mvgp.posteriors.row_samples`
    ``auto``         ``joint`` for up to 512 candidates; for more ``row`` where it is offered, ``contenders`` (or
                     ``joint``, if all ranks are asked for) elsewhere
    ===============  ==============================================================================================
    """

    @without_gradient
    def conformal(self, held_out: Any, *, known: Any = None, level: float = 0.9, **options: Any) -> Any:
        """The shortest lists that hold a held-out link with probability ``level``, by the known links of a row.

        Of rows in four groups (0, 1, 2 to 5, 6 and more known links); valid for any model and any number of links, if
        rows of a group are exchangeable: :mod:`mvgp.metrics.conformal`, which has the other options, too.

        :param held_out: links that were not fitted, in the form of ``exclude`` below.
        :param known: links that were; they are no candidates.
        :param level: the probability.
        """
        return hooks.conformal(self, held_out, known=known, level=level, **options)

    @shows_progress("samples")
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
        method: RankMethod = "auto",
        epsilon: float = 1e-3,
        progress: Progress = "auto",
    ) -> TopTable:
        """The k best items of a row by posterior mean, each with its standard deviation and P(in the top k).

        Probabilities and intervals of ranks are shares of S joint samples of the row's candidates: a probability p has
        a standard error of sqrt(p (1 - p) / S).

        :param k: how many items; also the k of P(in the top k).
        :param exclude: known positives that are no candidates: an ``ObservedMatrix``, whose entries above 0 count, a
            ``PositiveUnlabelled`` or a pair (rows, cols). Items have its names, or those of the data that were fitted.
        :param level: probability of the intervals of ranks.
        :param num_samples: S.
        :param seed: of the samples; other random numbers are left alone.
        :param row_inputs: (q, d) new rows, in place of the prior's; ``row`` then counts within them.
        :param col_inputs: (q, d) new items, in place of the prior's; ``exclude`` is then a pair (rows, cols).
        :param method: how the samples are drawn, see the table above.
        :param epsilon: largest probability that an item which was dropped as no contender is in the top k.
        :param progress: True, False or "auto", see :mod:`mvgp.progress`.

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
        drawn = line.draw(num_samples, seed, method, places, epsilon)
        best = line.mean.argsort(descending=True, stable=True)[:places]
        chosen, at = line.items[best], line.rows[best]
        here = torch.searchsorted(drawn.items, chosen)  # the leaders are contenders
        low, high = rank_interval(drawn.values, share, here)
        names = item_names(self, exclude, col_inputs)
        return TopTable(
            items=chosen,
            names=None if names is None else tuple(names[item] for item in chosen.tolist()),
            mean=line.mean[best],
            std=line.posterior.variance(at, chosen, accuracy=STD_ACCURACY, **line.inputs).sqrt(),
            top_probability=top_probability(drawn.values, places)[here],
            rank_low=low,
            rank_high=high,
            k=places,
            level=share,
        )

    @shows_progress("samples")
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
        method: RankMethod = "auto",
        epsilon: float = 1e-3,
        progress: Progress = "auto",
    ) -> Tensor:
        """(N,): P(in the top k) of every item of a row; 0 for excluded ones and for those who are no contenders.

        Arguments as for :meth:`top`. :meth:`row_samples` says how the samples behind it were drawn.
        """
        places = check_whole_number(k, "k")
        line = _Row(self, row, exclude, row_inputs, col_inputs)
        drawn = line.draw(num_samples, seed, method, places, epsilon)
        return line.spread(top_probability(drawn.values, places), drawn.items)

    @shows_progress("samples")
    @without_gradient
    def row_samples(
        self,
        row: Any,
        num_samples: int = 1000,
        *,
        k: int | None = None,
        exclude: Any = None,
        seed: int = 0,
        row_inputs: Any = None,
        col_inputs: Any = None,
        method: RankMethod = "auto",
        epsilon: float = 1e-3,
        progress: Progress = "auto",
    ) -> RowSamples:
        """Joint samples of the candidates of a row, or of those who can reach its top k, and how they were drawn.

        :param k: of the top, for contenders; all candidates are sampled when left out. Others as for :meth:`top`.

        Example:
            >>> import gpytorch, mvgp, torch
            >>> from mvgp.kernels import PrecomputedKernel
            >>> two, four = (PrecomputedKernel(torch.eye(size, dtype=torch.float64)) for size in (2, 4))
            >>> data = mvgp.ObservedMatrix([0, 0, 0], [0, 1, 2], [30.0, -30.0, 0.0], (2, 4))
            >>> model = mvgp.FullGP(mvgp.MatrixGP(two, four), gpytorch.likelihoods.GaussianLikelihood().double())
            >>> drawn = model.fit(data).row_samples(0, k=1, method="contenders")
            >>> drawn.items.tolist(), drawn.candidates, drawn.dropped < 1e-3
            ([0], 4, True)

        """
        places = None if k is None else check_whole_number(k, "k")
        line = _Row(self, row, exclude, row_inputs, col_inputs)
        return line.draw(num_samples, seed, method, places, epsilon)

    @shows_progress("samples")
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
        method: RankMethod = "auto",
        progress: Progress = "auto",
    ) -> tuple[Tensor, Tensor]:
        """(N,) and (N,): best and worst rank of a credible interval of every item of a row; 0 for excluded ones."""
        share = check_between(level, "level")
        line = _Row(self, row, exclude, row_inputs, col_inputs)
        low, high = rank_interval(line.draw(num_samples, seed, method).values, share)
        return line.spread(low, line.items), line.spread(high, line.items)

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
        at_top = top_probability(line.draw(num_samples, seed, "joint").values, places)
        error = float(line.posterior.conditional.noise.min()) if noise is None else noise
        names = item_names(self, exclude, col_inputs)
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
        self._query: Query = query.cells(self.rows, self.items)
        self._width = shape[1]

    @cached_property
    def joint(self) -> Joint:
        """Of all candidates."""
        joint: Joint = self.posterior.joint(self.rows, self.items, **self.inputs)
        return joint

    def draw(
        self, num_samples: int, seed: int, method: RankMethod, k: int | None = None, epsilon: float = 1e-3
    ) -> RowSamples:
        """Samples of the candidates, or of contenders for the top k; see :class:`RankQueries` for the methods."""
        check_choice(method, "method", ("auto", "joint", "row", "contenders"))
        epsilon = check_between(epsilon, "epsilon")
        count, size = check_samples(num_samples, len(self.items)), len(self.items)
        generator = torch.Generator(self.items.device).manual_seed(check_seed(seed))
        if method == "contenders" and k is None:
            raise InputError("method: 'contenders' is about the top k, and all items are asked for; use 'auto'")
        conditional = self.posterior.conditional
        if method == "row" or (method == "auto" and size > SMALL_ROW):
            sampler = row_sampler(conditional, self._query)
            if sampler is not None:
                drawn = sampler.sample(count, generator)[:, self.items].to(self.mean).add_(self.mean)
                given = sampler.observations, sampler.left_out
                return RowSamples(self.items, drawn, size, "row", 0.0, *given)
            if method == "row":
                raise InputError(
                    "method: 'row' needs a column kernel of a graph or of low rank, the prior's own items, and not too "
                    "many observations near the row; use 'auto'"
                )
        if method == "joint" or k is None or (method == "auto" and size <= SMALL_ROW):
            drawn = self.joint.sample(count, generator).to(self.mean)
            return self._given(self.items, drawn, "joint", 0.0, self.joint)
        chosen = self._contenders(k, epsilon)
        items, mean = self.items[chosen.items], self.mean[chosen.items]
        joint = conditional.joint(self._query.part(chosen.items))
        drawn = joint.sample(count, generator).to(mean) + mean
        return self._given(items, drawn, "contenders", chosen.dropped, joint)

    def _given(self, items: Tensor, drawn: Tensor, method: str, dropped: float, joint: Joint) -> RowSamples:
        inner = unscaled(self.posterior.conditional)[0]
        whole = not isinstance(inner, WholeListCovariance) and joint.observations == len(inner.pairs)
        left_out = 0.0 if whole else None
        return RowSamples(items, drawn, len(self.items), method, dropped, joint.observations, left_out)

    def _contenders(self, k: int, epsilon: float) -> Contenders:
        """By the prior's standard deviations, then by those of the posterior for who is left."""
        inner, scale = unscaled(self.posterior.conditional)

        def before(which: Tensor) -> Tensor:
            return (scale * _prior_bound(self._query.part(which))).sqrt()

        def after(which: Tensor) -> Tensor:
            return (scale * inner.variance(self._query.part(which), accuracy=STD_ACCURACY)).sqrt()

        bounds: list[Callable[[Tensor], Tensor]] = [before, after]
        if isinstance(inner, WholeListCovariance):
            bounds = [before]  # its variances take longer than the samples
        elif not isinstance(inner, ConditionalCovariance):
            bounds = [after]
        return narrow(self.mean, k, epsilon, bounds)

    def spread(self, values: Tensor, items: Tensor) -> Tensor:
        """(N,): values (C,) of ``items`` (C,), 0 elsewhere."""
        out = torch.zeros(self._width, dtype=values.dtype, device=values.device)
        out[items] = values
        return out


def _prior_bound(query: Query) -> Tensor:
    """(Q,): at least the prior's variance; the diagonal of a series is dear, a bound of its eigenvalues is not."""
    total: Any = 0.0
    for part in query.parts:
        col = part.col_side
        series = not col.is_new and isinstance(col.op, ChebyshevLinearOperator)
        of_cols = spectral_bounds(col.op)[1] if series else col.diagonal(part.pairs.cols)
        total = total + part.row_side.diagonal(part.pairs.rows) * of_cols
    bound: Tensor = total
    return bound


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
    leading = drawn.topk(places + 1, dim=1)
    tied = leading.values[:, -2] == leading.values[:, -1]  # (S,) whether the last place is shared with somebody outside
    total = torch.bincount(leading.indices[~tied, :places].flatten(), minlength=drawn.shape[1]).double()
    if tied.any():
        some = drawn[tied]
        last = leading.values[tied, -1:]  # (S', 1) the score on place k
        above, level = some > last, some == last
        share = (places - above.sum(1, keepdim=True)).double() / level.sum(1, keepdim=True)  # (S', 1) in (0, 1]
        total += above.sum(0) + (share * level).sum(0)
    return total / len(drawn)


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
