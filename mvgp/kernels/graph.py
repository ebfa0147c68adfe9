"""Graph: nodes and weighted links, and the kernels that are functions of its normalised Laplacian."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator
from linear_operator.operators import InterpolatedLinearOperator
from scipy import sparse
from torch import Tensor

from ..checks import check_choice, check_device, check_dtype, check_instance, check_tolerance, check_whole_number, shown
from ..errors import InputError, SizeError
from ..linalg import chebyshev
from ..linalg.chebyshev import ChebyshevLinearOperator
from ..linalg.pairs import SymmetricCSR
from ..linalg.spectra import SpectralLinearOperator
from ..tensor_checks import as_reals, as_tensor, check_float_tensor, check_list, check_matrix, check_name, refuse_where
from .bounded import BoundedParameters, both_node_numbers, bounded_parameter, check_options, is_everything

EIGEN_LIMIT = 16384  # nodes up to which dense eigenpairs are computed


class Graph:
    r"""An undirected graph on nodes 0, ..., N - 1. Immutable.

    Links that are listed more than once, in either direction, are merged by adding their weights; links from a node to
    itself are dropped. The normalised Laplacian is :math:`L = I - D^{-1/2} W D^{-1/2}` on nodes that have links, and
    its row and column are 0 for a node without (Chung 1997). Its spectrum lies in [0, 2].

    :param edges: (E, 2) pairs of nodes.
    :param num_nodes: N.
    :param weights: (E,) finite and not negative; 1 when left out. A link of weight 0 is no link.

    Example:
        >>> from mvgp.kernels import Graph
        >>> Graph([(0, 1), (1, 2), (2, 1)], 4)
        Graph(4 nodes, 2 links, 1 isolated)

    """

    def __init__(self, edges: Any, num_nodes: int, weights: Any = None) -> None:
        count = check_whole_number(num_nodes, "num_nodes", maximum=2**31 - 1)
        ends = _edge_array(edges, count)  # (E, 2)
        each = _edge_weights(weights, len(ends))  # (E,)
        directed = sparse.coo_array((each, (ends[:, 0], ends[:, 1])), shape=(count, count)).tocsr()
        directed.setdiag(0)
        with np.errstate(over="ignore"):  # seen below
            adjacency = (directed + directed.T).tocsr()
            adjacency.eliminate_zeros()
            adjacency.sort_indices()
            degree = np.asarray(adjacency.sum(axis=1)).ravel()
        if not np.isfinite(degree).all():
            at = int((~np.isfinite(degree)).argmax())
            raise InputError(f"weights: expected a finite sum over the links of node {at}, got weights that overflow")
        scale = np.zeros_like(degree)
        scale[degree > 0] = 1.0 / np.sqrt(degree[degree > 0])
        # S = L - I has its spectrum in [-1, 1]: minus the normalised weights, and -1 for isolated nodes
        normalised = sparse.diags_array(scale) @ adjacency @ sparse.diags_array(scale)
        shifted = (-normalised - sparse.diags_array((degree == 0).astype(np.float64))).tocsr()
        shifted.eliminate_zeros()
        shifted.sort_indices()
        self._adjacency = adjacency
        self._isolated = int((degree == 0).sum())
        starts, stored = (torch.from_numpy(part.astype(np.int64)) for part in (shifted.indptr, shifted.indices))
        self._shifted = SymmetricCSR(starts, stored, torch.from_numpy(shifted.data.astype(np.float64)))
        self._converted: dict[tuple[torch.dtype, torch.device], SymmetricCSR] = {}
        self._eigen: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}

    @classmethod
    def from_adjacency(cls, adjacency: Any) -> Graph:
        """From a symmetric scipy sparse matrix (or dense array) of weights (N, N)."""
        if not sparse.issparse(adjacency):
            adjacency = check_matrix(adjacency, "adjacency", torch.float64, booleans=True).cpu().numpy()
        if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1] or adjacency.shape[0] == 0:
            raise InputError(f"adjacency: expected a square matrix, got shape {adjacency.shape}")
        weights = sparse.csr_array(adjacency)
        as_reals(weights.data, "adjacency: stored weights", torch.float64, booleans=True)
        weights = weights.astype(np.float64)
        coo = weights.tocoo()
        bad = ~np.isfinite(coo.data) | (coo.data < 0)
        if bad.any():
            at = int(bad.argmax())
            where = f"adjacency[{coo.row[at]}, {coo.col[at]}]"
            raise InputError(f"{where}: expected a finite weight that is not negative, got {coo.data[at]}")
        skew = abs(weights - weights.T).tocoo()
        if skew.nnz and skew.data.max() > 1e-12 * max(abs(coo.data).max(), 1e-300):
            at = int(skew.data.argmax())
            i, j = int(skew.row[at]), int(skew.col[at])
            pair = f"{weights[i, j]} against {weights[j, i]}"
            raise InputError(f"adjacency[{i}, {j}]: expected a symmetric matrix, got {pair}")
        upper = sparse.triu(coo, k=1)
        return cls(np.stack([upper.row, upper.col], axis=1), weights.shape[0], upper.data)

    @classmethod
    def from_networkx(cls, graph: Any, nodes: Any = None, *, weight: str | None = "weight") -> Graph:
        """From an undirected graph of networkx; node n is the n-th of ``graph.nodes``, or of ``nodes``.

        Parallel edges add their weights. As everywhere in mvgp, an edge from a node to itself is none.

        :param graph: of networkx; a directed one is refused, ``graph.to_undirected()`` says what it means without.
        :param nodes: N distinct nodes in the order of the kernel, such as ``data.row_names``: edges to others are left
            out, and what is not in the graph has no edges. All nodes, in the graph's order, when left out.
        :param weight: the attribute of an edge with its weight, 1 where an edge has none; None for 1 everywhere.
        """
        if not all(hasattr(graph, part) for part in ("nodes", "edges", "is_directed")):
            raise InputError(f"graph: expected a graph of networkx, got {shown(graph)}")
        if graph.is_directed():
            raise InputError("graph: expected an undirected graph, got a directed one; see graph.to_undirected()")
        order = list(graph.nodes) if nodes is None else check_list(nodes, "nodes", "nodes")
        for at, node in enumerate(order):
            check_name(node, f"nodes[{at}]")  # what is missing is no node, nor is what cannot be a key
        number_of = {node: number for number, node in enumerate(order)}
        if len(number_of) < len(order):
            raise InputError("nodes: expected different nodes, got some twice")
        if nodes is not None and not any(node in number_of for node in graph.nodes):
            raise InputError(f"nodes: expected nodes of the graph, got none of them among {len(order)} nodes")
        edges, weights = [], []
        for first, second, value in graph.edges(data="" if weight is None else weight, default=1.0):
            if first in number_of and second in number_of:
                edges.append((number_of[first], number_of[second]))
                weights.append(value)
        return cls(edges, len(order), weights or None)

    @property
    def num_nodes(self) -> int:
        """N"""
        return self._shifted.size

    @property
    def num_links(self) -> int:
        """Number of distinct links between different nodes."""
        return int(self._adjacency.nnz) // 2

    @property
    def num_isolated(self) -> int:
        """Number of nodes without a link."""
        return self._isolated

    def adjacency(self) -> Any:
        """The merged weights, a symmetric scipy CSR array (N, N); a copy."""
        return self._adjacency.copy()

    def laplacian(self) -> Any:
        """L, a symmetric scipy CSR array (N, N); a copy."""
        s = self._shifted
        parts = (s.values.numpy(), s.col.numpy(), s.crow.numpy())
        return (sparse.csr_array(parts, shape=(s.size, s.size)) + sparse.eye_array(s.size)).tocsr()

    def shifted_laplacian(self, dtype: torch.dtype, device: torch.device) -> SymmetricCSR:
        """S = L - I, spectrum in [-1, 1], in the wanted dtype and place; converted once."""
        key = (check_dtype(dtype), check_device(device))
        if key not in self._converted:
            self._converted[key] = self._shifted.to(dtype, device)
        return self._converted[key]

    def eigenpairs(
        self, dtype: torch.dtype, device: torch.device, *, max_nodes: int = EIGEN_LIMIT
    ) -> tuple[Tensor, Tensor]:
        """Eigenvalues (N,) of L in [0, 2] and eigenvectors (N, N); computed once, up to ``max_nodes``."""
        key = (check_dtype(dtype), check_device(device))
        if key not in self._eigen:
            if self.num_nodes > max_nodes:
                raise SizeError(f"eigenpairs of a graph with {self.num_nodes} nodes: the limit is {max_nodes}")
            values, vectors = torch.linalg.eigh(self._shifted.tensor.to_dense())
            pairs = ((values + 1).clamp(0, 2), vectors)
            self._eigen[key] = tuple(part.to(dtype=dtype, device=device) for part in pairs)
        return self._eigen[key]

    def __repr__(self) -> str:
        return f"Graph({self.num_nodes} nodes, {self.num_links} links, {self.num_isolated} isolated)"

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        return self  # immutable

    def __reduce__(self) -> tuple[Any, ...]:
        return Graph.from_adjacency, (self._adjacency,)  # caches are rebuilt when wanted


def _edge_array(edges: Any, count: int) -> np.ndarray:
    """(E, 2) int64 node numbers in [0, count)."""
    ends = as_tensor(edges, "edges", "node numbers")
    if ends.numel() == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if ends.dim() != 2 or ends.shape[1] != 2:
        raise InputError(f"edges: expected pairs of nodes, shape (E, 2), got shape {tuple(ends.shape)}")
    if ends.dtype == torch.bool:
        raise InputError("edges: expected node numbers, got booleans")
    bad = ~((ends >= 0) & (ends < count) & (ends == ends.floor())).all(1)  # (E,); NaN is nowhere
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"edges[{at}]: expected two nodes in [0, {count}), got {tuple(ends[at].tolist())}")
    return ends.long().cpu().numpy()


def _edge_weights(weights: Any, count: int) -> np.ndarray:
    """(E,) finite weights that are not negative."""
    if weights is None:
        return np.ones(count)
    tensor = as_tensor(weights, "weights")
    if tensor.shape != (count,):
        raise InputError(f"weights: expected {count} numbers, one for each of edges, got shape {tuple(tensor.shape)}")
    reals = as_reals(tensor, "weights", torch.float64)
    refuse_where(reals < 0, reals, "weights", "a finite number that is not negative")
    return reals.cpu().numpy()


EIGEN_SIZE = 1500  # nodes up to which eigenpairs are computed once and kept


class GraphKernel(BoundedParameters, Kernel):
    r"""A gpytorch kernel :math:`K = f(L) + \text{shift}\, I` on the nodes of a graph. Inputs are node numbers.

    A subclass gives f on the spectrum [0, 2] of the normalised Laplacian. The kernel over all nodes is an operator:
    eigenpairs for small graphs, a Chebyshev polynomial of the sparse Laplacian for large ones.

    :param graph: the nodes and links.
    :param shift: weight of the identity, at least 0. At 0 it is a constant and not learned, until it is set to another
        value; the same holds for any parameter at an end of its constraint.
    :param method: ``eigen``, ``chebyshev``, or ``auto`` by the size of the graph.
    :param tolerance: relative error of the Chebyshev series; 1e-10 in double precision, 1e-6 in single.
    :param dtype: of the parameters, double by default.

    Example:
        >>> import torch
        >>> from mvgp.kernels import Graph, GraphKernel
        >>> class TwoSteps(GraphKernel):
        ...     def spectrum(self, eigenvalues):
        ...         return (1 - eigenvalues / 2) ** 2
        >>> TwoSteps(Graph([(0, 1)], 2))(torch.arange(2)).to_dense().detach()
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]], dtype=torch.float64)

    """

    def __init__(
        self,
        graph: Graph,
        *,
        shift: float = 0.0,
        shift_constraint: Interval | None = None,
        method: Literal["auto", "eigen", "chebyshev"] = "auto",
        tolerance: float | None = None,
        dtype: torch.dtype = torch.float64,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        check_options(batch_shape, active_dims, shift_constraint=shift_constraint)
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.graph = check_instance(graph, "graph", Graph, "mvgp.kernels.Graph")
        self.method = check_choice(method, "method", ("auto", "eigen", "chebyshev"))
        self.tolerance = None if tolerance is None else check_tolerance(tolerance)
        self._parameter_dtype = check_dtype(dtype)
        self._add_parameter("shift", shift, shift_constraint, may_be_zero=True)

    shift = bounded_parameter("shift", "(...,) weight of the identity.", may_be_zero=True)

    @property
    def num_nodes(self) -> int:
        """Number of nodes: valid inputs are 0, ..., num_nodes - 1."""
        return self.graph.num_nodes

    @abstractmethod
    def spectrum(self, eigenvalues: Tensor) -> Tensor:
        """F at Laplacian eigenvalues (n,) in [0, 2]: (..., n), differentiable in the parameters."""

    def _function(self, eigenvalues: Tensor) -> Tensor:
        return self.spectrum(eigenvalues) + self.shift.unsqueeze(-1)

    @property
    def uses_eigenpairs(self) -> bool:
        """Whether products go through cached eigenpairs."""
        return self.method == "eigen" or (self.method == "auto" and self.num_nodes <= EIGEN_SIZE)

    def operator(self) -> LinearOperator:
        """K over all nodes, (..., N, N), lazy."""
        dtype, device = self.raw_shift.dtype, self.raw_shift.device
        if self.uses_eigenpairs:
            values, vectors = self.graph.eigenpairs(dtype, device)
            return SpectralLinearOperator(self._function(values), vectors)
        finest = 8 * torch.finfo(dtype).eps  # what rounding leaves of any tolerance
        tolerance = max(self.tolerance or (1e-10 if dtype == torch.float64 else 1e-6), finest)
        # the spectrum [0, 2] of L is [-1, 1] for S = L - I; the degree is found in double precision
        count = chebyshev.count_for(lambda x: self._function(x + 1), tolerance)
        values = self._function(chebyshev.nodes(count, dtype, device) + 1)
        return ChebyshevLinearOperator(values, self.graph.shifted_laplacian(dtype, device), tolerance)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor | LinearOperator:
        """The kernel between nodes ``x1`` (..., n, 1) and ``x2`` (..., m, 1)."""
        first, second = both_node_numbers(x1, x2, self.num_nodes, diag, params, "nodes")
        op = self.operator()
        batch = torch.broadcast_shapes(op.batch_shape, first.shape[:-1], second.shape[:-1])
        if diag:
            return _entries(op, first.expand(*batch, -1), second.expand(*batch, -1))
        if is_everything(first, self.num_nodes) and is_everything(second, self.num_nodes):
            return op
        if isinstance(op, SpectralLinearOperator):
            return (op.vectors[first] * op.spectrum.unsqueeze(-2)) @ op.vectors[second].mT
        return InterpolatedLinearOperator(
            op._expand_batch(batch) if batch != op.batch_shape else op,
            first.expand(*batch, -1).unsqueeze(-1),
            None,
            second.expand(*batch, -1).unsqueeze(-1),
            None,
        )


class DiffusionKernel(GraphKernel):
    r"""Heat flow along the links: :math:`K = e^{-\text{time}\, L} + \text{shift}\, I`.

    With time and shift 1 it is the kernel of the paper; its spectrum then lies in [1 + e^-2, 2].

    :param graph: the nodes and links.
    :param time: how far the heat spreads, positive; ``raw_time``.
    :param shift: weight of the identity, at least 0; ``raw_shift``.

    Example:
        >>> import torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> kernel = DiffusionKernel(Graph([(0, 1)], 3), time=1.0, shift=1.0)
        >>> kernel(torch.arange(3)).to_dense().diagonal().detach()
        tensor([1.5677, 1.5677, 2.0000], dtype=torch.float64)

    """

    def __init__(
        self,
        graph: Graph,
        time: float = 1.0,
        shift: float = 1.0,
        time_constraint: Interval | None = None,
        **options: Any,
    ) -> None:
        super().__init__(graph, shift=shift, **options)
        self._add_parameter("time", time, time_constraint)

    time = bounded_parameter("time", "(...,) diffusion time.")

    def spectrum(self, eigenvalues: Tensor) -> Tensor:
        """exp(-time x)"""
        return torch.exp(-self.time.unsqueeze(-1) * check_eigenvalues(eigenvalues))


class GraphMaternKernel(GraphKernel):
    r""":math:`K = \left(I + \frac{\kappa^2}{2 \nu} L\right)^{-\nu} + \text{shift}\, I` (Borovitskiy et al. 2021).

    It is 1 at Laplacian eigenvalue 0; for large smoothness the diffusion kernel with time :math:`\kappa^2 / 2`.

    :param graph: the nodes and links.
    :param nu: smoothness, positive; ``raw_nu``.
    :param reach: :math:`\kappa`, the lengthscale in steps along links, positive; ``raw_reach``.
    :param shift: weight of the identity, at least 0; ``raw_shift``.

    Example:
        >>> import torch
        >>> from mvgp.kernels import Graph, GraphMaternKernel
        >>> kernel = GraphMaternKernel(Graph([(0, 1)], 2), nu=1.0, reach=2.0)  # eigenvalues 1 and 1 / (1 + 2 * 2)
        >>> kernel(torch.arange(2)).to_dense().detach()
        tensor([[0.6000, 0.4000],
                [0.4000, 0.6000]], dtype=torch.float64)

    """

    def __init__(
        self,
        graph: Graph,
        nu: float = 1.5,
        reach: float = 1.0,
        shift: float = 0.0,
        nu_constraint: Interval | None = None,
        reach_constraint: Interval | None = None,
        **options: Any,
    ) -> None:
        super().__init__(graph, shift=shift, **options)
        self._add_parameter("nu", nu, nu_constraint)
        self._add_parameter("reach", reach, reach_constraint)

    nu = bounded_parameter("nu", "(...,) smoothness.")

    reach = bounded_parameter("reach", "(...,) lengthscale along links.")

    def spectrum(self, eigenvalues: Tensor) -> Tensor:
        """(1 + reach^2 x / (2 nu))^-nu"""
        nu, reach = self.nu.unsqueeze(-1), self.reach.unsqueeze(-1)
        return (1 + reach.square() * check_eigenvalues(eigenvalues) / (2 * nu)).pow(-nu)


class RegularizedLaplacianKernel(GraphKernel):
    r""":math:`K = (I + \text{scale}\, L)^{-1} + \text{shift}\, I` (Smola and Kondor 2003).

    :param graph: the nodes and links.
    :param scale: strength of the smoothing, positive; ``raw_scale``.
    :param shift: weight of the identity, at least 0; ``raw_shift``.

    Example:
        >>> import torch
        >>> from mvgp.kernels import Graph, RegularizedLaplacianKernel
        >>> kernel = RegularizedLaplacianKernel(Graph([(0, 1)], 2), scale=2.0)  # eigenvalues 1 and 1 / (1 + 2 * 2)
        >>> kernel(torch.arange(2)).to_dense().detach()
        tensor([[0.6000, 0.4000],
                [0.4000, 0.6000]], dtype=torch.float64)

    """

    def __init__(
        self,
        graph: Graph,
        scale: float = 1.0,
        shift: float = 0.0,
        scale_constraint: Interval | None = None,
        **options: Any,
    ) -> None:
        super().__init__(graph, shift=shift, **options)
        self._add_parameter("scale", scale, scale_constraint)

    scale = bounded_parameter("scale", "(...,) strength of the smoothing.")

    def spectrum(self, eigenvalues: Tensor) -> Tensor:
        """1 / (1 + scale x)"""
        return 1 / (1 + self.scale.unsqueeze(-1) * check_eigenvalues(eigenvalues))


def _entries(op: LinearOperator, first: Tensor, second: Tensor) -> Tensor:
    """(..., n): entries of ``op`` at pairs of nodes, one by one."""
    batch = first.shape[:-1]
    if not op.batch_shape:
        return op._get_indices(first, second)
    op = op._expand_batch(batch) if batch != op.batch_shape else op
    where = torch.meshgrid(*[torch.arange(n, device=first.device) for n in batch], indexing="ij")
    return op._get_indices(first, second, *[w.unsqueeze(-1).expand(first.shape) for w in where])


def check_eigenvalues(eigenvalues: Any) -> Tensor:
    """(n,) eigenvalues of a Laplacian: a tensor of float32 or float64."""
    check_instance(eigenvalues, "eigenvalues", Tensor, "a tensor")
    return check_float_tensor(eigenvalues, "eigenvalues", (None,) * eigenvalues.dim(), finite=True)
