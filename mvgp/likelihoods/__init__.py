"""Ranking likelihoods: exact projections onto ordered scores, and the likelihoods that retarget by them."""

from .distribution import RankedLabels, RankedLevels
from .lists import RankingLists
from .losses import BiasedSquaredLoss, Loss, LossValue, RetargetedLoss, SquaredLoss
from .projections import (
    GradedOrder,
    LevelProjection,
    OrderCone,
    OrderedSimplex,
    OrderProjection,
    SimplexProjection,
    TargetSet,
    project_levels,
    project_order,
    project_ordered_simplex,
)
from .ranking import BipartiteRankingLikelihood, GradedRankingLikelihood, RankingLikelihood

__all__ = [
    "BiasedSquaredLoss",
    "BipartiteRankingLikelihood",
    "GradedOrder",
    "GradedRankingLikelihood",
    "LevelProjection",
    "Loss",
    "LossValue",
    "OrderCone",
    "OrderProjection",
    "OrderedSimplex",
    "RankedLabels",
    "RankedLevels",
    "RankingLikelihood",
    "RankingLists",
    "RetargetedLoss",
    "SimplexProjection",
    "SquaredLoss",
    "TargetSet",
    "project_levels",
    "project_order",
    "project_ordered_simplex",
]
