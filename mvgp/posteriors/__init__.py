"""Posteriors: objects that answer questions about every cell of the matrix."""

from .all_cells import VarianceEstimate
from .factor import FactorPosterior
from .gaussian import FullPosterior, GaussianPosterior, TracePosterior
from .joint import Joint
from .tables import RowSamples
from .trace_sum import TraceSumPosterior, TraceTerm
from .updates import Fantasies

__all__ = [
    "FactorPosterior",
    "Fantasies",
    "FullPosterior",
    "GaussianPosterior",
    "Joint",
    "RowSamples",
    "TracePosterior",
    "TraceSumPosterior",
    "TraceTerm",
    "VarianceEstimate",
]
