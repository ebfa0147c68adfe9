"""Posteriors: objects that answer questions about every cell of the matrix."""

from .all_cells import VarianceEstimate
from .covariance import PosteriorCovarianceLinearOperator
from .factor import FactorPosterior
from .fitted import FullPosterior, ScalablePosterior, TracePosterior
from .gaussian import GaussianPosterior
from .joint import Joint
from .tables import TestPlan, TopTable

__all__ = [
    "FactorPosterior",
    "FullPosterior",
    "GaussianPosterior",
    "Joint",
    "PosteriorCovarianceLinearOperator",
    "ScalablePosterior",
    "TestPlan",
    "TopTable",
    "TracePosterior",
    "VarianceEstimate",
]
