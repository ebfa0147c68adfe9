"""Propagation: links spread over both graphs and are fed in again at each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import comb
from typing import Any

import numpy as np
import torch

from ..checks import check_dtype, check_part, check_whole_number
from ..data import PositiveUnlabelled
from ..errors import InputError
from ..kernels import Graph
from .checks import check_graph, check_nodes
from .incidence import incidence, symmetrically_normalised, weights
from .ranker import BlockRanker


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
        >>> from mvgp.baselines.propagation import Propagation
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
