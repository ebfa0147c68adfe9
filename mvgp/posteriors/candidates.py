"""The candidates of a row, and joint samples of them by the method that suits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from ..checks import check_between, check_choice, check_seed
from ..data.positive_unlabelled import positive_pairs
from ..errors import InputError
from ..linalg.chebyshev import ChebyshevLinearOperator
from ..linalg.spectra import spectral_bounds
from ..tensor_checks import check_one_index, check_samples
from .contenders import Contenders, narrow
from .covariance import ConditionalCovariance, WholeListCovariance, unscaled
from .joint import Joint
from .query import Query
from .whole_rows import row_sampler

RankMethod = Literal["auto", "joint", "row", "contenders"]
STD_ACCURACY = 0.01  # of the standard deviations in a table, where exact ones would take long
SMALL_ROW = 512  # candidates whose joint covariance is formed without a look at anything faster


@dataclass(frozen=True, eq=False)
class RowSamples:
    """Joint samples of a row, and how they were drawn.

    :param items: (C,) the items that were sampled, ascending.
    :param values: (S, C).
    :param candidates: how many items could have been sampled.
    :param method: ``joint``, ``row`` or ``contenders``.
    :param dropped: bound on the probability that an item which was not sampled is in the top k.
    :param observations: how many the samples are conditioned on.
    :param left_out: bound on what the observations that were left out would take from any variance; None where nobody
        knows, if some were left out.
    """

    items: Tensor
    values: Tensor
    candidates: int
    method: str
    dropped: float
    observations: int
    left_out: float | None

    def __repr__(self) -> str:
        count, size = self.values.shape
        return f"RowSamples({count} samples of {size} of {self.candidates} items, {self.method})"


class Row:
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
