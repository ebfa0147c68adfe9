"""Sparse matrices in files: a graph by the links above its diagonal, row by row."""

from __future__ import annotations

from typing import Any

import torch
from scipy import sparse
from torch import Tensor

from ..errors import StorageError
from ..kernels.graph import Graph
from .archive import Tree
from .budget import Spending
from .fields import Fields

BYTES = 200  # of a graph's matrices, for each node and each link


def describe_sparse(matrix: sparse.csr_array, values: str = "values") -> Tree:
    """Where each row starts (N + 1,), the columns of its entries (E,), and the entries (E,), called ``values``."""
    return {
        "starts": torch.from_numpy(matrix.indptr.astype("int64")),
        "ends": torch.from_numpy(matrix.indices.astype("int64")),
        values: torch.from_numpy(matrix.data),
    }


def describe_graph(graph: Graph) -> Tree:
    """The links from each node to later ones, and their weights."""
    upper = sparse.csr_array(sparse.triu(graph.adjacency(), k=1), dtype="float64")
    upper.sort_indices()
    return describe_sparse(upper, "weights")


def restore_graph(parts: Fields, spending: Spending, shared: dict[Any, Any]) -> Graph:
    """The inverse of :func:`describe_graph`; the same graph for the same arrays, which ``shared`` keeps."""
    parts.only("starts", "ends", "weights")
    starts = parts.array("starts", torch.int64, (None,))
    count = starts.numel() - 1
    ends = parts.positions("ends", max(count, 0))
    weights = parts.finite("weights", torch.float64, (ends.numel(),))
    key = ("graph", id(starts), id(ends), id(weights))
    if key not in shared:
        check_starts(starts, ends, parts.where)
        spending.need(parts.where, memory_bytes=BYTES * (starts.numel() + ends.numel()))
        edges = torch.stack([torch.arange(count).repeat_interleave(starts.diff()), ends], dim=1)
        if bool((edges[:, 0] >= ends).any()):
            raise StorageError(f"{parts.where}: expected links above the diagonal, got others")
        if bool(((edges[:, 0] * count + ends).diff() <= 0).any()):
            raise StorageError(f"{parts.where}: expected each link once, row by row, got others")
        shared[key] = Graph(edges, count, weights), (starts, ends, weights)  # arrays that live keep their identities
    graph: Graph = shared[key][0]
    return graph


def check_starts(starts: Tensor, ends: Tensor, where: str) -> None:
    """Where the rows of a sparse matrix start: ascending numbers from 0 to how many entries there are."""
    inside = starts.numel() >= 2 and int(starts.min()) >= 0 and int(starts.max()) <= ends.numel()
    if not inside or int(starts[0]) != 0 or int(starts[-1]) != ends.numel() or bool((starts[1:] < starts[:-1]).any()):
        raise StorageError(f"{where}.starts: expected ascending numbers from 0 to {ends.numel()}, got others")
