"""Ranking likelihoods: exact projections onto ordered scores, and the likelihoods that retarget by them."""

from .distribution import RankedLabels, RankedLevels
from .lists import RankingLists
from .losses import BiasedSquaredLoss, Loss, LossValue, RetargetedLoss, SquaredLoss
from .pointwise import LogisticLikelihood, LogPoissonLikelihood, PointwiseLoss
from .projections import (
    LevelProjection,
    OrderProjection,
    SimplexProjection,
    project_levels,
    project_order,
    project_ordered_simplex,
)
from .ranking import BipartiteRankingLikelihood, GradedRankingLikelihood, RankingLikelihood
from .targets import GradedOrder, OrderCone, OrderedSimplex, TargetSet

__all__ = [
    "BiasedSquaredLoss",
    "BipartiteRankingLikelihood",
    "GradedOrder",
    "GradedRankingLikelihood",
    "LevelProjection",
    "LogPoissonLikelihood",
    "LogisticLikelihood",
    "Loss",
    "LossValue",
    "OrderCone",
    "OrderProjection",
    "OrderedSimplex",
    "PointwiseLoss",
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
