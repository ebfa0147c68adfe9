"""Scores linear in links: autoencoders (EASE, EDLAE), a GP over the rows, a walk (RP3beta), a graph filter (GF-CF)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.linalg import svds

from ... import checks
from ...errors import InputError
from .base import (
    BLOCK,
    Count,
    NodeGraph,
    NotNegative,
    Part,
    Positive,
    Precision,
    Recipe,
    Seed,
    power_of_sums,
    row_normalised,
    symmetrically_normalised,
    weights,
)


def _check_dropout(dropout: Any, name: str) -> None:
    checks.refuse_gradient(dropout, name)
    number = checks.real(dropout)
    checks.require(number is not None and 0 <= number < 1, dropout, name, "a number of at least 0 and below 1")


class LinearAutoencoder(Recipe):
    r"""Scores X B, with the B of zero diagonal that minimises a ridge regression with a penalty for each column.

    B minimises :math:`\|X - X B\|_F^2 + \|\Lambda^{1/2} B\|_F^2` with a diagonal :math:`\Lambda`. With
    :math:`C = (X^T X + \Lambda)^{-1}` (N, N) the scores are :math:`X B = X - X C\, \mathrm{diag}(C)^{-1}`. Where M < N
    a matrix of the rows takes its place, by Woodbury's identity: with
    :math:`G = (I + X \Lambda^{-1} X^T)^{-1}` (M, M) and :math:`h = \mathrm{diag}(X^T G X \Lambda^{-1})`,

    .. math:: X C = G X \Lambda^{-1}, \qquad \mathrm{diag}(C) = \Lambda^{-1} (1 - h), \qquad
              X B = X - G X\, \mathrm{diag}(1 - h)^{-1}.
    """

    @abstractmethod
    def penalties(self, counts: np.ndarray) -> np.ndarray:
        """(N,) the diagonal of Lambda, positive, given the number of links of each column (N,)."""

    def _prepare(self, links: Any) -> dict[str, Any]:
        penalties = self.penalties(np.asarray(links.sum(axis=0), dtype=np.float64).ravel())
        if links.shape[0] >= links.shape[1]:
            inverse = _inverse(links.T @ links + sparse.diags_array(penalties.astype(links.dtype)))
            return {"links": links, "inverse": inverse, "scale": inverse.diagonal().copy()}
        scaled = links @ sparse.diags_array((1 / penalties).astype(links.dtype))
        inverse = _inverse(scaled @ links.T + sparse.eye_array(links.shape[0], dtype=links.dtype))
        explained = np.zeros(links.shape[1])  # (N,) h
        for start in range(0, links.shape[0], BLOCK):
            rows = np.arange(start, min(start + BLOCK, links.shape[0]))
            explained += np.asarray(scaled[rows].multiply(self._projected(rows, links, inverse)).sum(axis=0)).ravel()
        return {"links": links, "inverse": inverse, "scale": (1 - explained).astype(links.dtype)}

    def _projected(self, rows: np.ndarray, links: Any, inverse: np.ndarray) -> np.ndarray:
        """(R, N): rows of X C, or of G X if M < N."""
        if links.shape[0] < links.shape[1]:
            return np.asarray((links.T @ inverse[:, rows]).T)  # G is symmetric
        return np.asarray(links[rows] @ inverse)

    def _block(self, rows: np.ndarray, *, links: Any, inverse: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return links[rows].toarray() - self._projected(rows, links, inverse) / scale


def _inverse(matrix: Any) -> np.ndarray:
    """The inverse of a positive definite matrix, sparse or dense, as a dense one."""
    dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    return np.asarray(torch.cholesky_inverse(torch.linalg.cholesky(torch.from_numpy(dense))).numpy())


@dataclass(frozen=True)
class EASE(LinearAutoencoder):
    r"""Each column is predicted from the others by ridge regression with one common penalty.

    B minimises :math:`\|X - X B\|_F^2 + \lambda \|B\|_F^2` with a zero diagonal, so that scores are
    :math:`X B = X - X P\, \mathrm{diag}(P)^{-1}` with :math:`P = (X^T X + \lambda I)^{-1}`. Only a matrix of the
    smaller side of X is inverted. Steck, *Embarrassingly Shallow Autoencoders for Sparse Data*, 2019.

    A row without a link has score 0 for each column: it is not ranked, and all its columns tie.

    :param regularisation: :math:`\lambda`.
    :param dtype: of the computation and the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines.linear import EASE
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], shape=(3, 4))
        >>> EASE(regularisation=1.0).fit(links).scores([2]).round(decimals=3).tolist()
        [[0.0, 0.5, 0.0, 0.0]]

    """

    regularisation: Positive = 100.0
    dtype: Precision = field(default=torch.float64, repr=False)

    def penalties(self, counts: np.ndarray) -> np.ndarray:
        """(N,) the same for each column."""
        return np.full(len(counts), self.regularisation)


@dataclass(frozen=True)
class EDLAE(LinearAutoencoder):
    r"""EASE that learns to predict links that were dropped at random, so that it does not copy its input.

    Each link is dropped with probability p, and only the dropped ones are predicted (emphasised denoising). In
    expectation that is a ridge regression with zero diagonal whose penalty grows with the number of links of a column:

    .. math:: \Lambda = \lambda I + \tfrac{p}{1 - p}\, \mathrm{diag}(X^T X), \qquad C = (X^T X + \Lambda)^{-1}, \qquad
              X B = X - X C\, \mathrm{diag}(C)^{-1}.

    Without dropout it is :class:`EASE`. Only a matrix of the smaller side of X is inverted. Steck, *Autoencoders that
    don't overfit towards the Identity*, 2020 (its full-rank model).

    A row without a link has score 0 for each column: it is not ranked, and all its columns tie.

    :param regularisation: :math:`\lambda`.
    :param dropout: p, at least 0 and below 1.
    :param dtype: of the computation and the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines.linear import EDLAE
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], shape=(3, 4))
        >>> EDLAE(regularisation=1.0, dropout=0.5).fit(links).scores([2]).round(decimals=3).tolist()
        [[0.0, 0.286, 0.0, 0.0]]

    """

    regularisation: Positive = 10.0
    dropout: Annotated[float, _check_dropout] = 0.5
    dtype: Precision = field(default=torch.float64, repr=False)

    def penalties(self, counts: np.ndarray) -> np.ndarray:
        """(N,) larger for columns with more links."""
        return self.regularisation + self.dropout / (1 - self.dropout) * counts


@dataclass(frozen=True)
class RowGP(Recipe):
    r"""Each row is predicted from all others: the leave-one-out mean of a Gaussian process over the rows.

    Each column is a sample of the same process. Its kernel says that rows are alike if they share columns, rare ones
    above all, and if they are near each other in the graph. With the numbers of links E of the columns and
    :math:`S = D^{-1/2} W D^{-1/2}` of the graph,

    .. math:: K = X E^{-2\tau} X^T + \gamma\, r \left( I - (1 - r) S \right)^{-1}, \qquad
              \Lambda = \lambda I + \tfrac{p}{1 - p}\, \mathrm{diag}(X E^{-2\tau} X^T).

    The noise :math:`\Lambda` grows with the links of a row. With :math:`C = (K + \Lambda)^{-1}` the mean of row m
    without its own links, for all columns at once, is :math:`X - \mathrm{diag}(C)^{-1} C X` (Sundararajan and Keerthi,
    *Predictive approaches for choosing hyperparameters in Gaussian processes*, 2001). That is :class:`EDLAE` with rows
    and columns exchanged, weights for the columns, and a graph. A matrix (M, M) is inverted.

    A row without a link is predicted from its neighbours; one without neighbours has score 0 for each column.

    :param row_graph: on the M rows.
    :param regularisation: :math:`\lambda`.
    :param dropout: p, at least 0 and below 1.
    :param graph_weight: :math:`\gamma`; 0 leaves out the graph.
    :param restart: r, of the walk on the graph.
    :param col_exponent: :math:`\tau`; 0 counts all columns alike.
    :param dtype: of the computation and the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.baselines.linear import RowGP
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1], [0, 1, 2], shape=(3, 4))
        >>> RowGP(Graph([(1, 2)], 3)).fit(links).scores([2])[0].argmax().item()  # as its neighbour
        2

    """

    row_graph: NodeGraph = field(repr=False)
    regularisation: Positive = 10.0
    dropout: Annotated[float, _check_dropout] = 0.5
    graph_weight: NotNegative = 5.0
    restart: Part = 0.3
    col_exponent: NotNegative = 0.15
    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        weighted = links @ power_of_sums(links, 0, -self.col_exponent)
        gram = (weighted @ weighted.T).toarray()  # (M, M)
        noise = self.regularisation + self.dropout / (1 - self.dropout) * gram.diagonal()
        if self.graph_weight:
            steps = symmetrically_normalised(weights(self.row_graph, self.dtype))
            walk = sparse.eye_array(links.shape[0], dtype=links.dtype) - (1 - self.restart) * steps
            gram += (self.graph_weight * self.restart) * _inverse(walk)
        gram[np.diag_indices_from(gram)] += noise
        inverse = _inverse(gram)
        inverse /= -inverse.diagonal()
        np.fill_diagonal(inverse, 0.0)
        return {"links": links, "coefficients": inverse}  # (M, M), a column for each row that is predicted

    def _block(self, rows: np.ndarray, *, links: Any, coefficients: np.ndarray) -> np.ndarray:
        return np.asarray((links.T @ coefficients[:, rows]).T)


@dataclass(frozen=True)
class RP3beta(Recipe):
    r"""A random walk of three steps along links, from a row to a column, with a penalty on popular columns.

    With :math:`P = D^{-1} X` (from rows to columns) and :math:`Q = E^{-1} X^T` (back), where D and E are the sums of
    the rows and the columns of X, and powers of single entries,

    .. math:: F = P^{\circ\alpha}\, Q^{\circ\alpha}\, P^{\circ\alpha}\, E^{-\beta}.

    Paudel, Christoffel, Newell and Bernstein, *Updatable, Accurate, Diverse, and Scalable Recommendations for
    Interactive Applications*, 2017.

    A row without a link has score 0 for each column: it is not ranked, and all its columns tie.

    :param alpha: exponent of the probability of a step; 1 is the random walk, 0 counts paths.
    :param beta: exponent of the penalty; 0 is without.
    :param dtype: of the computation and the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines.linear import RP3beta
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], shape=(3, 4))
        >>> RP3beta(alpha=1.0, beta=0.0).fit(links).scores([2]).round(decimals=3).tolist()
        [[0.667, 0.333, 0.0, 0.0]]

    """

    alpha: NotNegative = 1.0
    beta: NotNegative = 0.5
    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        forth, back = row_normalised(links), row_normalised(links.T.tocsr())
        for steps in (forth, back):
            steps.data **= self.alpha
        last = forth @ power_of_sums(links, 0, -self.beta)
        # (M, N), (M, N), (N, M): a block of rows walks as columns of a dense matrix
        return {"first": forth, "second": back.T.tocsr(), "third": last.T.tocsr()}

    def _block(self, rows: np.ndarray, *, first: Any, second: Any, third: Any) -> np.ndarray:
        return np.asarray((third @ (second @ first[rows].toarray().T)).T)


@dataclass(frozen=True)
class GFCF(Recipe):
    r"""Graph filters in closed form: a linear one, and an ideal low-pass on the leading singular vectors.

    With the normalised links :math:`\tilde X = D^{-1/2} X E^{-1/2}`, where D and E are the sums of the rows and the
    columns of X, and the leading right singular vectors V (N, factors) of :math:`\tilde X`,

    .. math:: F = X \left( \tilde X^T \tilde X + \alpha\, E^{-1/2} V V^T E^{1/2} \right).

    Shen et al., *How Powerful is Graph Convolution for Recommendation?*, 2021.

    A row without a link has score 0 for each column: it is not ranked, and all its columns tie.

    :param factors: number of singular vectors, less than M and N.
    :param alpha: weight of the low-pass filter against the linear one.
    :param seed: of the start of the iteration for singular vectors.
    :param dtype: of the computation and the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines.linear import GFCF
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], shape=(3, 4))
        >>> GFCF(factors=1, alpha=1.0).fit(links).scores([2]).round(decimals=3).tolist()
        [[1.267, 0.808, 0.0, 0.0]]

    """

    factors: Count = 256
    alpha: NotNegative = 0.3
    seed: Seed = field(default=0, repr=False)
    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        if self.factors >= min(links.shape):
            raise InputError(f"factors: expected less than {min(links.shape)}, the smaller side, got {self.factors}")
        normalised = symmetrically_normalised(links)
        if links.shape[0] < links.shape[1]:  # X E^-1/2 V V^T E^1/2 = D^1/2 U U^T D^-1/2 X
            basis = self._leading(normalised)  # (M, F) U, the left singular vectors
            row_factors = power_of_sums(links, 1, 0.5) @ basis
            col_factors = ((power_of_sums(links, 1, -0.5) @ links).T @ basis).T
        else:
            basis = self._leading(normalised.T.tocsr())  # (N, F) V
            row_factors = links @ (power_of_sums(links, 0, -0.5) @ basis)
            col_factors = (power_of_sums(links, 0, 0.5) @ basis).T
        return {
            "links": links,
            "backward": normalised,  # (M, N)
            "forward": normalised.T.tocsr(),  # (N, M)
            "row_factors": row_factors,  # (M, F)
            "col_factors": self.alpha * col_factors,  # (F, N)
        }

    def _leading(self, matrix: Any) -> np.ndarray:
        """(S, F): the leading left singular vectors of a matrix whose rows are its smaller side S.

        Few of them come from an iteration, more than a twentieth of all from a dense matrix (S, S), which is then
        quicker, and does not mind that singular values are equal, as they are where links are few.
        """
        side = matrix.shape[0]
        if 20 * self.factors <= side:
            start = np.random.default_rng(self.seed).standard_normal(side).astype(matrix.dtype)
            return np.asarray(svds(matrix, k=self.factors, v0=start, return_singular_vectors="u")[0])
        gram = (matrix @ matrix.T).toarray()
        return np.asarray(eigh(gram, subset_by_index=[side - self.factors, side - 1], overwrite_a=True)[1])

    def _block(
        self,
        rows: np.ndarray,
        *,
        links: Any,
        backward: Any,
        forward: Any,
        row_factors: np.ndarray,
        col_factors: np.ndarray,
    ) -> np.ndarray:
        linear = forward @ (backward @ links[rows].toarray().T)  # (N, R)
        return np.asarray(linear.T + row_factors[rows] @ col_factors)
