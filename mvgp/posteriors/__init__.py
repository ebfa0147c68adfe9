"""Posteriors: objects that answer questions about every cell of the matrix."""

from .all_cells import VarianceEstimate
from .factor import FactorPosterior
from .gaussian import FullPosterior, GaussianPosterior, TracePosterior
from .ranks import Joint
from .trace_sum import TraceSumPosterior, TraceTerm

__all__ = [
    "FactorPosterior",
    "FullPosterior",
    "GaussianPosterior",
    "Joint",
    "TracePosterior",
    "TraceSumPosterior",
    "TraceTerm",
    "VarianceEstimate",
]
