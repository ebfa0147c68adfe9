"""Priors over matrices: a Kronecker covariance and a mean."""

from .matrix_gp import MatrixGP
from .means import BiasedMean, ConstantMean, GivenMean, InputMean, MatrixMean, PopularityMean, RowBiasMean, ZeroMean
from .product_graph import ProductGraphGP
from .sums import SumGP, SumMean

__all__ = [
    "BiasedMean",
    "ConstantMean",
    "GivenMean",
    "InputMean",
    "MatrixGP",
    "MatrixMean",
    "PopularityMean",
    "ProductGraphGP",
    "RowBiasMean",
    "SumGP",
    "SumMean",
    "ZeroMean",
]
