"""A graph by the links above its diagonal, row by row."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ..errors import StorageError
from ..kernels import Graph
from .fields import Fields
from .tree import Tree


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

    def restore(self, given: Fields) -> Graph:
        """The graph; the same one for the same arrays."""
        starts = given.array("starts", torch.int64, (None,))
        count = starts.numel() - 1
        ends = given.positions("ends", max(count, 0))
        weights = given.finite("weights", torch.float64, (ends.numel(),))
        key = (id(starts), id(ends), id(weights))
        if key not in self._made:
            steps = starts.diff()
            if count < 1 or int(starts[0]) != 0 or int(starts[-1]) != ends.numel() or bool((steps < 0).any()):
                raise StorageError(
                    f"{given.where}.starts: expected ascending numbers from 0 to {ends.numel()}, got others"
                )
            edges = torch.stack([torch.arange(count).repeat_interleave(steps), ends], dim=1)
            self._made[key] = Graph(edges, count, weights), (starts, ends, weights)
        return self._made[key][0]
