"""NeighbourVoting: the links of neighbouring rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..checks import check_dtype, check_not_negative, check_part, check_whole_number
from ..data import PositiveUnlabelled
from ..kernels import Graph
from .checks import check_graph, check_nodes
from .incidence import incidence, row_normalised, weights
from .ranker import BlockRanker


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
        >>> from mvgp.baselines.neighbour_voting import NeighbourVoting
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
