r"""Why a score is what it is: the exact share of every observed pair, equation (14).

A mean with one dual coefficient :math:`\alpha_t` for each pair has the shares
:math:`\alpha_t K_M[m, m_t] K_N[n, n_t]`. The low-rank mean of the spectral elastic net has them too: at the optimum
:math:`u_i^T (-Y) v_i = l_1 + l_2 b_i` for its singular vectors, so that with :math:`P = G_M U`, :math:`Q = G_N V`

.. math:: \psi(m, n) = \sum_t -\theta_t \sum_i \frac{b_i}{l_1 + l_2 b_i} P[m, i] P[m_t, i] Q[n, i] Q[n_t, i].

Both are :math:`v_t \langle L[m_t], R[n_t] \rangle` with a factor for the rows and one for the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InputError
from ..likelihoods.losses import long_dot
from ..linalg.pairs import CompleteRows, Pattern
from ..mean.problem import times
from .query import Query

if TYPE_CHECKING:
    import pandas

PAIRS_AT_ONCE = 1 << 16  # whose shares are computed at a time


@dataclass(frozen=True)
class Duals:
    """What every observed pair carries of a mean.

    :param pattern: the T observed pairs.
    :param values: (T,) the dual coefficients, or minus the loss's gradient for a mean of low rank.
    :param known: (P,) which of them are known links, for whole lists; None for all.
    :param factors: of a mean of low rank: its coefficients C (M, R) and D (N, R) with A = C D^T, and their images under
        the kernels, K_M C (M, R) and K_N D (N, R).
    :param gains: (R,) 1 / (b_i (l_1 + l_2 b_i)), for a mean of low rank.
    :param totals: (R,) the sums over all pairs of values times both images, where the pattern has the known pairs alone
        (:meth:`of_known_pairs`); None otherwise.
    """

    pattern: Pattern | CompleteRows
    values: Tensor
    known: Tensor | None = None
    factors: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
    gains: Tensor | None = None
    totals: Tensor | None = None

    def shares(self, query: Query) -> tuple[Tensor, float]:
        """(P,): what each known pair adds to the mean of the query's one cell; and what all pairs add together."""
        left, right = (
            query.row_side.columns(query.pairs.rows),
            query.col_side.columns(query.pairs.cols),
        )  # (M, 1), (N, 1)
        if self.factors is None or self.gains is None:
            return self._shares(left, right), self._total(left, right)
        of_rows, of_cols, row_images, col_images = self.factors
        weights = self.gains * (left.mT @ of_rows).squeeze(0) * (right.mT @ of_cols).squeeze(0)  # (R,)
        left, right = row_images * weights, col_images
        total = self._total(left, right) if self.totals is None else long_dot(weights, self.totals)
        return self._shares(left, right), total

    def _shares(self, left: Tensor, right: Tensor) -> Tensor:
        """(P,): of the known pairs, from L (M, R) and R (N, R)."""
        rows, cols = self.known_cells()
        values = self.values if self.known is None else self.values[self.known]
        inner = [
            (left[some_rows] * right[some_cols]).sum(1)
            for some_rows, some_cols in zip(rows.split(PAIRS_AT_ONCE), cols.split(PAIRS_AT_ONCE), strict=True)
        ]
        return values * torch.cat(inner) if inner else values

    def _total(self, left: Tensor, right: Tensor) -> float:
        """What all observed pairs add together."""
        if isinstance(self.pattern, CompleteRows):
            block = self.values.view(-1, self.pattern.shape[1])  # (A, N)
            return float(((block @ right) * left[self.pattern.chosen]).double().sum())
        return long_dot(self.values, self.pattern.sample(left, right))

    def known_cells(self) -> tuple[Tensor, Tensor]:
        """(P,) rows and (P,) columns of the known pairs."""
        if self.known is None:
            return self.pattern.rows, self.pattern.cols
        if isinstance(self.pattern, CompleteRows):
            width = self.pattern.shape[1]
            return self.pattern.chosen[self.known // width], self.known % width
        return self.pattern.rows[self.known], self.pattern.cols[self.known]

    def of_known_pairs(self) -> Duals:
        """The same of a mean of low rank without a number for each unlabelled cell: all that a file needs."""
        if self.factors is None or self.totals is not None:
            return self
        theta, row_images, col_images = self.pattern.matrix(self.values), *self.factors[2:]
        totals = (row_images * times(theta, col_images)).sum(0)
        rows, cols = self.known_cells()
        if self.known is None:
            return replace(self, totals=totals)
        pattern, every = Pattern(rows, cols, self.pattern.shape), torch.arange(len(rows), device=rows.device)
        return Duals(pattern, self.values[self.known], every, self.factors, self.gains, totals)


@dataclass(frozen=True)
class Explanation:
    """A score as a sum: ``prior_mean`` + the shares of known pairs + ``unlabelled`` + ``residual``.

    :param score: the posterior mean of the cell.
    :param prior_mean: what the prior mean (with biases, if any) says of it.
    :param rows: (P,) rows of the known pairs, the largest share in absolute value first.
    :param cols: (P,) their columns.
    :param shares: (P,) what each adds to the score.
    :param term_shares: (Q, P) the same by term of the prior; one line for a prior of one term.
    :param unlabelled: what all unlabelled cells of whole lists add together; 0 for observed pairs.
    :param residual: what the sum lacks of the score: the solver's accuracy.
    """

    score: float
    prior_mean: float
    rows: Tensor
    cols: Tensor
    shares: Tensor
    term_shares: Tensor
    unlabelled: float
    residual: float

    def by_row(self) -> tuple[Tensor, Tensor]:
        """(R,) rows and (R,) the shares of all known pairs in each, the largest in absolute value first."""
        return _grouped(self.rows, self.shares)

    def by_col(self) -> tuple[Tensor, Tensor]:
        """(C,) columns and (C,) the shares of all known pairs in each, the largest in absolute value first."""
        return _grouped(self.cols, self.shares)

    def to_frame(self, row_names: Any = None, col_names: Any = None) -> pandas.DataFrame:
        """A pandas frame with a line for each known pair: row, col, share."""
        import pandas as pd

        rows = self.rows.tolist() if row_names is None else [row_names[row] for row in self.rows.tolist()]
        cols = self.cols.tolist() if col_names is None else [col_names[col] for col in self.cols.tolist()]
        return pd.DataFrame({"row": rows, "col": cols, "share": self.shares.tolist()})

    def __repr__(self) -> str:
        return (
            f"Explanation(score {self.score:.4g} = prior mean {self.prior_mean:.3g} + {len(self.shares)} known pairs "
            f"{float(self.shares.sum()):.4g} + unlabelled {self.unlabelled:.3g} + residual {self.residual:.2g})"
        )


def explain_cell(queries: Sequence[Query], duals: Sequence[Duals], score: float, prior_mean: float) -> Explanation:
    """The explanation of one cell.

    :param queries: the cell, under each term of the prior.
    :param duals: what the observed pairs carry of each term's mean, all on the same pairs.
    """
    if len(queries[0]) != 1:
        raise InputError(f"explain: expected one row and one column, got {len(queries[0])} cells")
    parts, totals = zip(*(dual.shares(query) for dual, query in zip(duals, queries, strict=True)), strict=True)
    by_term, total = torch.stack(parts), sum(totals)  # (Q, P)
    shares = by_term.sum(0)
    known = float(shares.double().sum())
    rows, cols = duals[0].known_cells()
    order = shares.abs().argsort(descending=True, stable=True)
    unlabelled = 0.0 if duals[0].known is None else total - known
    residual = score - prior_mean - known - unlabelled
    return Explanation(
        score, prior_mean, rows[order], cols[order], shares[order], by_term[:, order], unlabelled, residual
    )


def _grouped(index: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    distinct, back = torch.unique(index, return_inverse=True)
    sums = shares.new_zeros(len(distinct)).index_add(0, back, shares)
    order = sums.abs().argsort(descending=True, stable=True)
    return distinct[order], sums[order]
