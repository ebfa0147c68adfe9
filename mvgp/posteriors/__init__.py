"""Posteriors: objects that answer questions about every cell of the matrix."""

from .acquisition import TestPlan
from .all_cells import VarianceEstimate
from .covariance import PosteriorCovarianceLinearOperator
from .factor import FactorPosterior
from .full import FullPosterior
from .gaussian import GaussianPosterior
from .joint import Joint
from .scalable import ScalablePosterior
from .top_table import TopTable
from .trace import TracePosterior

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
