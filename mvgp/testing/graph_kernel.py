"""GraphKernelContract: what mvgp relies on in a kernel that is a function of a graph's Laplacian."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..kernels import Graph, GraphKernel
from .kernel import KernelContract


class GraphKernelContract(KernelContract):
    r"""Rules of a :class:`~mvgp.kernels.GraphKernel`, :math:`K = f(L) + \text{shift}\, I`, beside those of a kernel.

    Override :meth:`make_graph_kernel`.

    Example:
        >>> from mvgp.kernels import DiffusionKernel
        >>> from mvgp.testing import GraphKernelContract, run_contract
        >>> class DiffusionContract(GraphKernelContract):
        ...     def make_graph_kernel(self, graph, **options):
        ...         return DiffusionKernel(graph, time=0.7, shift=0.3, **options)
        >>> run_contract(DiffusionContract).holds
        True

    """

    def make_graph_kernel(self, graph: Graph, **options: Any) -> GraphKernel:
        """The kernel on any graph.

        :param options: to be handed on: ``method``, ``tolerance``, ``dtype``.
        """
        raise NotImplementedError("override make_graph_kernel")

    def make_graph(self) -> Graph:
        """Two components with weights, and a node without links."""
        edges = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3), (4, 5), (5, 6)]
        return Graph(edges, 8, weights=[1.0, 0.5, 2.0, 1.0, 0.3, 1.0, 4.0])

    def make_kernel(self) -> GraphKernel:
        """The kernel on :meth:`make_graph`."""
        return self.make_graph_kernel(self.make_graph())

    def test_the_spectrum_is_a_function(self) -> None:
        """(n,) -> (n,), finite, not negative on [0, 2], and each value on its own."""
        kernel, places = self.make_kernel(), torch.linspace(0, 2, 41, dtype=torch.float64)
        found = kernel.spectrum(places).detach()
        self.require(found.shape == places.shape, f"spectrum of (n,) is (n,), got {tuple(found.shape)}")
        right = torch.isfinite(found).all() and (found + kernel.shift.detach() >= 0).all()
        self.require(right, "f + shift is finite and not negative on [0, 2], where the eigenvalues of L are")
        alone = torch.stack([kernel.spectrum(place.reshape(1)).detach()[0] for place in places])
        self.require_close(alone, found, "f(x) depends on x only", relative=1e-12)

    def test_it_is_this_function_of_the_laplacian(self) -> None:
        """From eigenpairs of the dense Laplacian."""
        kernel = self.make_kernel()
        values, vectors = (torch.from_numpy(part) for part in np.linalg.eigh(kernel.graph.laplacian().toarray()))
        spectrum = (kernel.spectrum(values.clamp(0, 2)) + kernel.shift).detach()
        found = self._dense(kernel, self.make_inputs())
        self.require_close(found, (vectors * spectrum) @ vectors.mT, "K = f(L) + shift I", relative=1e-9)

    def test_the_polynomial_agrees_with_the_eigenpairs(self) -> None:
        """method="chebyshev", which large graphs use, against method="eigen"."""
        inputs, found = self.make_inputs(), {}
        for method in ("eigen", "chebyshev"):
            kernel = self.make_graph_kernel(self.make_graph(), method=method)
            self.require(kernel.method == method, "make_graph_kernel hands its options on to GraphKernel")
            found[method] = self._dense(kernel, inputs)
        self.require_close(found["chebyshev"], found["eigen"], "polynomial and eigenpairs agree", relative=1e-8)

    def test_names_of_nodes_do_not_matter(self) -> None:
        """Nodes in another order: the matrix in that order."""
        graph = self.make_graph()
        order = np.roll(np.arange(graph.num_nodes), 3)
        other = Graph.from_adjacency(graph.adjacency()[order][:, order])
        before, after = (
            self._dense(self.make_graph_kernel(g), torch.arange(g.num_nodes).unsqueeze(1)) for g in (graph, other)
        )
        self.require_close(after, before[order][:, order], "another order of nodes, another order of K", relative=1e-9)
