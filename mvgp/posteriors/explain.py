r"""Why a score is what it is: the exact share of every observed pair, equation (14).

A mean with one dual coefficient :math:`\alpha_t` for each pair has the shares
:math:`\alpha_t K_M[m, m_t] K_N[n, n_t]`. The low-rank mean of the spectral elastic net has them too: at the optimum
:math:`u_i^T (-Y) v_i = l_1 + l_2 b_i` for its singular vectors, so that with :math:`P = G_M U`, :math:`Q = G_N V`

.. math:: \psi(m, n) = \sum_t -\theta_t \sum_i \frac{b_i}{l_1 + l_2 b_i} P[m, i] P[m_t, i] Q[n, i] Q[n_t, i].

Both are :math:`v_t \langle L[m_t], R[n_t] \rangle` with a factor for the rows and one for the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..likelihoods.losses import Data, long_dot
from ..linalg.pairs import CompleteRows, Pattern
from ..mean.low_rank import LowRank
from ..mean.problem import MeanProblem, Penalty, SpectralElasticNet, times
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
    :param factors: of a mean of low rank: its dual vectors (M, R) and (N, R) and their images P (M, R) and Q (N, R).
    :param gains: (R,) b_i / (l_1 + l_2 b_i), for a mean of low rank.
    """

    pattern: Pattern | CompleteRows
    values: Tensor
    known: Tensor | None = None
    factors: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
    gains: Tensor | None = None

    def sides(self, query: Query) -> tuple[Tensor, Tensor]:
        """L (M, R) and R (N, R) for the one cell of the query."""
        row, col = query.row_side.columns(query.pairs.rows), query.col_side.columns(query.pairs.cols)  # (M, 1), (N, 1)
        if self.factors is None or self.gains is None:
            return row, col
        left, right, left_image, right_image = self.factors
        weights = self.gains * (row.mT @ left).squeeze(0) * (col.mT @ right).squeeze(0)
        return left_image * weights, right_image

    def shares(self, left: Tensor, right: Tensor) -> Tensor:
        """(P,): what each known pair adds to the score, from L (M, R) and R (N, R)."""
        which = torch.arange(len(self.values), device=left.device) if self.known is None else self.known
        if isinstance(self.pattern, CompleteRows):
            width = self.pattern.shape[1]
            rows, cols = self.pattern.chosen[which // width], which % width
        else:
            rows, cols = self.pattern.rows[which], self.pattern.cols[which]
        inner = [
            (left[some_rows] * right[some_cols]).sum(1)
            for some_rows, some_cols in zip(rows.split(PAIRS_AT_ONCE), cols.split(PAIRS_AT_ONCE), strict=True)
        ]
        return self.values[which] * torch.cat(inner) if inner else self.values[which]

    def total(self, left: Tensor, right: Tensor) -> float:
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
    sides = [dual.sides(query) for dual, query in zip(duals, queries, strict=True)]
    by_term = torch.stack([dual.shares(*side) for dual, side in zip(duals, sides, strict=True)])  # (Q, P)
    total = sum(dual.total(*side) for dual, side in zip(duals, sides, strict=True))
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


def known_links(data: Data) -> Tensor | None:
    """(P,): which of the cells of whole lists are links; None for observed pairs, all of which are known."""
    return data.positions if isinstance(data, PositiveUnlabelled) else None


def low_rank_duals(
    problem: MeanProblem, mean: LowRank, values: Tensor, penalty: Penalty, known: Tensor | None
) -> Duals:
    """What the observed pairs carry of a mean of low rank, equation (14).

    :param values: (T,) minus the gradient of the loss at the mean.
    """
    if isinstance(penalty, SpectralElasticNet):
        slopes = penalty.trace + penalty.ridge * mean.values
    else:  # the ball's multiplier takes the place of l1: the gradient's singular values along the mean are equal to it
        theta, _ = problem.sparse(values)
        slopes = (mean.left_image * times(theta, mean.right_image)).sum(0).mean().expand(mean.rank)
    factors = (mean.left, mean.right, mean.left_image, mean.right_image)
    return Duals(problem.pattern, values, known, factors, mean.values / slopes)
