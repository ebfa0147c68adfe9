"""BPR: factors of rows and columns that order pairs of columns, through the package implicit."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..checks import check_positive
from ..data import PositiveUnlabelled
from .factor_ranker import FactorRanker
from .implicit_package import check_implicit, fit_implicit


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
        >>> from mvgp.baselines.bpr import BPR
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
