"""Alternating least squares over all cells, with factors that are drawn to those of neighbours in both graphs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ...errors import InputError
from ...kernels.graph import Graph
from .base import Count, NodeGraph, NotNegative, Part, Positive, Precision, Seed, symmetrically_normalised, weights
from .factors import FactorRecipe

POWERS = 3  # steps of the iteration that the start comes from
START = 3.0  # size of a column of the start
STEPS = 3  # of conjugate gradients, each time one side is solved for
TINY = 1e-20


@dataclass(frozen=True)
class GraphALS(FactorRecipe):
    r"""Factors of whole lists: each cell is fitted, links with weight 1, others with less.

    Minimises by turns over U and V, with weights :math:`w_{mn} = 1` at links and :math:`w_0` elsewhere, and
    :math:`S = D^{-1/2} W D^{-1/2}` of each graph,

    .. math:: \sum_{mn} w_{mn} (x_{mn} - u_m^T v_n)^2
              + \lambda \left( \|U\|_F^2 + \gamma\, \mathrm{tr}\, U^T (I - S_M) U
              + \|V\|_F^2 + \gamma\, \mathrm{tr}\, V^T (I - S_N) V \right).

    That is a trace norm of the scores under the kernels :math:`(I + \gamma (I - S))^{-1}`, at a fixed rank: what
    :class:`~mvgp.TraceGP` does on whole lists with a squared loss, in a fraction of the time and without a
    certificate. Neighbours enter with their factors of the sweep before. It starts from the leading singular vectors of
    the normalised links.

    A row without a link is scored by its neighbours; one without neighbours has score 0 for each column.

    :param row_graph: on the M rows.
    :param col_graph: on the N columns.
    :param factors: length of u and v, less than M and N.
    :param regularisation: :math:`\lambda`.
    :param unlabelled_weight: :math:`w_0`, above 0 and at most 1.
    :param smoothness: :math:`\gamma`; 0 leaves out the graphs.
    :param iterations: how often both sides are solved for, each time by a few steps of conjugate gradients.
    :param seed: of the start.
    :param dtype: of the computation and the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.baselines import GraphALS
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1], [0, 1, 0, 1], shape=(3, 4))
        >>> recipe = GraphALS(Graph([(1, 2)], 3), Graph([], 4), factors=1, regularisation=0.1)
        >>> recipe.fit(links).scores([2])[0].argsort(descending=True)[:2].sort().values.tolist()  # as its neighbour
        [0, 1]

    """

    row_graph: NodeGraph = field(repr=False)
    col_graph: NodeGraph = field(repr=False)
    factors: Count = 256
    regularisation: Positive = 1.0
    unlabelled_weight: Part = 0.05
    smoothness: NotNegative = 0.5
    iterations: Count = 5
    seed: Seed = field(default=0, repr=False)
    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        if self.factors >= min(links.shape):
            raise InputError(f"factors: expected less than {min(links.shape)}, the smaller side, got {self.factors}")
        sides = (_Side(links, self.row_graph, self), _Side(links.T, self.col_graph, self))
        start = leading(symmetrically_normalised(links), self.factors, self.seed)  # (N, F)
        row_factors = torch.zeros(links.shape[0], self.factors, dtype=self.dtype)
        col_factors = START * torch.from_numpy(start)
        for _ in range(self.iterations):
            row_factors = sides[0].solved(row_factors, col_factors)
            col_factors = sides[1].solved(col_factors, row_factors)
        return {"row_factors": row_factors.numpy(), "col_factors": col_factors.numpy()}  # (M, F), (N, F)


def leading(matrix: Any, factors: int, seed: int) -> np.ndarray:
    """(N, F) orthonormal, near the leading right singular vectors of a sparse matrix (M, N), by a few powers."""
    basis = np.random.default_rng(seed).standard_normal((matrix.shape[1], factors)).astype(matrix.dtype)
    for _ in range(POWERS):
        basis = np.linalg.qr(matrix.T @ (matrix @ basis))[0]
    return np.asarray(basis)


class _Side:
    """The least squares of one side, given the factors of the other one."""

    def __init__(self, links: Any, graph: Graph, recipe: GraphALS) -> None:
        self.links = _csr(links)  # (M, N)
        self.zeros = _csr(links, 0.0)
        self.walk = _csr(symmetrically_normalised(weights(graph, recipe.dtype)))
        self.rest, self.penalty, self.smoothness = recipe.unlabelled_weight, recipe.regularisation, recipe.smoothness

    def solved(self, factors: Tensor, others: Tensor) -> Tensor:
        """(M, F) a few steps of conjugate gradients in each row, from ``factors`` (M, F); ``others`` are (N, F)."""
        gram, transposed = self.rest * (others.mT @ others), others.mT.contiguous()

        def applied(vectors: Tensor) -> Tensor:
            at_links = torch.sparse.sampled_addmm(self.zeros, vectors, transposed)  # (M, N) where there is a link
            own = self.penalty * (1 + self.smoothness) * vectors
            return vectors @ gram + (1 - self.rest) * (at_links @ others) + own

        target = self.links @ others + self.penalty * self.smoothness * (self.walk @ factors)
        residual = target - applied(factors)
        direction, squares = residual, residual.square().sum(1, keepdim=True)
        for _ in range(STEPS):
            image = applied(direction)
            size = squares / (direction * image).sum(1, keepdim=True).clamp(min=TINY)
            factors, residual = factors + size * direction, residual - size * image
            before, squares = squares, residual.square().sum(1, keepdim=True)
            direction = residual + squares / before.clamp(min=TINY) * direction
        return factors


def _csr(matrix: Any, scale: float = 1.0) -> Tensor:
    """A sparse matrix as a CSR tensor in its precision, times a number."""
    matrix = sparse.csr_array(matrix)
    matrix.sort_indices()
    starts, columns = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    values = torch.from_numpy(scale * matrix.data)
    return torch.sparse_csr_tensor(starts, columns, values, size=matrix.shape, check_invariants=False)
