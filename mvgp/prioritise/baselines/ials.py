"""Alternating least squares with a frequency-scaled penalty, alone and with neighbours in both graphs as features."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import sparse

from ...errors import ConvergenceError, InputError
from ...kernels.graph import Graph
from .base import DTYPES, Count, NodeGraph, NotNegative, Positive, Precision, Seed, row_normalised, weights
from .factors import FactorRecipe


@dataclass(frozen=True)
class IALS(FactorRecipe):
    r"""Alternating least squares whose penalty grows with the number of links of a row or column.

    Minimises, by turns over U and V, with :math:`n_m` links of row m and :math:`n_n` of column n,

    .. math:: \sum_{mn} x_{mn} (1 - u_m^T v_n)^2 + \alpha_0 \sum_{mn} (u_m^T v_n)^2
              + \sum_m p_m \|u_m\|^2 + \sum_n p_n \|v_n\|^2, \qquad
              p_m = \lambda (n_m + \alpha_0 N)^\nu, \quad p_n = \lambda (n_n + \alpha_0 M)^\nu.

    Rendle, Krichene, Zhang and Koren, *Revisiting the Performance of iALS on Item Recommendation Benchmarks*, 2022.
    Fitted by the package irspack with conjugate gradients, in single precision: ``pip install 'mvgp[bench]'``.

    A row or column without a link has the factors 0, the minimum: such a row has score 0 for each column.

    :param factors: length of u and v.
    :param regularisation: :math:`\lambda`.
    :param unlabelled_weight: :math:`\alpha_0`, of each cell; a link has 1 more.
    :param frequency_exponent: :math:`\nu`; 0 is the same penalty for all, 1 that of a penalty on each cell.
    :param iterations: how often both sides are solved for.
    :param threads: of the package.
    :param seed: of the start.
    :param dtype: of the scores.

    Example:
        >>> from mvgp.prioritise.baselines.ials import IALS
        >>> IALS(factors=32)
        IALS(factors=32, regularisation=0.003, unlabelled_weight=0.1, frequency_exponent=1.0, iterations=16)

    """

    factors: Count = 64
    regularisation: Positive = 0.003
    unlabelled_weight: Positive = 0.1
    frequency_exponent: NotNegative = 1.0
    iterations: Count = 16
    threads: Count = field(default=1, repr=False)
    seed: Seed = field(default=0, repr=False)
    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        arrays = fit_irspack(self, links)
        for axis, name in enumerate(("col_factors", "row_factors")):  # the iteration only comes near these zeros
            arrays[name][np.asarray(links.sum(axis=axis)).ravel() == 0] = 0
        return arrays


@dataclass(frozen=True)
class GraphIALS(FactorRecipe):
    r""":class:`IALS` whose factors are drawn to a linear map of features: the neighbours in the two graphs.

    The features F of the rows are columns of :math:`D^{-1} (I + W_M)`, a row itself and its neighbours as a random
    walk weighs them: the columns of those rows that have a link and a neighbour. H of the columns is made of
    :math:`W_N` in the same way. The penalties of :class:`IALS` become

    .. math:: \sum_m p_m \|u_m - (F A)_m\|^2 + \mu \|A\|_F^2 + \sum_n p_n \|v_n - (H B)_n\|^2 + \mu \|B\|_F^2,

    with weights A and B, a vector for each feature, that are learned by ridge regression in turn with U and V. In other
    words, the factors have the prior covariance :math:`\mathrm{diag}(p)^{-1} + F F^T / \mu` along the rows. A large
    :math:`\mu` gives :class:`IALS` back. Fitted by the package irspack: ``pip install 'mvgp[bench]'``.

    The package factorises the Gram matrix of the features of each side: about 2 GB and half a minute for 11,000.

    A row without a link is scored by its neighbours; one without neighbours too has scores near 0 that say nothing.

    :param row_graph: on the M rows.
    :param col_graph: on the N columns.
    :param factors: length of u and v.
    :param regularisation: :math:`\lambda`.
    :param unlabelled_weight: :math:`\alpha_0`, of each cell; a link has 1 more.
    :param feature_regularisation: :math:`\mu`.
    :param frequency_exponent: :math:`\nu`.
    :param iterations: how often everything is solved for.
    :param threads: of the package.
    :param seed: of the start.
    :param dtype: of the scores.

    Example:
        >>> from mvgp.prioritise.baselines.ials import GraphIALS
        >>> from mvgp.kernels import Graph
        >>> GraphIALS(Graph([(0, 1)], 3), Graph([(0, 1)], 4), factors=2).feature_regularisation
        1.0

    """

    row_graph: NodeGraph = field(repr=False)
    col_graph: NodeGraph = field(repr=False)
    factors: Count = 64
    regularisation: Positive = 0.003
    unlabelled_weight: Positive = 0.1
    feature_regularisation: Positive = 1.0
    frequency_exponent: NotNegative = 1.0
    iterations: Count = 16
    threads: Count = field(default=1, repr=False)
    seed: Seed = field(default=0, repr=False)
    dtype: Precision = field(default=torch.float64, repr=False)

    def _prepare(self, links: Any) -> dict[str, Any]:
        return fit_irspack(
            self,
            links,
            user_features=neighbour_features(self.row_graph, np.asarray(links.sum(axis=1)).ravel()),
            item_features=neighbour_features(self.col_graph, np.asarray(links.sum(axis=0)).ravel()),
            lambda_user_feature=self.feature_regularisation,
            lambda_item_feature=self.feature_regularisation,
        )


def neighbour_features(graph: Graph, counts: np.ndarray) -> Any:
    """(N, F), sparse: the columns of D^-1 (I + W) of nodes with a link and a neighbour; ``counts`` (N,) are of links.

    Other nodes make no features: they would say nothing of links, or of no other node.
    """
    adjacency = weights(graph, torch.float32)
    walk = row_normalised(adjacency + sparse.eye_array(graph.num_nodes, dtype=np.float32))
    has_neighbours = np.diff(adjacency.indptr) > 0
    return sparse.csr_matrix(walk[:, np.flatnonzero(has_neighbours & (counts > 0))])


def fit_irspack(recipe: IALS | GraphIALS, links: Any, **features: Any) -> dict[str, Any]:
    """Fit irspack's ``IALSRecommender`` to ``links``; ``features`` are settings of :class:`GraphIALS` alone."""
    model = irspack_recommenders().IALSRecommender(
        sparse.csr_matrix(links.astype(np.float32)),  # the package takes no other kind
        n_components=recipe.factors,
        alpha0=recipe.unlabelled_weight,
        reg=recipe.regularisation,
        nu=recipe.frequency_exponent,
        random_seed=int(np.random.SeedSequence(recipe.seed).generate_state(1)[0] >> 1),  # it takes 31 bits
        n_threads=recipe.threads,
        **features,
    )
    model.start_learning()
    try:
        for _ in range(recipe.iterations):  # not ``learn``, which prints a progress bar
            model.run_epoch()
    except RuntimeError as error:  # a Cholesky decomposition of the features that failed
        raise ConvergenceError(f"irspack's iALS for {recipe!r} did not converge: {error}") from error
    dtype = DTYPES[recipe.dtype]
    row_factors, col_factors = (
        np.array(part, dtype=dtype) for part in (model.get_user_embedding(), model.get_item_embedding())
    )  # (M, F), (N, F)
    if not (np.isfinite(row_factors).all() and np.isfinite(col_factors).all()):
        raise ConvergenceError(f"irspack's iALS for {recipe!r} did not converge: factors are not finite")
    return {"row_factors": row_factors, "col_factors": col_factors}


def irspack_recommenders() -> Any:
    """The module of irspack with its models."""
    try:
        with warnings.catch_warnings():  # it warns of its own use of pydantic when it is imported
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module("irspack.recommenders")
    except ImportError as error:
        raise InputError(
            f"this baseline needs the package irspack ({error}); pip install 'mvgp[bench]' installs it"
        ) from error
