r"""Posteriors of sums of terms: the cells under each term, and the mean of each term.

The mean of a term is :math:`\psi_q = b_q + k_{Mq} A_q k_{Nq}^T`. Everything a posterior asks of the prior at its cells
is a sum over the terms.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import without_gradient
from ..errors import InputError
from ..linalg.pair_operator import CovarianceSumLinearOperator
from ..linalg.pairs import PairIndex
from ..linalg.spectra import Operators, Terms
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from ..tensor_checks import check_index
from .query import LINE_BATCH, AxisQuery, Coefficients, Query, pair_means, row_scores


class SumQuery(Query):
    """Q cells under a sum of terms.

    :param prior: the sum.
    :param parts: the same cells under each term.
    """

    def __init__(self, prior: SumGP, parts: Sequence[Query]) -> None:
        self.prior, self._parts = prior, tuple(parts)
        self.pairs, self.shape = parts[0].pairs, parts[0].shape

    @property
    def parts(self) -> tuple[Query, ...]:
        """The cells under each term."""
        return self._parts

    @property
    def is_new(self) -> bool:
        """Whether any position is a new input."""
        return any(part.is_new for part in self.parts)

    @property
    def carries_gradient(self) -> bool:
        """Whether answers carry a gradient to new inputs."""
        return any(part.carries_gradient for part in self.parts)

    def part(self, which: Tensor) -> SumQuery:
        """Some of the cells, at positions ``which`` (q,)."""
        return SumQuery(self.prior, [part.part(which) for part in self.parts])

    def joined(self) -> SumQuery:
        """The same cells in one batch, (Q,)."""
        return SumQuery(self.prior, [part.joined() for part in self.parts])

    def cells(self, rows: Tensor, cols: Tensor) -> SumQuery:
        """Other cells (Q,) of the same axes and inputs."""
        return SumQuery(self.prior, [part.cells(rows, cols) for part in self.parts])

    def lines(self, rows: Any) -> Tensor:
        """See :class:`Query`."""
        return self.parts[0].lines(rows)

    def line_prior_means(self, rows: Tensor) -> Tensor:
        """See :class:`Query`."""
        first, *others = (part.line_prior_means(rows) for part in self.parts)
        return sum(others, first)

    def prior_blocks(self) -> Tensor:
        """See :class:`Query`."""
        return torch.stack([part.prior_blocks() for part in self.parts]).sum(0)

    def in_precision(self, terms: Terms) -> SumQuery:
        """The same cells under covariances in another precision."""
        fresh = copy.copy(self)
        fresh._parts = tuple(part.in_precision((ops,)) for part, ops in zip(self.parts, terms, strict=True))
        return fresh

    def prior_mean(self) -> Tensor:
        """(Q,)"""
        return torch.stack([part.prior_mean() for part in self.parts]).sum(0)

    def prior_variance(self) -> Tensor:
        """(Q,)"""
        return torch.stack([part.prior_variance() for part in self.parts]).sum(0)

    def covariance(self) -> LinearOperator:
        """See :class:`Query`."""
        return CovarianceSumLinearOperator(*(part.covariance() for part in self.parts))

    def cross(self, observed: PairIndex) -> LinearOperator:
        """See :class:`Query`."""
        return CovarianceSumLinearOperator(*(part.cross(observed) for part in self.parts))

    def cross_columns(self, observed: PairIndex, where: slice) -> Tensor:
        """See :class:`Query`."""
        first, *others = (part.cross_columns(observed, where) for part in self.parts)
        return sum(others, first)

    def prior_samples(
        self, observed: PairIndex, num_samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """See :class:`Query`; the terms are independent."""
        here, there = zip(*(part.prior_samples(observed, num_samples, generator) for part in self.parts), strict=True)
        return torch.stack(here).sum(0), torch.stack(there).sum(0)


def sum_query(
    prior: SumGP, terms: Terms, rows: Any, cols: Any, row_inputs: Any = None, col_inputs: Any = None
) -> SumQuery:
    """Cells under a sum of terms.

    :param terms: the covariances (K_M, K_N) of each term.
    :param row_inputs: new inputs (q, d) for all terms, or one entry for each term, see :func:`term_inputs`.
    """
    new_rows = term_inputs(row_inputs, [term.row_axis for term in prior.terms])
    new_cols = term_inputs(col_inputs, [term.col_axis for term in prior.terms])
    each = zip(prior.terms, terms, new_rows, new_cols, strict=True)
    parts = [Query(term, ops, rows, cols, new_row, new_col) for term, ops, new_row, new_col in each]
    return SumQuery(prior, parts)


def term_inputs(inputs: Any, axes: Sequence[Any]) -> list[Any]:
    """New inputs of one axis for each term of a sum, None for the prior's own positions.

    One array (q, d) serves all terms, if each of them has inputs on this axis. A list or tuple with an entry for each
    term has inputs (q, d) for a term with inputs, node numbers (q, 1) for a term on nodes, and None where positions
    stand for the prior's own rows or columns.
    """
    if inputs is None:
        return [None] * len(axes)
    name = f"{axes[0].name}_inputs"
    if isinstance(inputs, list | tuple) and any(entry is None or hasattr(entry, "shape") for entry in inputs):
        if len(inputs) != len(axes):
            raise InputError(f"{name}: expected an entry for each of {len(axes)} terms, got {len(inputs)}")
        sizes = {len(entry) for entry in inputs if entry is not None}
        if len(sizes) > 1:
            raise InputError(f"{name}: expected as many new inputs for each term, got {sorted(sizes)}")
        return list(inputs)
    on_nodes = [at for at, axis in enumerate(axes) if axis.on_nodes]
    if on_nodes:
        raise InputError(
            f"{name}: terms[{on_nodes[0]}] is on nodes and has no inputs; give a list with an entry for each term: "
            "inputs (q, d), node numbers (q, 1), or None for the prior's own positions"
        )
    return [inputs] * len(axes)


@dataclass(frozen=True)
class TermMean:
    """The posterior mean of one term of a prior, with that term's own prior mean.

    :param prior: the term.
    :param ops: its covariances (K_M, K_N).
    :param coefficients: A, the representer coefficients of its mean.
    """

    prior: MatrixGP
    ops: Operators
    coefficients: Coefficients

    @without_gradient
    def mean(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> Tensor:
        """(Q,): at pairs."""
        query = Query(self.prior, self.ops, rows, cols, row_inputs, col_inputs)
        return query.prior_mean() + pair_means(self.coefficients, query)

    @without_gradient
    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): of whole rows, all of them when ``rows`` (R,) is left out."""
        size, device = self.prior.shape[0], self.ops[0].device
        chosen = check_index(range(size) if rows is None else rows, size, "rows").to(device)
        cols = torch.arange(self.prior.shape[1], device=device)
        return self.values(chosen) + self.prior.mean_module.block(chosen, cols)

    def values(self, rows: Tensor) -> Tensor:
        """(R, N): the same without the prior mean; ``rows`` (R,) are positions."""
        row_side, col_side = AxisQuery(self.prior.row_axis, self.ops[0]), AxisQuery(self.prior.col_axis, self.ops[1])
        out = torch.empty(len(rows), self.prior.shape[1], dtype=self.prior.dtype, device=rows.device)
        for start in range(0, len(rows), LINE_BATCH):
            where = slice(start, start + LINE_BATCH)
            out[where] = row_scores(self.coefficients, row_side, col_side, rows[where])
        return out

    def __repr__(self) -> str:
        return f"TermMean({self.prior.shape[0]} x {self.prior.shape[1]})"


def each_term(value: Any, count: int) -> tuple[Any, ...]:
    """One for each of ``count`` terms: those of a list, or the same for all."""
    return tuple(value) if isinstance(value, list | tuple) else (value,) * count
