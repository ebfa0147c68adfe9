"""Models: recipes that turn a prior and a likelihood into a posterior."""

from .factor_gp import FactorGP
from .full_gp import FullGP
from .pairwise_svm import PairRanker, PairwiseSVM
from .trace_gp import PathPoint, TraceGP

__all__ = ["FactorGP", "FullGP", "PairRanker", "PairwiseSVM", "PathPoint", "TraceGP"]
