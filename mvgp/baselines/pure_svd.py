"""PureSVD: the best approximation of the links by a matrix of low rank, everything else taken for 0."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.sparse.linalg import svds

from ..checks import check_dtype, check_whole_number
from ..data import PositiveUnlabelled
from ..errors import InputError
from .factor_ranker import FactorRanker
from .incidence import incidence


@dataclass(frozen=True)
class PureSVD:
    """The leading singular vectors and values of X. Cremonesi, Koren and Turrin, 2010.

    A row without a link has score 0 for each column.

    :param factors: the rank, less than M and N.
    :param seed: of the start of the iteration.
    :param dtype: of the computation and the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.baselines.pure_svd import PureSVD
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
