"""Priors over matrices: a Kronecker covariance and a mean."""

from .matrix_gp import MatrixGP
from .means import ConstantMean, MatrixMean, RowBiasMean, ZeroMean

__all__ = ["ConstantMean", "MatrixGP", "MatrixMean", "RowBiasMean", "ZeroMean"]
