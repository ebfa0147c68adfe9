"""Posteriors: objects that answer questions about every cell of the matrix."""

from .covariance import PosteriorCovarianceLinearOperator
from .gaussian import GaussianPosterior

__all__ = ["GaussianPosterior", "PosteriorCovarianceLinearOperator"]
