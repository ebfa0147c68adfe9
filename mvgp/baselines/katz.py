"""Katz: the number of paths between a row and a column, through links and both graphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from scipy import sparse

from ..checks import check_dtype, check_not_negative, check_positive, check_whole_number
from ..data import PositiveUnlabelled
from ..errors import InputError
from ..kernels import Graph
from .checks import check_graph, check_nodes
from .incidence import incidence, row_normalised, symmetrically_normalised, weights
from .ranker import BlockRanker

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
        >>> from mvgp.baselines.katz import Katz
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
