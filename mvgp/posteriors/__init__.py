"""Posteriors: objects that answer questions about every cell of the matrix."""

from .all_cells import VarianceEstimate
from .factor import FactorPosterior
from .fitted import FullPosterior, TracePosterior
from .gaussian import GaussianPosterior
from .joint import Joint

__all__ = [
    "FactorPosterior",
    "FullPosterior",
    "GaussianPosterior",
    "Joint",
    "TracePosterior",
    "VarianceEstimate",
]
