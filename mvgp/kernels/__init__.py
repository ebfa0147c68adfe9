"""Kernels on the rows and columns of a matrix: functions of a graph's Laplacian, features, given matrices.

Any gpytorch kernel works beside them, and they work inside gpytorch's sums, products and ScaleKernel.
"""

from .feature import ConstantKernel, FeatureKernel, PrecomputedKernel
from .graph import DiffusionKernel, Graph, GraphKernel, GraphMaternKernel, RegularizedLaplacianKernel

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
