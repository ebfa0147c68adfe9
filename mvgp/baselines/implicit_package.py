"""The package implicit, when it is there: models of it are fitted here in a reproducible way."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from scipy import sparse

from ..checks import check_dtype, check_not_negative, check_whole_number
from ..data import PositiveUnlabelled
from ..errors import ConvergenceError, InputError
from .checks import DTYPES
from .factor_ranker import FactorRanker
from .incidence import incidence


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
