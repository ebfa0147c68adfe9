"""KernelContract, GraphKernelContract: what mvgp relies on in a kernel."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator, to_linear_operator
from torch import Tensor

from ..kernels.feature import PrecomputedKernel
from ..kernels.graph import Graph, GraphKernel
from ..priors.matrix_gp import MatrixGP
from .contract import Contract, rounding, slopes


def _operator(kernel: Kernel, *inputs: Tensor) -> LinearOperator:
    return to_linear_operator(kernel(*inputs).evaluate_kernel())


def _dense(kernel: Kernel, *inputs: Tensor) -> Tensor:
    actual: Tensor = _operator(kernel, *inputs).to_dense().detach()
    return actual


class KernelContract(Contract):
    """Rules of a gpytorch kernel that is to be one side of a :class:`~mvgp.MatrixGP`.

    Override :meth:`make_kernel`, in double precision, and :meth:`make_inputs` unless the kernel is one on nodes
    (it has ``num_nodes``).

    Example:
        >>> import torch
        >>> from mvgp.kernels import FeatureKernel
        >>> from mvgp.testing import KernelContract, run_contract
        >>> class FeatureContract(KernelContract):
        ...     def make_kernel(self):
        ...         return FeatureKernel(torch.tensor([[1.0, 0.0], [1.0, 2.0], [0.0, 1.0]]))
        >>> run_contract(FeatureContract).holds
        True

    """

    def make_kernel(self) -> Kernel:
        """The kernel, in double precision, without batch dimensions."""
        raise NotImplementedError("override make_kernel")

    def make_inputs(self) -> Tensor:
        """(n, d), n at least 3; all nodes of a kernel on nodes."""
        kernel = self.make_kernel()
        nodes = [int(part.num_nodes) for part in (kernel, *kernel.sub_kernels()) if hasattr(part, "num_nodes")]
        if not nodes:
            raise NotImplementedError("override make_inputs: the kernel has no num_nodes")
        return torch.arange(nodes[0]).unsqueeze(1)

    def _matrix(self) -> tuple[Kernel, Tensor, Tensor]:
        """The kernel, its inputs, and their matrix (n, n)."""
        kernel, inputs = self.make_kernel(), self.make_inputs()
        return kernel, inputs, _dense(kernel, inputs)

    def test_the_matrix_is_a_covariance(self) -> None:
        """(n, n), finite, symmetric, positive semi-definite."""
        _, inputs, matrix = self._matrix()
        size = len(inputs)
        self.require(matrix.shape == (size, size), f"the matrix of n inputs is (n, n), got {tuple(matrix.shape)}")
        self.require(torch.isfinite(matrix).all(), "the matrix is finite")
        self.require_close(matrix, matrix.mT, "the matrix is symmetric", relative=1e-10)
        lowest, highest = torch.linalg.eigvalsh((matrix + matrix.mT) / 2)[[0, -1]].tolist()
        rule = f"the matrix is positive semi-definite, got an eigenvalue {lowest:.3g}"
        self.require(lowest >= -1e-10 * highest, rule)

    def test_it_is_lazy_in_the_right_way(self) -> None:
        """Products with the operator are products with the dense matrix."""
        operator = _operator(self.make_kernel(), self.make_inputs()).detach()
        dense = operator.to_dense()
        right = torch.randn(len(dense), 3, generator=torch.Generator().manual_seed(0), dtype=dense.dtype)
        self.require_close(
            operator @ right, dense @ right, "K @ x is the dense product", relative=rounding(dense.dtype)
        )

    def test_the_diagonal_is_that_of_the_matrix(self) -> None:
        """kernel(x, diag=True), and the operator's own diagonal."""
        kernel, inputs, matrix = self._matrix()
        alone, actual = kernel(inputs, diag=True).detach(), _operator(kernel, inputs).diagonal().detach()
        self.require_close(alone, matrix.diagonal(), "kernel(x, diag=True) is the diagonal of kernel(x)")
        self.require_close(actual, matrix.diagonal(), "the operator's diagonal is the diagonal of the matrix")

    def test_some_inputs_give_a_part_of_the_matrix(self) -> None:
        """In any order, and between two sets of inputs."""
        kernel, inputs, matrix = self._matrix()
        last = len(inputs) - 1
        i, j = torch.tensor([last, 0]), torch.tensor([1, last, 1])
        actual = _dense(kernel, inputs[i], inputs[j])
        self.require_close(actual, matrix[i][:, j], "kernel(x[i], x[j]) is a block of kernel(x)")
        self.require_close(_dense(kernel, inputs[i]), matrix[i][:, i], "kernel(x[i]) is a block of kernel(x)")
        i = j.flip(0)
        actual = kernel(inputs[j], inputs[i], diag=True).detach()
        self.require_close(actual, matrix[j, i], "kernel(x[i], x[j], diag=True) are entries of kernel(x)")

    def test_gradients_of_the_parameters(self) -> None:
        """Of a weighted sum of the matrix, by differences, for each raw parameter that is learned."""
        kernel, inputs, matrix = self._matrix()
        weights = torch.randn(matrix.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        for name, parameter in kernel.named_parameters():
            if not parameter.requires_grad:
                continue
            (actual,) = torch.autograd.grad((weights * _operator(kernel, inputs).to_dense()).sum(), parameter)
            start = parameter.detach().clone()

            def total(raw: Tensor, parameter: Tensor = parameter) -> Tensor:
                parameter.data.copy_(raw)
                return (weights * _dense(kernel, inputs)).sum()

            expected = slopes(total, start, step=1e-5)
            parameter.data.copy_(start)
            self.require_close(actual, expected, f"the gradient of {name} is its slope", relative=1e-5, absolute=1e-6)

    def test_a_copy_is_apart(self) -> None:
        """A posterior keeps a deep copy of the prior: later changes of the kernel must not reach it."""
        kernel, inputs, before = self._matrix()
        twin = copy.deepcopy(kernel)
        for parameter in kernel.parameters():
            parameter.data.add_(0.5)
        rule = "a deep copy keeps its matrix when the original changes"
        self.require_close(_dense(twin, inputs), before, rule, relative=1e-12)

    def test_its_state_can_be_carried_over(self) -> None:
        """state_dict holds all that is learned."""
        kernel, other, inputs = self.make_kernel(), self.make_kernel(), self.make_inputs()
        for parameter in kernel.parameters():
            parameter.data.add_(0.25)
        other.load_state_dict(kernel.state_dict())
        actual, expected = _dense(other, inputs), _dense(kernel, inputs)
        self.require_close(actual, expected, "a kernel with the same state_dict has the same matrix", relative=1e-12)

    def test_it_goes_to_single_precision(self) -> None:
        """kernel.to(torch.float32) computes in it."""
        kernel, inputs, expected = self._matrix()
        self.require(expected.dtype == torch.float64, f"the matrix is in double precision, got {expected.dtype}")
        points = inputs.float() if inputs.is_floating_point() else inputs
        actual = _dense(kernel.to(torch.float32), points)
        self.require(actual.dtype == torch.float32, f"after .to(torch.float32) the matrix is too, got {actual.dtype}")
        self.require_close(actual.double(), expected, "single precision is about the same matrix", relative=1e-4)

    def test_it_is_a_side_of_a_prior(self) -> None:
        """MatrixGP takes it for rows and for columns."""
        other = PrecomputedKernel(torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64))
        _, inputs, matrix = self._matrix()
        rows = MatrixGP(self.make_kernel(), other, row_inputs=inputs).covariance().to_dense().detach()
        cols = MatrixGP(other, self.make_kernel(), col_inputs=inputs).covariance().to_dense().detach()
        self.require_close(rows, torch.kron(matrix, other.matrix), "as row kernel it gives K x K_N")
        self.require_close(cols, torch.kron(other.matrix, matrix), "as column kernel it gives K_M x K")


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
        """The kernel on any graph; ``options`` (``method``, ``tolerance``, ``dtype``) are to be handed on."""
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
        kernel, points = self.make_kernel(), torch.linspace(0, 2, 41, dtype=torch.float64)
        actual = kernel.spectrum(points).detach()
        self.require(actual.shape == points.shape, f"spectrum of (n,) is (n,), got {tuple(actual.shape)}")
        right = torch.isfinite(actual).all() and (actual + kernel.shift.detach() >= 0).all()
        self.require(right, "f + shift is finite and not negative on [0, 2], where the eigenvalues of L are")
        alone = torch.stack([kernel.spectrum(point.reshape(1)).detach()[0] for point in points])
        self.require_close(alone, actual, "f(x) depends on x only", relative=1e-12)

    def test_it_is_this_function_of_the_laplacian(self) -> None:
        """From eigenpairs of the dense Laplacian."""
        kernel = self.make_kernel()
        values, vectors = (torch.from_numpy(part) for part in np.linalg.eigh(kernel.graph.laplacian().toarray()))
        spectrum = (kernel.spectrum(values.clamp(0, 2)) + kernel.shift).detach()
        actual = _dense(kernel, self.make_inputs())
        self.require_close(actual, (vectors * spectrum) @ vectors.mT, "K = f(L) + shift I", relative=1e-9)

    def test_the_polynomial_agrees_with_the_eigenpairs(self) -> None:
        """method="chebyshev", which large graphs use, against method="eigen"."""
        inputs, actual = self.make_inputs(), {}
        for method in ("eigen", "chebyshev"):
            kernel = self.make_graph_kernel(self.make_graph(), method=method)
            self.require(kernel.method == method, "make_graph_kernel hands its options on to GraphKernel")
            actual[method] = _dense(kernel, inputs)
        self.require_close(actual["chebyshev"], actual["eigen"], "polynomial and eigenpairs agree", relative=1e-8)

    def test_names_of_nodes_do_not_matter(self) -> None:
        """Nodes in another order: the matrix in that order."""
        graph = self.make_graph()
        order = np.roll(np.arange(graph.num_nodes), 3)
        other = Graph.from_adjacency(graph.adjacency()[order][:, order])
        inputs = torch.arange(graph.num_nodes).unsqueeze(1)
        before, after = (_dense(self.make_graph_kernel(part), inputs) for part in (graph, other))
        self.require_close(after, before[order][:, order], "another order of nodes, another order of K", relative=1e-9)
