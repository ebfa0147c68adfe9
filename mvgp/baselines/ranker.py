"""BlockRanker: scores of whole rows, computed a block of rows at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import check_index
from .checks import DTYPES

BLOCK = 256  # rows computed at a time


class BlockRanker(ABC):
    """A fitted baseline: a :class:`~mvgp.metrics.Ranker` that computes the rows asked for, when they are asked for.

    :param shape: (M, N).
    :param dtype: of the scores.
    """

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype) -> None:
        self._shape, self.dtype = shape, dtype

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self._shape

    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): the scores of whole rows, all of them when ``rows`` (R,) is left out."""
        wanted = np.arange(self.shape[0]) if rows is None else check_index(rows, self.shape[0], "rows").cpu().numpy()
        found = np.empty((len(wanted), self.shape[1]), dtype=DTYPES[self.dtype])
        for start in range(0, len(wanted), BLOCK):
            found[start : start + BLOCK] = self._block(wanted[start : start + BLOCK])
        return torch.from_numpy(found)

    @abstractmethod
    def _block(self, rows: np.ndarray) -> np.ndarray:
        """(R, N) of at most :data:`BLOCK` rows (R,)."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]} x {self.shape[1]})"
