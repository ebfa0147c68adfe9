"""A graph by the links above its diagonal, row by row."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ..errors import StorageError
from ..kernels import Graph
from .budget import Spending
from .fields import Fields
from .tree import Tree

BYTES = 200  # of a graph's matrices, for each node and each link


def describe_graph(graph: Graph) -> Tree:
    """Where each row of links starts (N + 1,), their other ends (E,), their weights (E,)."""
    upper = sparse.csr_array(sparse.triu(graph.adjacency(), k=1))
    upper.sort_indices()
    return {
        "starts": torch.from_numpy(upper.indptr.astype(np.int64)),
        "ends": torch.from_numpy(upper.indices.astype(np.int64)),
        "weights": torch.from_numpy(upper.data.astype(np.float64)),
    }


class Graphs:
    """The graphs of a file. Kernels that shared one share it again, and with it the eigenpairs it keeps."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, ...], tuple[Graph, tuple[Tensor, ...]]] = {}

    def restore(self, given: Fields, spending: Spending) -> Graph:
        """The graph; the same one for the same arrays."""
        given.only("starts", "ends", "weights")
        starts = given.array("starts", torch.int64, (None,))
        count = starts.numel() - 1
        ends = given.positions("ends", max(count, 0))
        weights = given.finite("weights", torch.float64, (ends.numel(),))
        key = (id(starts), id(ends), id(weights))
        if key not in self._made:
            check_starts(starts, ends, given.where)
            spending.need(given.where, memory_bytes=BYTES * (starts.numel() + ends.numel()))
            edges = torch.stack([torch.arange(count).repeat_interleave(starts.diff()), ends], dim=1)
            if bool((edges[:, 0] >= ends).any()):
                raise StorageError(f"{given.where}: expected links above the diagonal, got others")
            key_of_link = edges[:, 0] * count + ends
            if bool((key_of_link.diff() <= 0).any()):
                raise StorageError(f"{given.where}: expected each link once, row by row, got others")
            self._made[key] = Graph(edges, count, weights), (starts, ends, weights)
        return self._made[key][0]


def check_starts(starts: Tensor, ends: Tensor, where: str) -> None:
    """Where the rows of a sparse matrix start: ascending numbers from 0 to how many entries there are."""
    inside = starts.numel() >= 2 and int(starts.min()) >= 0 and int(starts.max()) <= ends.numel()
    if not inside or int(starts[0]) != 0 or int(starts[-1]) != ends.numel() or bool((starts[1:] < starts[:-1]).any()):
        raise StorageError(f"{where}.starts: expected ascending numbers from 0 to {ends.numel()}, got others")
