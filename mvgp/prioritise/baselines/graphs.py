"""Baselines on the graphs: popularity, votes of neighbours, Katz paths, and propagation over both graphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

import numpy as np
import torch
from scipy import sparse
from scipy.special import comb

from ...errors import InputError
from .base import (
    Count,
    Flag,
    NodeGraph,
    NotNegative,
    Part,
    Positive,
    Precision,
    Recipe,
    row_normalised,
    symmetrically_normalised,
    weights,
)


@dataclass(frozen=True)
class Popularity(Recipe):
    """Score of a column: its number of links. A row without a link is scored like any other.

    :param dtype: of the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines.graphs import Popularity
        >>> links = mvgp.PositiveUnlabelled([0, 1, 1], [2, 2, 0], shape=(3, 4))
        >>> Popularity().fit(links).scores([0]).tolist()
        [[1.0, 0.0, 2.0, 0.0]]

    """

    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        return {"counts": np.asarray(links.sum(axis=0)).ravel()}  # (N,)

    def _block(self, rows: np.ndarray, *, counts: np.ndarray) -> np.ndarray:
        return np.broadcast_to(counts, (len(rows), len(counts)))


@dataclass(frozen=True)
class NeighbourVoting(Recipe):
    r"""Neighbouring rows vote for their links, and popularity decides between equal numbers of votes.

    With :math:`P = D^{-1} W` of the graph of the rows, links X and popularity p (1 for the most popular column):

    .. math:: F = \sum_{h=1}^{\text{hops}} \text{decay}^{h-1} P^h X + \text{popularity\_weight} \cdot 1 p^T.

    A row without a link is scored by its neighbours, a row without a neighbour by popularity.

    :param row_graph: on the M rows.
    :param hops: how far neighbours may be.
    :param decay: weight of a hop against the one before.
    :param popularity_weight: of the most popular column, against 1 for a column that every neighbour has. The
        default only breaks ties unless a row has hundreds of neighbours.
    :param dtype: of the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines.graphs import NeighbourVoting
        >>> from mvgp.kernels import Graph
        >>> links = mvgp.PositiveUnlabelled([0, 2, 2], [3, 3, 0], shape=(3, 4))
        >>> NeighbourVoting(Graph([(0, 1), (1, 2)], 3), popularity_weight=0).fit(links).scores([1]).tolist()
        [[0.5, 0.0, 0.0, 1.0]]

    """

    row_graph: NodeGraph = field(repr=False)
    hops: Count = 1
    decay: Part = 0.5
    popularity_weight: NotNegative = 1e-3
    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        counts = np.asarray(links.sum(axis=0)).ravel()
        popularity = self.popularity_weight * counts / counts.max()  # (N,)
        return {"walk": row_normalised(weights(self.row_graph, self.dtype)), "links": links, "popularity": popularity}

    def _block(self, rows: np.ndarray, *, walk: Any, links: Any, popularity: np.ndarray) -> np.ndarray:
        step = walk[rows]  # (R, M), sparse throughout: few hops
        votes = step
        for _ in range(1, self.hops):
            step = self.decay * (step @ walk)
            votes = votes + step
        return (votes @ links).toarray() + popularity


Normalisation = Literal["none", "symmetric", "walk", "blocks"]


def _check_normalisation(word: Any, name: str) -> None:
    if word not in get_args(Normalisation):
        raise InputError(f"{name}: expected one of {', '.join(get_args(Normalisation))}, got {word!r}")


@dataclass(frozen=True)
class Katz(Recipe):
    r"""The block (rows, columns) of :math:`\sum_{l=1}^{L} \beta^l J^l`, with J the joint graph of rows and columns.

    .. math:: J = \begin{pmatrix} g_M W_M & X \\ X^T & g_N W_N \end{pmatrix}

    Only (M + N) x 256 entries are computed at a time. A row without a link is scored by its neighbours, a row without
    link and neighbour has score 0 for each column.

    :param row_graph: on the M rows.
    :param col_graph: on the N columns.
    :param beta: what a step more costs. Below 1 over the largest eigenvalue of J the series converges as L grows.
    :param max_length: L, the longest path.
    :param normalisation: ``none``: weights of paths add up; ``symmetric``: J divided by the roots of its row sums on
        both sides; ``walk``: J divided by its row sums, a random walk that starts at the row; ``blocks``: the same for
        each of the four blocks.
    :param row_weight: :math:`g_M`, weight of a step on the graph of the rows against one along a link.
    :param col_weight: :math:`g_N`, the same for the columns.
    :param dtype: of the computation and the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines.graphs import Katz
        >>> from mvgp.kernels import Graph
        >>> links = mvgp.PositiveUnlabelled([0], [0], shape=(2, 3))
        >>> recipe = Katz(Graph([(0, 1)], 2), Graph([(0, 1)], 3), 0.1, 3, "none", row_weight=1, col_weight=1)
        >>> recipe.fit(links).scores([1]).round(decimals=3).tolist()
        [[0.01, 0.001, 0.0]]

    """

    row_graph: NodeGraph = field(repr=False)
    col_graph: NodeGraph = field(repr=False)
    beta: Positive = 0.9
    max_length: Count = 3
    normalisation: Annotated[Normalisation, _check_normalisation] = "blocks"
    row_weight: NotNegative = 0.1
    col_weight: NotNegative = 0.1
    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        blocks = [weights(self.row_graph, self.dtype), links, links.T, weights(self.col_graph, self.dtype)]
        if self.normalisation == "blocks":
            blocks = [row_normalised(block) for block in blocks]
        rows, forth, back, cols = blocks
        joint = sparse.block_array([[self.row_weight * rows, forth], [back, self.col_weight * cols]], format="csr")
        if self.normalisation == "symmetric":
            joint = symmetrically_normalised(joint)
        elif self.normalisation == "walk":
            joint = row_normalised(joint)
        return {"joint": joint, "backward": joint.T.tocsr()}

    def _block(self, rows: np.ndarray, *, joint: Any, backward: Any) -> np.ndarray:
        num_rows = self.row_graph.num_nodes
        paths = self.beta * joint[rows].toarray().T  # (M + N, R), those of length 1
        total = paths[num_rows:]
        for _ in range(1, self.max_length):
            paths = self.beta * (backward @ paths)
            total = total + paths[num_rows:]
        return total.T


@dataclass(frozen=True)
class Propagation(Recipe):
    r"""Random walk with restart on both graphs at once (Xie, Hwang and Kuang, *BiRW*, 2012).

    From :math:`F = X`, with the normalised weights :math:`S = D^{-1/2} W D^{-1/2}` of each graph and restart r,

    .. math:: F \leftarrow \tfrac{1 - r}{2} (S_M F + F S_N) + r X.

    A row without a link is scored by its neighbours' links; one without neighbours too has score 0 for each column.

    :param row_graph: on the M rows.
    :param col_graph: on the N columns.
    :param restart: r; 1 gives back the links.
    :param iterations: number of steps.
    :param normalise_links: whether X is divided by the roots of its row and column sums first, which tempers popular
        columns and long lists.
    :param dtype: of the computation and the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines.graphs import Propagation
        >>> from mvgp.kernels import Graph
        >>> links = mvgp.PositiveUnlabelled([0], [0], shape=(2, 3))
        >>> recipe = Propagation(Graph([(0, 1)], 2), Graph([(0, 1)], 3), restart=0.5, iterations=1)
        >>> recipe.fit(links).scores().tolist()
        [[0.5, 0.25, 0.0], [0.25, 0.0, 0.0]]

    """

    row_graph: NodeGraph = field(repr=False)
    col_graph: NodeGraph = field(repr=False)
    restart: Part = 0.3
    iterations: Count = 8
    normalise_links: Flag = False
    dtype: Precision = field(default=torch.float64, repr=False)

    def coefficients(self) -> np.ndarray:
        """(T + 1, T + 1) the weight c of i steps on the rows and j on the columns; 0 beyond T steps in total."""
        steps = np.arange(self.iterations + 1)
        total = steps[:, None] + steps
        half = (1 - self.restart) / 2
        weight = np.where(total < self.iterations, self.restart, 1.0)  # the last is the X that it began with
        return np.where(total <= self.iterations, weight * half**total * comb(total, steps), 0.0)

    def _prepare(self, links: Any) -> dict[str, Any]:
        row_weights, col_weights = weights(self.row_graph, self.dtype), weights(self.col_graph, self.dtype)
        return {
            "row_walk": symmetrically_normalised(row_weights),
            "col_walk": symmetrically_normalised(col_weights),
            "links": symmetrically_normalised(links) if self.normalise_links else links,
        }

    def _block(self, rows: np.ndarray, *, row_walk: Any, col_walk: Any, links: Any) -> np.ndarray:
        """The steps on the two graphs commute: the state is the sum of c_ij S_M^i X S_N^j, row by row."""
        powers = [np.zeros((links.shape[0], len(rows)), dtype=links.dtype)]  # each (M, R): columns of S_M^i
        powers[0][rows, np.arange(len(rows))] = 1
        for _ in range(self.iterations):
            powers.append(row_walk @ powers[-1])
        weight = self.coefficients().astype(links.dtype)
        state = np.zeros((links.shape[1], len(rows)), dtype=links.dtype)
        for j in range(self.iterations, -1, -1):  # Horner in S_N
            seeds = sum(weight[i, j] * powers[i] for i in range(self.iterations - j + 1))  # (M, R)
            state = col_walk @ state + links.T @ seeds
        return state.T
