"""ImplicitALS: factors of rows and columns by weighted least squares, through the package implicit."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..checks import check_positive
from ..data import PositiveUnlabelled
from .factor_ranker import FactorRanker
from .implicit_package import check_implicit, fit_implicit


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
        >>> from mvgp.baselines.implicit_als import ImplicitALS
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
