"""AveragedRanker: the average scores of several posteriors, or of any other rankers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..checks import check_instance, check_list
from ..errors import InputError
from ..metrics import Ranker


class AveragedRanker:
    """Scores averaged over posteriors, one for each set of negatives; all that metrics need.

    :param posteriors: of the same shape (M, N), at least one.

    Example:
        >>> import mvgp
        >>> from mvgp.baselines import EASE, Popularity
        >>> from mvgp.selection import AveragedRanker
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1], [0, 1, 1], shape=(2, 3))
        >>> AveragedRanker([Popularity().fit(links), EASE(1.0).fit(links)]).scores([1]).shape
        torch.Size([1, 3])

    """

    def __init__(self, posteriors: Sequence[Ranker]) -> None:
        self.posteriors = tuple(check_list(posteriors, "posteriors", "a list of rankers"))
        for at, posterior in enumerate(self.posteriors):
            check_instance(posterior, f"posteriors[{at}]", Ranker, "a ranker with shape and scores")
        shapes = {posterior.shape for posterior in self.posteriors}
        if len(shapes) != 1:
            raise InputError(f"posteriors: expected at least one, all of the same shape, got {sorted(shapes)}")

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.posteriors[0].shape

    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): average scores of whole rows, all of them when ``rows`` (R,) is left out."""
        return torch.stack([posterior.scores(rows) for posterior in self.posteriors]).mean(0)

    def __repr__(self) -> str:
        return f"AveragedRanker({self.shape[0]} x {self.shape[1]}, {len(self.posteriors)} posteriors)"
