"""Contracts as test mix-ins: what mvgp relies on in a ranker, a posterior, a likelihood, a target set and a kernel.

Inherit one, make the object, and a test runner does the rest::

    class TestMyKernel(GraphKernelContract):  # unittest: class TestMyKernel(GraphKernelContract, unittest.TestCase)
        def make_graph_kernel(self, graph, **options):
            return MyKernel(graph, **options)
"""

from .contract import Contract, run_contract
from .kernels import GraphKernelContract, KernelContract
from .likelihoods import LikelihoodContract, TargetSetContract
from .losses import LossContract
from .posteriors import PosteriorContract, RankerContract
from .synthetic import synthetic_matrix

__all__ = [
    "Contract",
    "GraphKernelContract",
    "KernelContract",
    "LikelihoodContract",
    "LossContract",
    "PosteriorContract",
    "RankerContract",
    "TargetSetContract",
    "run_contract",
    "synthetic_matrix",
]
