"""Likelihoods and losses: rankings by exact projections, pointwise likelihoods, noise of rows and columns."""

from .axis_noise import AxisNoiseGaussianLikelihood
from .distribution import RankedLabels, RankedLevels
from .lists import RankingLists
from .losses import BiasedSquaredLoss, ConvexValue, Loss, LossValue, RetargetedLoss, SquaredLoss
from .pointwise import LogisticLikelihood, LogPoissonLikelihood, PointwiseLoss
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
    "AxisNoiseGaussianLikelihood",
    "BiasedSquaredLoss",
    "BipartiteRankingLikelihood",
    "ConvexValue",
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
