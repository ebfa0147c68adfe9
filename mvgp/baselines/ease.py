"""EASE: a linear model of each column given the others, in closed form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import sparse

from ..checks import check_dtype, check_positive
from ..data import PositiveUnlabelled
from .incidence import incidence
from .ranker import BLOCK, BlockRanker


class EASERanker(BlockRanker):
    r"""Scores :math:`X B = X - X P\, \mathrm{diag}(P)^{-1}`.

    :param links: X (M, N), sparse.
    :param inverse: :math:`P = (X^T X + \lambda I)^{-1}` (N, N), or :math:`(X X^T + \lambda I)^{-1}` (M, M).
    :param by_rows: whether it is the second: then :math:`X P = (X X^T + \lambda I)^{-1} X`.
    :param regularisation: :math:`\lambda`.
    :param dtype: of the scores.
    """

    def __init__(
        self, links: Any, inverse: np.ndarray, *, by_rows: bool, regularisation: float, dtype: torch.dtype
    ) -> None:
        super().__init__(links.shape, dtype)
        self._links, self._inverse, self._by_rows = links, inverse, by_rows
        if by_rows:  # P = (I - X^T inverse X) / lambda
            explained = np.zeros(links.shape[1])  # (N,) diagonal of X^T inverse X
            for start in range(0, links.shape[0], BLOCK):
                rows = np.arange(start, min(start + BLOCK, links.shape[0]))
                explained += np.asarray(links[rows].multiply(self._projected(rows)).sum(axis=0)).ravel()
            diagonal = (1 - explained) / regularisation
        else:
            diagonal = inverse.diagonal()
        self._diagonal = diagonal.astype(links.dtype)  # (N,) of P

    def _projected(self, rows: np.ndarray) -> np.ndarray:
        """(R, N): rows of X P."""
        if self._by_rows:
            found: np.ndarray = (self._links.T @ self._inverse[:, rows]).T  # the inverse is symmetric
            return found
        return np.asarray(self._links[rows] @ self._inverse)

    def _block(self, rows: np.ndarray) -> np.ndarray:
        return self._links[rows].toarray() - self._projected(rows) / self._diagonal


@dataclass(frozen=True)
class EASE:
    r"""Each column is predicted from the others by ridge regression with one common penalty.

    B minimises :math:`\|X - X B\|_F^2 + \lambda \|B\|_F^2` with a zero diagonal. Only a matrix of the smaller side
    of X is inverted. Steck, *Embarrassingly Shallow Autoencoders for Sparse Data*, 2019.

    A row without a link has score 0 for each column: it is not ranked, and all its columns tie.

    :param regularisation: :math:`\lambda`.
    :param dtype: of the computation and the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.baselines.ease import EASE
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], shape=(3, 4))
        >>> EASE(regularisation=1.0).fit(links).scores([2]).round(decimals=3).tolist()
        [[0.0, 0.5, 0.0, 0.0]]

    """

    regularisation: float = 100.0
    dtype: torch.dtype = field(default=torch.float64, repr=False)

    def __post_init__(self) -> None:
        check_positive(self.regularisation, "regularisation")
        check_dtype(self.dtype)

    def fit(self, links: PositiveUnlabelled) -> EASERanker:
        """The ranker given ``links``."""
        matrix = incidence(links, self.dtype)
        by_rows = matrix.shape[0] < matrix.shape[1]
        gram = matrix @ matrix.T if by_rows else matrix.T @ matrix
        gram = (gram + self.regularisation * sparse.eye_array(gram.shape[0], dtype=matrix.dtype)).toarray()
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(torch.from_numpy(gram))).numpy()
        return EASERanker(matrix, inverse, by_rows=by_rows, regularisation=self.regularisation, dtype=self.dtype)
