"""Linear autoencoders of the links alone: each column is predicted from the others (EASE, EDLAE)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from scipy import sparse

from ... import checks
from .base import BLOCK, Positive, Precision, Recipe


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
    """The inverse of a sparse positive definite matrix, dense."""
    return np.asarray(torch.cholesky_inverse(torch.linalg.cholesky(torch.from_numpy(matrix.toarray()))).numpy())


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
