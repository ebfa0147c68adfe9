"""Propagation: links spread over both graphs and are fed in again at each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import comb
from typing import Any, Literal, get_args

import numpy as np
import torch
from scipy import sparse

from ...checks import check_dtype, check_not_negative, check_part, check_positive, check_whole_number
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import InputError
from ...kernels.graph import Graph
from .base import BlockRanker, check_graph, check_nodes, incidence, row_normalised, symmetrically_normalised, weights


class PopularityRanker(BlockRanker):
    """The same scores for each row.

    :param counts: (N,) links of each column.
    :param num_rows: M.
    :param dtype: of the scores.
    """

    def __init__(self, counts: np.ndarray, num_rows: int, dtype: torch.dtype) -> None:
        super().__init__((num_rows, len(counts)), dtype)
        self.counts = counts

    def _block(self, rows: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.counts, (len(rows), len(self.counts)))


@dataclass(frozen=True)
class Popularity:
    """Score of a column: its number of links. A row without a link is scored like any other.

    :param dtype: of the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines.graphs import Popularity
        >>> links = mvgp.PositiveUnlabelled([0, 1, 1], [2, 2, 0], shape=(3, 4))
        >>> Popularity().fit(links).scores([0]).tolist()
        [[1.0, 0.0, 2.0, 0.0]]

    """

    dtype: torch.dtype = field(default=torch.float64, repr=False)

    def __post_init__(self) -> None:
        check_dtype(self.dtype)

    def fit(self, links: PositiveUnlabelled) -> PopularityRanker:
        """The ranker given ``links``."""
        counts = np.asarray(incidence(links, self.dtype).sum(axis=0)).ravel()
        return PopularityRanker(counts, links.shape[0], self.dtype)


class NeighbourRanker(BlockRanker):
    """Votes of neighbouring rows.

    :param walk: (M, M) one step on the graph of the rows, sparse.
    :param links: (M, N) sparse.
    :param recipe: the settings.
    """

    def __init__(self, walk: Any, links: Any, recipe: NeighbourVoting) -> None:
        super().__init__(links.shape, recipe.dtype)
        self._walk, self._links, self.recipe = walk, links, recipe
        counts = np.asarray(links.sum(axis=0)).ravel()
        self._popularity = recipe.popularity_weight * counts / counts.max()  # (N,)

    def _block(self, rows: np.ndarray) -> np.ndarray:
        step = self._walk[rows]  # (R, M), sparse throughout: few hops
        votes = step
        for _ in range(1, self.recipe.hops):
            step = self.recipe.decay * (step @ self._walk)
            votes = votes + step
        return (votes @ self._links).toarray() + self._popularity


@dataclass(frozen=True)
class NeighbourVoting:
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

    row_graph: Graph = field(repr=False)
    hops: int = 1
    decay: float = 0.5
    popularity_weight: float = 1e-3
    dtype: torch.dtype = field(default=torch.float64, repr=False)

    def __post_init__(self) -> None:
        check_graph(self.row_graph, "row_graph")
        check_whole_number(self.hops, "hops")
        check_part(self.decay, "decay")
        check_not_negative(self.popularity_weight, "popularity_weight")
        check_dtype(self.dtype)

    def fit(self, links: PositiveUnlabelled) -> NeighbourRanker:
        """The ranker given ``links``."""
        matrix = incidence(links, self.dtype)
        check_nodes(self.row_graph, links.shape[0], "row_graph")
        return NeighbourRanker(row_normalised(weights(self.row_graph, self.dtype)), matrix, self)


Normalisation = Literal["none", "symmetric", "walk", "blocks"]


class KatzRanker(BlockRanker):
    """Paths from the rows asked for.

    :param joint: J (M + N, M + N), sparse.
    :param shape: (M, N).
    :param recipe: the settings.
    """

    def __init__(self, joint: Any, shape: tuple[int, int], recipe: Katz) -> None:
        super().__init__(shape, recipe.dtype)
        self._joint, self._backward, self.recipe = joint, joint.T.tocsr(), recipe

    def _block(self, rows: np.ndarray) -> np.ndarray:
        beta, num_rows = self.recipe.beta, self.shape[0]
        paths = beta * self._joint[rows].toarray().T  # (M + N, R), those of length 1
        total = paths[num_rows:]
        for _ in range(1, self.recipe.max_length):
            paths = beta * (self._backward @ paths)
            total = total + paths[num_rows:]
        return total.T


@dataclass(frozen=True)
class Katz:
    r"""The block (rows, columns) of :math:`\sum_{l=1}^{L} \beta^l J^l`, with J the joint graph of rows and columns.

    .. math:: J = \begin{pmatrix} g_M W_M & X \\ X^T & g_N W_N \end{pmatrix}

    Never is more of it computed than (M + N) x 256. A row without a link is scored by its neighbours, a row without
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

    row_graph: Graph = field(repr=False)
    col_graph: Graph = field(repr=False)
    beta: float = 0.9
    max_length: int = 3
    normalisation: Normalisation = "blocks"
    row_weight: float = 0.1
    col_weight: float = 0.1
    dtype: torch.dtype = field(default=torch.float64, repr=False)

    def __post_init__(self) -> None:
        check_graph(self.row_graph, "row_graph")
        check_graph(self.col_graph, "col_graph")
        check_positive(self.beta, "beta")
        check_whole_number(self.max_length, "max_length")
        if self.normalisation not in get_args(Normalisation):
            raise InputError(
                f"normalisation: expected one of {', '.join(get_args(Normalisation))}, got {self.normalisation!r}"
            )
        check_not_negative(self.row_weight, "row_weight")
        check_not_negative(self.col_weight, "col_weight")
        check_dtype(self.dtype)

    def fit(self, links: PositiveUnlabelled) -> KatzRanker:
        """The ranker given ``links``."""
        between = incidence(links, self.dtype)
        check_nodes(self.row_graph, links.shape[0], "row_graph")
        check_nodes(self.col_graph, links.shape[1], "col_graph")
        blocks = [weights(self.row_graph, self.dtype), between, between.T, weights(self.col_graph, self.dtype)]
        if self.normalisation == "blocks":
            blocks = [row_normalised(block) for block in blocks]
        of_rows, forth, back, of_cols = blocks
        joint = sparse.block_array(
            [[self.row_weight * of_rows, forth], [back, self.col_weight * of_cols]], format="csr"
        )
        if self.normalisation == "symmetric":
            joint = symmetrically_normalised(joint)
        elif self.normalisation == "walk":
            joint = row_normalised(joint)
        return KatzRanker(joint, links.shape, self)


