"""FactorRanker: scores that are inner products of a vector for the row and one for the column."""

from __future__ import annotations

import numpy as np
import torch

from .ranker import BlockRanker


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
