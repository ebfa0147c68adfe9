"""Kernels of ours, and stock ones, keep the kernel's contract."""

import unittest

import gpytorch
import numpy as np
import torch
from scipy import sparse

from mvgp.kernels import (
    DiffusionKernel,
    FeatureKernel,
    GraphMaternKernel,
    PrecomputedKernel,
    RegularizedLaplacianKernel,
)
from mvgp.testing import GraphKernelContract, KernelContract


class TestDiffusion(GraphKernelContract):
    def make_graph_kernel(self, graph, **options):
        return DiffusionKernel(graph, time=0.7, shift=0.3, **options)


class TestDiffusionWithoutShift(GraphKernelContract, unittest.TestCase):
    def make_graph_kernel(self, graph, **options):
        return DiffusionKernel(graph, time=1.3, shift=0.0, **options)


class TestRegularizedLaplacian(GraphKernelContract):
    def make_graph_kernel(self, graph, **options):
        return RegularizedLaplacianKernel(graph, scale=2.0, shift=0.1, **options)


class TestGraphMatern(GraphKernelContract):
    def make_graph_kernel(self, graph, **options):
        return GraphMaternKernel(graph, nu=1.5, reach=2.0, shift=0.2, **options)


class TestChebyshev(GraphKernelContract):
    """Everything again through the polynomial."""

    def make_graph_kernel(self, graph, **options):
        return DiffusionKernel(graph, time=0.7, shift=0.3, **{"method": "chebyshev"} | options)


class TestPrecomputed(KernelContract):
    def make_kernel(self):
        root = torch.arange(12, dtype=torch.float64).reshape(4, 3).cos()
        return PrecomputedKernel(root @ root.T)


class TestFeatures(KernelContract):
    def make_kernel(self):
        return FeatureKernel(torch.arange(12, dtype=torch.float64).reshape(4, 3).cos(), variance=0.6)


class TestSparseFeatures(KernelContract):
    def make_kernel(self):
        return FeatureKernel(sparse.csr_array(np.array([[1.0, 0, 0], [0, 2, 0], [1, 1, 0], [0, 0, 3]])), variance=0.6)


class TestSum(KernelContract):
    """Inside gpytorch's sums and scales."""

    def make_kernel(self):
        graph = GraphKernelContract().make_graph()
        ones = FeatureKernel(torch.ones(8))
        return gpytorch.kernels.ScaleKernel(DiffusionKernel(graph, shift=0.3)).double() + ones


class TestStock(KernelContract):
    def make_kernel(self):
        return gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=2)).double()

    def make_inputs(self):
        return torch.arange(10, dtype=torch.float64).reshape(5, 2).sin()
