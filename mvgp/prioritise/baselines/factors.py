"""Factor models: alternating least squares (of links alone, or with both graphs), BPR, truncated singular values."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import svds
from torch import Tensor

from ...errors import ConvergenceError, InputError
from ...kernels.graph import Graph
from .base import (
    DTYPES,
    Count,
    NodeGraph,
    NotNegative,
    Part,
    Positive,
    Precision,
    Recipe,
    Seed,
    symmetrically_normalised,
    weights,
)

POWERS = 3  # steps of the iteration that the start comes from
START = 3.0  # size of a column of the start
STEPS = 3  # of conjugate gradients, each time one side is solved for
TINY = 1e-20


class FactorRecipe(Recipe):
    """A recipe with scores U V^T."""

    def _block(self, rows: np.ndarray, *, row_factors: np.ndarray, col_factors: np.ndarray) -> np.ndarray:
        return np.asarray(row_factors[rows] @ col_factors.T)


def fit_implicit(module: str, name: str, links: Any, recipe: ImplicitALS | BPR, **own: float) -> dict[str, Any]:
    """Fit the class ``name`` of ``implicit.cpu.<module>`` to ``links``; ``own`` are settings of this class alone."""
    matrix = sparse.csr_matrix(links.astype(np.float32))  # the package takes no other kind
    settings = {
        "factors": recipe.factors,
        "regularization": recipe.regularisation,
        "iterations": recipe.iterations,
        "num_threads": recipe.threads,
        "random_state": recipe.seed,
        **own,
    }
    kind = getattr(_package(f"implicit.cpu.{module}"), name)
    # implicit has threads of its own; it warns from its constructor on where the linear algebra has some, too
    with _package("threadpoolctl").threadpool_limits(1, "blas"):
        model = kind(dtype=DTYPES[recipe.dtype], **settings)
        try:
            model.fit(matrix, show_progress=False)
        except _package("implicit.recommender_base").ModelFitError as error:  # NaN or infinity
            raise ConvergenceError(f"implicit's {name} with {settings} did not converge: {error}") from error
    return {"row_factors": model.user_factors, "col_factors": model.item_factors}  # (M, F), (N, F)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"this baseline needs the package implicit ({error}); pip install 'mvgp[bench]' installs it"
        ) from error


@dataclass(frozen=True)
class ImplicitALS(FactorRecipe):
    r"""Minimises :math:`\sum_{mn} c_{mn} (x_{mn} - u_m^T v_n)^2 + \lambda (\|U\|_F^2 + \|V\|_F^2)` by turns.

    Every cell counts: :math:`c` is ``alpha`` for a link and 1 for any other cell. Hu, Koren and Volinsky,
    *Collaborative Filtering for Implicit Feedback Datasets*, 2008. Needs ``pip install 'mvgp[bench]'``.

    A row without a link has score 0 for each column.

    :param factors: length of u and v.
    :param regularisation: :math:`\lambda`.
    :param alpha: weight of a link.
    :param iterations: how often both sides are solved for.
    :param threads: of the package; the result does not depend on them.
    :param seed: of the start.
    :param dtype: of the computation and the scores.

    Example:
        >>> from mvgp.prioritise.baselines.factors import ImplicitALS
        >>> ImplicitALS(factors=32)
        ImplicitALS(factors=32, regularisation=0.01, alpha=1.0, iterations=15)

    """

    factors: Count = 64
    regularisation: NotNegative = 0.01
    alpha: Positive = 1.0
    iterations: Count = 15
    threads: Count = field(default=1, repr=False)
    seed: Seed = field(default=0, repr=False)
    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        return fit_implicit("als", "AlternatingLeastSquares", links, self, alpha=self.alpha)


@dataclass(frozen=True)
class BPR(FactorRecipe):
    r"""Raises :math:`\sum \log \sigma(f_{mn} - f_{mn'})` over links (m, n) and other columns n', drawn at random.

    Here :math:`f_{mn} = u_m^T v_n + b_n`. Rendle et al., *BPR: Bayesian Personalized Ranking from Implicit Feedback*,
    2009. Needs ``pip install 'mvgp[bench]'``.

    A row without a link is ranked by the biases b, which grow with popularity.

    :param factors: length of u and v.
    :param learning_rate: of a step.
    :param regularisation: penalty on the squares of u, v and b.
    :param iterations: passes over the links.
    :param threads: of the package; with more than one the result differs from run to run.
    :param seed: of the start and the drawing.
    :param dtype: of the computation and the scores.

    Example:
        >>> from mvgp.prioritise.baselines.factors import BPR
        >>> BPR(factors=32)
        BPR(factors=32, learning_rate=0.05, regularisation=0.01, iterations=100)

    """

    factors: Count = 64
    learning_rate: Positive = 0.05
    regularisation: NotNegative = 0.01
    iterations: Count = 100
    threads: Count = field(default=1, repr=False)
    seed: Seed = field(default=0, repr=False)
    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        return fit_implicit("bpr", "BayesianPersonalizedRanking", links, self, learning_rate=self.learning_rate)


@dataclass(frozen=True)
class PureSVD(FactorRecipe):
    """The leading singular vectors and values of X. Cremonesi, Koren and Turrin, 2010.

    A row without a link has score 0 for each column.

    :param factors: the rank, less than M and N.
    :param seed: of the start of the iteration.
    :param dtype: of the computation and the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines.factors import PureSVD
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2], [0, 1, 0, 1, 3], shape=(3, 4))
        >>> PureSVD(factors=1).fit(links).scores([0]).abs().round(decimals=3).tolist()
        [[1.0, 1.0, 0.0, 0.0]]

    """

    factors: Count = 64
    seed: Seed = field(default=0, repr=False)
    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        if self.factors >= min(links.shape):
            raise InputError(f"factors: expected less than {min(links.shape)}, the smaller side, got {self.factors}")
        start = np.random.default_rng(self.seed).standard_normal(min(links.shape)).astype(links.dtype)
        left, values, right = svds(links, k=self.factors, v0=start)
        return {"row_factors": left * values, "col_factors": np.ascontiguousarray(right.T)}


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
