"""Popularity: the columns with the most links come first, in every row alike."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from ..checks import check_dtype
from ..data import PositiveUnlabelled
from .incidence import incidence
from .ranker import BlockRanker


class PopularityRanker(BlockRanker):
    """The same scores for each row.

    :param counts: (N,) links of each column.
    :param num_rows: M.
    :param dtype: of the scores.
    """

    def __init__(self, counts: np.ndarray, num_rows: int, dtype: torch.dtype) -> None:
        super().__init__((num_rows, len(counts)), dtype)
        self.counts = counts

    def _block(self, rows: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.counts, (len(rows), len(self.counts)))


@dataclass(frozen=True)
class Popularity:
    """Score of a column: its number of links. A row without a link is scored like any other.

    :param dtype: of the scores.

    Example:
        >>> import mvgp
        >>> from mvgp.baselines.popularity import Popularity
        >>> links = mvgp.PositiveUnlabelled([0, 1, 1], [2, 2, 0], shape=(3, 4))
        >>> Popularity().fit(links).scores([0]).tolist()
        [[1.0, 0.0, 2.0, 0.0]]

    """

    dtype: torch.dtype = field(default=torch.float64, repr=False)

    def __post_init__(self) -> None:
        check_dtype(self.dtype)

    def fit(self, links: PositiveUnlabelled) -> PopularityRanker:
        """The ranker given ``links``."""
        counts = np.asarray(incidence(links, self.dtype).sum(axis=0)).ravel()
        return PopularityRanker(counts, links.shape[0], self.dtype)
