"""Graph: nodes and weighted links, with the normalised Laplacian that graph kernels are functions of."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ..checks import as_reals, as_tensor, check_device, check_dtype, check_matrix, check_whole_number, refuse_where
from ..errors import InputError, SizeError
from ..linalg.patterns import SymmetricCSR

EIGEN_LIMIT = 16384  # nodes up to which dense eigenpairs are computed


class Graph:
    r"""An undirected graph on nodes 0, ..., N - 1. Immutable.

    Links that are listed more than once, in either direction, are merged by adding their weights;
    links from a node to itself are dropped. The normalised Laplacian is :math:`L = I - D^{-1/2} W D^{-1/2}`
    on nodes that have links, and its row and column are 0 for a node without (Chung 1997). Its spectrum
    lies in [0, 2].

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
        adjacency = sparse.coo_array((each, (ends[:, 0], ends[:, 1])), shape=(count, count))
        self._build(adjacency.tocsr())

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
            raise InputError(
                f"adjacency[{i}, {j}]: expected a symmetric matrix, got {weights[i, j]} against {weights[j, i]}"
            )
        upper = sparse.triu(coo, k=1)
        return cls(np.stack([upper.row, upper.col], axis=1), weights.shape[0], upper.data)

    def _build(self, directed: Any) -> None:
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
        self._shifted = SymmetricCSR(
            torch.from_numpy(shifted.indptr.astype(np.int64)),
            torch.from_numpy(shifted.indices.astype(np.int64)),
            torch.from_numpy(shifted.data.astype(np.float64)),
        )
        self._converted: dict[tuple[torch.dtype, torch.device], SymmetricCSR] = {}
        self._eigen: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}

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
