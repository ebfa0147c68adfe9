"""EASE: a linear model of each column given the others, in closed form."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import svds

from ...checks import check_dtype, check_not_negative, check_positive, check_whole_number
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import ConvergenceError, InputError
from .base import BLOCK, DTYPES, BlockRanker, incidence


class FactorRanker(BlockRanker):
    """Scores U V^T.

    :param row_factors: U (M, F).
    :param col_factors: V (N, F).
    :param dtype: of the scores.
    """

    def __init__(self, row_factors: np.ndarray, col_factors: np.ndarray, dtype: torch.dtype) -> None:
        super().__init__((len(row_factors), len(col_factors)), dtype)
        self.row_factors, self.col_factors = row_factors, col_factors

    def _block(self, rows: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.row_factors[rows] @ self.col_factors.T
        return found


def check_implicit(recipe: Any) -> None:
    """Whether the settings that all models of the package have are in order.

    :param recipe: with ``factors``, ``regularisation``, ``iterations``, ``threads``, ``seed`` and ``dtype``.
    """
    for name in ("factors", "iterations", "threads"):
        check_whole_number(getattr(recipe, name), name)
    check_not_negative(recipe.regularisation, "regularisation")
    check_whole_number(recipe.seed, "seed", least=0)
    check_dtype(recipe.dtype)


def fit_implicit(module: str, name: str, links: PositiveUnlabelled, recipe: Any, **own: Any) -> FactorRanker:
    """Fit the class ``name`` of ``implicit.cpu.<module>`` to ``links``.

    :param recipe: with the settings of :func:`check_implicit`.
    :param own: further settings of the class.
    """
    matrix = sparse.csr_matrix(incidence(links, torch.float32))  # the package takes no other kind
    settings = {
        "factors": recipe.factors,
        "regularization": recipe.regularisation,
        "iterations": recipe.iterations,
        "num_threads": recipe.threads,
        "random_state": recipe.seed,
        **own,
    }
    model = getattr(_package(f"implicit.cpu.{module}"), name)(dtype=DTYPES[recipe.dtype], **settings)
    with _package("threadpoolctl").threadpool_limits(1, "blas"):  # threads of its own; the package asks for this
        try:
            model.fit(matrix, show_progress=False)
        except _package("implicit.recommender_base").ModelFitError as error:  # numbers that are none
            raise ConvergenceError(f"implicit's {name} with {settings} did not converge: {error}") from error
    return FactorRanker(model.user_factors, model.item_factors, recipe.dtype)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"this baseline needs the package implicit ({error}); pip install 'mvgp[bench]' installs it"
        ) from error


@dataclass(frozen=True)
class ImplicitALS:
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

    factors: int = 64
    regularisation: float = 0.01
    alpha: float = 1.0
    iterations: int = 15
    threads: int = field(default=1, repr=False)
    seed: int = field(default=0, repr=False)
    dtype: torch.dtype = field(default=torch.float64, repr=False)

    def __post_init__(self) -> None:
        check_implicit(self)
        check_positive(self.alpha, "alpha")

    def fit(self, links: PositiveUnlabelled) -> FactorRanker:
        """The ranker given ``links``."""
        return fit_implicit("als", "AlternatingLeastSquares", links, self, alpha=self.alpha)


@dataclass(frozen=True)
class BPR:
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

    factors: int = 64
    learning_rate: float = 0.05
    regularisation: float = 0.01
    iterations: int = 100
    threads: int = field(default=1, repr=False)
    seed: int = field(default=0, repr=False)
    dtype: torch.dtype = field(default=torch.float64, repr=False)

    def __post_init__(self) -> None:
        check_implicit(self)
        check_positive(self.learning_rate, "learning_rate")

    def fit(self, links: PositiveUnlabelled) -> FactorRanker:
        """The ranker given ``links``."""
        return fit_implicit("bpr", "BayesianPersonalizedRanking", links, self, learning_rate=self.learning_rate)


@dataclass(frozen=True)
class PureSVD:
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

    factors: int = 64
    seed: int = field(default=0, repr=False)
    dtype: torch.dtype = field(default=torch.float64, repr=False)

    def __post_init__(self) -> None:
        check_whole_number(self.factors, "factors")
        check_whole_number(self.seed, "seed", least=0)
        check_dtype(self.dtype)

    def fit(self, links: PositiveUnlabelled) -> FactorRanker:
        """The ranker given ``links``."""
        matrix = incidence(links, self.dtype)
        if self.factors >= min(matrix.shape):
            raise InputError(f"factors: expected less than {min(matrix.shape)}, the smaller side, got {self.factors}")
        start = np.random.default_rng(self.seed).standard_normal(min(matrix.shape)).astype(matrix.dtype)
        left, values, right = svds(matrix, k=self.factors, v0=start)
        return FactorRanker(left * values, np.ascontiguousarray(right.T), self.dtype)


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
        >>> from mvgp.prioritise.baselines.factors import EASE
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
