"""Where scores come from: a matrix that is already there, or a posterior asked for a few rows at a time."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ..checks import as_tensor
from ..errors import InputError


@runtime_checkable
class Ranker(Protocol):
    """What the metrics need of a posterior, or of anything else that scores items."""

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        ...

    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): the scores of whole rows."""
        ...


class ScoreSource:
    """Rows of scores, a chunk at a time, as an array that may be written to.

    :param given: (M, N) tensor or array, or a :class:`Ranker`.
    """

    def __init__(self, given: Any) -> None:
        self._ranker: Ranker | None = None
        self._dense = torch.empty(0, 0)
        if isinstance(given, Ranker) and not isinstance(given, type):
            self._ranker = given
            self.shape = (int(given.shape[0]), int(given.shape[1]))
            return
        self._dense = as_tensor(given, "scores")
        if self._dense.dim() != 2 or self._dense.dtype == torch.bool or 0 in self._dense.shape:
            raise InputError(
                "scores: expected real numbers of shape (M, N), or a posterior with scores(rows), "
                f"got {self._dense.dtype} of shape {tuple(self._dense.shape)}"
            )
        self.shape = (int(self._dense.shape[0]), int(self._dense.shape[1]))

    def block(self, rows: Tensor) -> np.ndarray:
        """(R, N): a copy of the scores of ``rows`` (R,), all finite."""
        found = self._dense[rows.to(self._dense.device)] if self._ranker is None else self._ranker.scores(rows)
        if found.shape != (len(rows), self.shape[1]):
            raise InputError(f"scores(rows): expected {(len(rows), self.shape[1])}, got {tuple(found.shape)}")
        if found.dtype not in (torch.float32, torch.float64):  # whole numbers and half precision fit into these
            found = found.to(torch.float32 if found.is_floating_point() else torch.float64)
        scores = found.detach().cpu().numpy()
        scores = scores if self._ranker is None else scores.copy()  # a ranker may hand out what it keeps
        bad = ~np.isfinite(scores)
        if bad.any():
            row, col = (int(place[0]) for place in bad.nonzero())
            raise InputError(
                f"scores[{int(rows[row])}, {col}]: expected a finite number, got {scores[row, col]} "
                "(to leave an item out of the candidates, use exclude=)"
            )
        return scores
