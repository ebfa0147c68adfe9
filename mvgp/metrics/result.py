"""RankingScores: the metrics of every task, and their averages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..checks import check_list, check_text, check_whole_number
from ..errors import InputError

CURVES = {"precision": "P", "recall": "R", "average_precision": "MAP", "ndcg": "nDCG"}  # attribute: short name
_ATTRIBUTE = {short.lower(): name for name, short in CURVES.items()} | {"ap": "average_precision"}


@dataclass(frozen=True, eq=False, repr=False)
class RankingScores:
    """Metrics of R tasks, as :func:`~mvgp.metrics.ranking_scores` defines them. NaN: not defined for the task.

    :param tasks: (R,) row of each task.
    :param num_positives: (R,) held-out positives, G.
    :param num_candidates: (R,) length of the ranked list.
    :param auc: (R,).
    :param precision: (R, k); column l - 1 is P@l.
    :param recall: (R, k).
    :param average_precision: (R, k).
    :param ndcg: (R, k).

    Example:
        >>> import mvgp.metrics, torch
        >>> scores = torch.tensor([[0.9, 0.1, 0.5, 0.3], [0.2, 0.2, 0.2, 0.8]])
        >>> print(mvgp.metrics.ranking_scores(scores, ([0, 0, 1], [0, 3, 0]), k=2))
        2 tasks with 3 held-out positives
        AUC  0.542
                  @1     @2
        P      0.500  0.333
        R      0.500  0.417
        MAP    0.500  0.333
        nDCG   0.500  0.412

    """

    tasks: Tensor
    num_positives: Tensor
    num_candidates: Tensor
    auc: Tensor
    precision: Tensor
    recall: Tensor
    average_precision: Tensor
    ndcg: Tensor

    @property
    def k(self) -> int:
        """Length of the curves."""
        return int(self.precision.shape[1])

    @property
    def num_ranked(self) -> int:
        """Tasks with a held-out positive: those that the averages are about."""
        return int((self.num_positives > 0).sum())

    def per_task(self, metric: str) -> Tensor:
        """(R,): one metric of every task.

        :param metric: ``AUC``, or ``P@10``, ``R@10``, ``AP@10`` (the same as ``MAP@10``), ``nDCG@10``, or any other k.
        """
        if check_text(metric, "metric").lower() == "auc":
            return self.auc
        match = re.fullmatch(r"(p|r|ap|map|ndcg)@(\d+)", metric.lower())
        if match is None:
            raise InputError(
                f"metric: expected 'AUC', or P, R, AP, MAP or nDCG with a place, as 'P@10', got {metric!r}"
            )
        place = int(match[2])
        if not 1 <= place <= self.k:
            raise InputError(f"metric: expected k from 1 to {self.k}, the length of the curves, got {metric!r}")
        found: Tensor = getattr(self, _ATTRIBUTE[match[1]])[:, place - 1]
        return found

    def curves(self) -> dict[str, Tensor]:
        """(k,) each: the averages over tasks of P, R, MAP and nDCG, for 1..k."""
        return {short: torch.nanmean(getattr(self, name), dim=0) for name, short in CURVES.items()}

    def summary(self, at: Sequence[int] | None = None) -> dict[str, float]:
        """Averages over tasks: ``AUC``, and ``P@k``, ``R@k``, ``MAP@k``, ``nDCG@k`` for each k of ``at``.

        :param at: by default 10 and the length of the curves.
        """
        places = sorted({min(10, self.k), self.k}) if at is None else self._places(at)
        names = ["AUC", *(f"{short}@{place}" for place in places for short in CURVES.values())]
        return {name: float(torch.nanmean(self.per_task(name))) for name in names}

    def _places(self, at: Any) -> list[int]:
        return [check_whole_number(place, "at", 1, self.k) for place in check_list(at, "at", "places of the curves")]

    def __str__(self) -> str:
        places = [place for place in (1, 10, 100) if place < self.k] + [self.k]
        means = self.summary(places)
        lines = [
            f"{self.num_ranked} tasks with {int(self.num_positives.sum())} held-out positives",
            f"AUC  {means['AUC']:.3f}",
            " " * 5 + "".join(f"{f'@{place}':>7}" for place in places),
        ]
        for short in CURVES.values():
            lines.append(f"{short:<5}" + "".join(f"{means[f'{short}@{place}']:7.3f}" for place in places))
        return "\n".join(lines)

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {value:.3f}" for name, value in self.summary([self.k]).items())
        return f"RankingScores({self.num_ranked} tasks, {means})"
