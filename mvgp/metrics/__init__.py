"""Metrics: how well scores put the held-out positives of each task (row) ahead of its other items (columns)."""

from .calibration import CoverageCurve, coverage
from .comparison import PairedComparison, compare
from .ranking import Ranker, RankingScores, ranking_scores
from .single import auc, average_precision_at, ndcg_at, precision_at, recall_at

__all__ = [
    "CoverageCurve",
    "PairedComparison",
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
