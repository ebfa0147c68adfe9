"""Contracts as test mix-ins: what mvgp relies on in a ranker, a posterior, a likelihood, a target set and a kernel.

Inherit one, make the object, and a test runner does the rest::

    class TestMyKernel(GraphKernelContract):  # unittest: class TestMyKernel(GraphKernelContract, unittest.TestCase)
        def make_graph_kernel(self, graph, **options):
            return MyKernel(graph, **options)
"""

from .contract import Contract
from .graph_kernel import GraphKernelContract
from .kernel import KernelContract
from .likelihood import LikelihoodContract
from .posterior import PosteriorContract
from .ranker import RankerContract
from .run import ContractResult, run_contract
from .target_set import TargetSetContract

__all__ = [
    "Contract",
    "ContractResult",
    "GraphKernelContract",
    "KernelContract",
    "LikelihoodContract",
    "PosteriorContract",
    "RankerContract",
    "TargetSetContract",
    "run_contract",
]
