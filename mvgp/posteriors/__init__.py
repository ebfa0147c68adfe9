"""Posteriors: objects that answer questions about every cell of the matrix."""

from .covariance import PosteriorCovarianceLinearOperator
from .factor import FactorPosterior
from .full import FullPosterior
from .gaussian import GaussianPosterior
from .top_table import TopTable
from .trace import TracePosterior

__all__ = [
    "FactorPosterior",
    "FullPosterior",
    "GaussianPosterior",
    "PosteriorCovarianceLinearOperator",
    "TopTable",
    "TracePosterior",
]