class PropagationRanker(BlockRanker):
    r"""The state after all steps, for the rows asked for.

    Steps on the two graphs commute, so the state is :math:`\sum_{ij} c_{ij} S_M^i X S_N^j`, and a row of it needs rows
    of :math:`S_M^i` only.

    :param row_walk: :math:`S_M` (M, M), sparse.
    :param col_walk: :math:`S_N` (N, N), sparse.
    :param links: X (M, N), sparse.
    :param recipe: the settings.
    """

    def __init__(self, row_walk: Any, col_walk: Any, links: Any, recipe: Propagation) -> None:
        super().__init__(links.shape, recipe.dtype)
        self._row_walk, self._col_walk, self._links, self.recipe = row_walk, col_walk, links, recipe

    def _block(self, rows: np.ndarray) -> np.ndarray:
        steps = self.recipe.iterations
        powers = [np.zeros((self.shape[0], len(rows)), dtype=self._links.dtype)]  # each (M, R): columns of S_M^i
        powers[0][rows, np.arange(len(rows))] = 1
        for _ in range(steps):
            powers.append(self._row_walk @ powers[-1])
        weight = self.recipe.coefficients().astype(self._links.dtype)
        found = np.zeros((self.shape[1], len(rows)), dtype=self._links.dtype)
        for j in range(steps, -1, -1):  # Horner in S_N
            seeds = sum(weight[i, j] * powers[i] for i in range(steps - j + 1))  # (M, R)
            found = self._col_walk @ found + self._links.T @ seeds
        return found.T


@dataclass(frozen=True)
class Propagation:
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

    row_graph: Graph = field(repr=False)
    col_graph: Graph = field(repr=False)
    restart: float = 0.3
    iterations: int = 8
    normalise_links: bool = False
    dtype: torch.dtype = field(default=torch.float64, repr=False)

    def __post_init__(self) -> None:
        check_graph(self.row_graph, "row_graph")
        check_graph(self.col_graph, "col_graph")
        check_part(self.restart, "restart")
        check_whole_number(self.iterations, "iterations")
        if not isinstance(self.normalise_links, bool):
            raise InputError(f"normalise_links: expected True or False, got {self.normalise_links!r}")
        check_dtype(self.dtype)

    def coefficients(self) -> np.ndarray:
        """(T + 1, T + 1) the weight c of i steps on the rows and j on the columns; 0 beyond T steps in total."""
        found = np.zeros((self.iterations + 1, self.iterations + 1))
        half = (1 - self.restart) / 2
        for i in range(self.iterations + 1):
            for j in range(self.iterations + 1 - i):
                last = i + j == self.iterations  # the X that it began with
                found[i, j] = (1.0 if last else self.restart) * half ** (i + j) * comb(i + j, i)
        return found

    def fit(self, links: PositiveUnlabelled) -> PropagationRanker:
        """The ranker given ``links``."""
        matrix = incidence(links, self.dtype)
        check_nodes(self.row_graph, links.shape[0], "row_graph")
        check_nodes(self.col_graph, links.shape[1], "col_graph")
        row_walk, col_walk = (
            symmetrically_normalised(weights(graph, self.dtype)) for graph in (self.row_graph, self.col_graph)
        )
        if self.normalise_links:
            matrix = symmetrically_normalised(matrix)
        return PropagationRanker(row_walk, col_walk, matrix, self)
