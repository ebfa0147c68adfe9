"""Graphs made of other things: nearest neighbours of vectors (:func:`neighbour_graph`), and unions of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse

from ...checks import check_instance, check_whole_number
from ...errors import InputError
from ...kernels.graph import Graph
from ...tensor_checks import as_reals, check_list, check_matrix

DECIMALS = 6  # similarities are rounded, so that ties are ties on every machine
BLOCK_CELLS = 2**22  # similarities held at once: 32 MiB
NEIGHBOURS = 10


def neighbour_graph(vectors: Any, neighbours: int = NEIGHBOURS, *, block: int | None = None) -> Graph:
    r"""Link each vector to its nearest neighbours by cosine similarity, which is the weight of the link.

    The similarity of x and y is :math:`x^T y / (|x| |y|)`, rounded to 6 decimals. Each of the N vectors chooses the
    ``neighbours`` others with the largest similarities above 0; two vectors are linked if one of them has chosen the
    other. A vector of zeros has no links. The search is exact: all similarities are computed, a block of rows at a
    time, in :math:`O(N^2 D)` operations.

    :param vectors: (N, D) numbers, or a scipy sparse array.
    :param neighbours: how many each vector chooses; of equal similarities the first.
    :param block: rows whose similarities to all N are held at once; as many as need 32 MiB when left out.

    Example:
        >>> from mvgp.prioritise.tables import neighbour_graph
        >>> neighbour_graph([[1.0, 1.0], [0.0, 2.0], [-1.0, 0.0]], neighbours=1).adjacency().toarray()
        array([[0.      , 0.707107, 0.      ],
               [0.707107, 0.      , 0.      ],
               [0.      , 0.      , 0.      ]])

    """
    unit, count = _unit_rows(vectors)
    wanted = min(check_whole_number(neighbours, "neighbours"), count)
    size = max(1, BLOCK_CELLS // count) if block is None else check_whole_number(block, "block")
    transposed = unit.T.tocsr() if _is_sparse(unit) else unit.T
    chosen = []  # (row, column, similarity) of each block
    for start in range(0, count, size):
        stop = min(start + size, count)
        product = unit[start:stop] @ transposed
        similarity = (product.toarray() if _is_sparse(product) else product).round(DECIMALS)  # (B, N)
        similarity[np.arange(stop - start), np.arange(start, stop)] = 0.0
        rows, cols = _largest(similarity, wanted)
        chosen.append((rows + start, cols, similarity[rows, cols]))
    rows, cols, values = (np.concatenate(parts) for parts in zip(*chosen, strict=True))
    links = sparse.csr_array((values, (rows, cols)), shape=(count, count))
    return Graph.from_adjacency(links.maximum(links.T))


def _unit_rows(vectors: Any) -> tuple[Any, int]:
    """The vectors with length 1, or 0 where they have none, and how many there are."""
    given: Any
    if _is_sparse(vectors):
        if vectors.ndim != 2 or 0 in vectors.shape:
            raise InputError(f"vectors: expected a matrix of shape (N, D), got shape {tuple(vectors.shape)}")
        as_reals(vectors.tocoo().data, "vectors: stored numbers", torch.float64, booleans=True)
        given = vectors.tocsr().astype(np.float64)
    else:
        given = check_matrix(vectors, "vectors", torch.float64, shape="(N, D)").cpu().numpy()
    largest = np.asarray(abs(given).max(axis=1).toarray() if _is_sparse(given) else abs(given).max(axis=1)).ravel()
    scaled = _divided(given, largest)  # the largest entry is 1: squares neither overflow nor vanish
    length = np.sqrt(np.asarray((scaled * scaled).sum(axis=1)).ravel())
    return _divided(scaled, length), given.shape[0]


def _is_sparse(values: Any) -> bool:  # without a narrower type, which has none of the methods
    return bool(sparse.issparse(values))


def _divided(rows: Any, divisor: np.ndarray) -> Any:
    """Rows divided by numbers (N,); those with divisor 0 stay."""
    safe = np.where(divisor > 0, divisor, 1.0)
    if not _is_sparse(rows):
        return rows / safe[:, None]
    scale: Any = sparse.diags_array(1.0 / safe)
    return (scale @ rows).tocsr()


def _largest(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the ``count`` largest positive values of each row; of equal values the first."""
    threshold = np.partition(values, -count, axis=1)[:, -count]
    rows, cols = np.nonzero((values >= threshold[:, None]) & (values > 0))
    order = np.lexsort((cols, -values[rows, cols], rows))
    rows, cols = rows[order], cols[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)  # within its row
    return rows[rank < count], cols[rank < count]


def union_graph(graphs: Sequence[Graph]) -> Graph:
    r"""One graph with the links of all, for models that know a single graph of an axis.

    Its weights are :math:`\sum_k W_k / d_k`, where :math:`d_k` is the mean degree (sum of weights) over the nodes that
    have a link in graph k: a typical node then has degree 1 in each graph, whatever the units of the weights. Graphs
    without links add nothing; a single graph is returned as it is.

    :param graphs: at least one, all on the same N nodes.

    Example:
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.tables import union_graph
        >>> union_graph([Graph([(0, 1)], 3, [5.0]), Graph([(1, 2)], 3, [0.1])]).adjacency().toarray()
        array([[0., 1., 0.],
               [1., 0., 1.],
               [0., 1., 0.]])

    """
    graphs = check_list(graphs, "graphs", "graphs")
    for number, graph in enumerate(graphs):
        check_instance(graph, f"graphs[{number}]", Graph, "mvgp.kernels.Graph")
    if not graphs or len({graph.num_nodes for graph in graphs}) != 1:
        sizes = [graph.num_nodes for graph in graphs]
        raise InputError(f"graphs: expected at least one, all on the same nodes, got graphs of {sizes} nodes")
    if len(graphs) == 1:
        return graphs[0]
    size = graphs[0].num_nodes
    total = sparse.csr_array((size, size))
    for graph in graphs:
        if graph.num_links:
            weights = graph.adjacency()
            total = total + weights * ((size - graph.num_isolated) / weights.sum())
    return Graph.from_adjacency(total)
