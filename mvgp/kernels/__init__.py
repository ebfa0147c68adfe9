"""Kernels on the rows and columns of a matrix: functions of a graph's Laplacian, features, given matrices.

Any gpytorch kernel works beside them, and they work inside gpytorch's sums, products and ScaleKernel.
"""

from .diffusion import DiffusionKernel
from .feature import FeatureKernel
from .graph import Graph
from .graph_kernel import GraphKernel
from .matern import GraphMaternKernel
from .precomputed import PrecomputedKernel
from .regularized import RegularizedLaplacianKernel

__all__ = [
    "DiffusionKernel",
    "FeatureKernel",
    "Graph",
    "GraphKernel",
    "GraphMaternKernel",
    "PrecomputedKernel",
    "RegularizedLaplacianKernel",
]
