"""Posteriors: objects that answer questions about every cell of the matrix."""

from .all_cells import VarianceEstimate
from .factor import FactorPosterior
from .gaussian import FullPosterior, GaussianPosterior, TracePosterior
from .ranks import Joint

__all__ = ["FactorPosterior", "FullPosterior", "GaussianPosterior", "Joint", "TracePosterior", "VarianceEstimate"]
