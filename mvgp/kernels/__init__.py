"""Kernels on the rows and columns of a matrix: functions of a graph's Laplacian, features, given matrices.

Any gpytorch kernel works beside them, and they work inside gpytorch's sums, products and ScaleKernel.
"""

from .constant import ConstantKernel
from .feature import FeatureKernel
from .graph import Graph
from .graph_kernels import DiffusionKernel, GraphKernel, GraphMaternKernel, RegularizedLaplacianKernel
from .precomputed import PrecomputedKernel

__all__ = [
    "ConstantKernel",
    "DiffusionKernel",
    "FeatureKernel",
    "Graph",
    "GraphKernel",
    "GraphMaternKernel",
    "PrecomputedKernel",
    "RegularizedLaplacianKernel",
]
