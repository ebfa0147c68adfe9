"""Factor models of the links alone: alternating least squares, BPR, truncated singular value decomposition."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import svds

from ...errors import ConvergenceError, InputError
from .base import DTYPES, Count, NotNegative, Positive, Precision, Recipe, Seed


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
