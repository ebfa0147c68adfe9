"""Ranking likelihoods: exact projections onto ordered scores, and the likelihoods that retarget by them."""

from .bipartite import BipartiteRankingLikelihood
from .distribution import RankedLabels, RankedLevels
from .graded import GradedRankingLikelihood
from .lists import RankingLists
from .order import LevelProjection, OrderProjection
from .projections import project_levels, project_order, project_ordered_simplex
from .ranking_likelihood import RankingLikelihood
from .simplex import SimplexProjection
from .targets import GradedOrder, OrderCone, OrderedSimplex, TargetSet

__all__ = [
    "BipartiteRankingLikelihood",
    "GradedOrder",
    "GradedRankingLikelihood",
    "LevelProjection",
    "OrderCone",
    "OrderProjection",
    "OrderedSimplex",
    "RankedLabels",
    "RankedLevels",
    "RankingLikelihood",
    "RankingLists",
    "SimplexProjection",
    "TargetSet",
    "project_levels",
    "project_order",
    "project_ordered_simplex",
]
