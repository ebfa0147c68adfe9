"""Metrics: how well scores put the held-out positives of each task (row) ahead of its other items (columns)."""

from .calibration import coverage
from .comparison import compare
from .ranking import Ranker, RankingScores, auc, average_precision_at, ndcg_at, precision_at, ranking_scores, recall_at

__all__ = [
    "Ranker",
    "RankingScores",
    "auc",
    "average_precision_at",
    "compare",
    "coverage",
    "ndcg_at",
    "precision_at",
    "ranking_scores",
    "recall_at",
]
