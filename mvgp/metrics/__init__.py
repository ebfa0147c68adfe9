"""Metrics: how well scores put the held-out positives of each task (row) ahead of its other items (columns)."""

from .calibration import adversarial_calibration, calibration_error, coverage, group_calibration
from .comparison import compare
from .ecdf_band import uniformity
from .ranking import Ranker, RankingScores, auc, average_precision_at, ndcg_at, precision_at, ranking_scores, recall_at

__all__ = [
    "Ranker",
    "RankingScores",
    "adversarial_calibration",
    "auc",
    "average_precision_at",
    "calibration_error",
    "compare",
    "coverage",
    "group_calibration",
    "ndcg_at",
    "precision_at",
    "ranking_scores",
    "recall_at",
    "uniformity",
]
