"""Metrics: how well scores put the held-out positives of each task (row) ahead of its other items (columns)."""

from .comparison import PairedComparison, compare
from .ranking import ranking_scores
from .result import RankingScores
from .single import auc, average_precision_at, ndcg_at, precision_at, recall_at
from .sources import Ranker

__all__ = [
    "PairedComparison",
    "Ranker",
    "RankingScores",
    "auc",
    "average_precision_at",
    "compare",
    "ndcg_at",
    "precision_at",
    "ranking_scores",
    "recall_at",
]
