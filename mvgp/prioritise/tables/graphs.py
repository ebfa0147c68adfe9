"""Graphs made of other things: nearest neighbours of vectors (:func:`neighbour_graph`) and of features, and unions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ...checks import check_instance, check_whole_number
from ...errors import InputError
from ...kernels.graph import Graph
from ...tensor_checks import as_reals, check_index, check_list, check_matrix, check_name
from .reader import NumberTable, TableError, shortened

DECIMALS = 6  # similarities are rounded, so that ties are ties on every machine
BLOCK_CELLS = 2**22  # similarities held at once: 32 MiB
NEIGHBOURS = 10
CONSTANT = 1e-15  # a range below this share of the largest value is rounding


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
    nearest = min(check_whole_number(neighbours, "neighbours"), count)
    size = max(1, BLOCK_CELLS // count) if block is None else check_whole_number(block, "block")
    transposed = unit.T.tocsr() if _is_sparse(unit) else unit.T
    chosen = []  # (row, column, similarity) of each block
    for start in range(0, count, size):
        stop = min(start + size, count)
        product = unit[start:stop] @ transposed
        similarity = (product.toarray() if _is_sparse(product) else product).round(DECIMALS)  # (B, N)
        similarity[np.arange(stop - start), np.arange(start, stop)] = 0.0
        rows, cols = _largest(similarity, nearest)
        chosen.append((rows + start, cols, similarity[rows, cols]))
    rows, cols, values = (np.concatenate(parts) for parts in zip(*chosen, strict=True))
    links = sparse.csr_array((values, (rows, cols)), shape=(count, count))
    return Graph.from_adjacency(links.maximum(links.T))


def _unit_rows(vectors: Any) -> tuple[Any, int]:
    """The vectors with length 1, or 0 where they have none, and how many there are."""
    features: Any
    if _is_sparse(vectors):
        if vectors.ndim != 2 or 0 in vectors.shape:
            raise InputError(f"vectors: expected a matrix of shape (N, D), got shape {tuple(vectors.shape)}")
        as_reals(vectors.tocoo().data, "vectors: stored numbers", torch.float64, booleans=True)
        features = vectors.tocsr().astype(np.float64)
    else:
        features = check_matrix(vectors, "vectors", torch.float64, shape="(N, D)").cpu().numpy()
    largest = np.asarray(
        abs(features).max(axis=1).toarray() if _is_sparse(features) else abs(features).max(axis=1)
    ).ravel()
    scaled = _divided(features, largest)  # the largest entry is 1: squares neither overflow nor vanish
    length = np.sqrt(np.asarray((scaled * scaled).sum(axis=1)).ravel())
    return _divided(scaled, length), features.shape[0]


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


@dataclass(frozen=True, eq=False, repr=False)
class FeatureTable:
    """D features of each of M things.

    :param name: of the table, such as its file.
    :param columns: names of the D features.
    :param values: (M, D) finite numbers. From a file they are standardised: each feature has mean 0 and variance 1 over
        the ids of the file, and things that the file does not have are rows of zeros, that is, at the mean.

    Example:
        >>> from mvgp.prioritise.tables import FeatureTable
        >>> table = FeatureTable("tissues.tsv", ("heart", "liver"), [[1.0, -1.0], [0.9, -0.8], [-1.9, 1.8]])
        >>> table, table.graph(neighbours=1)
        (FeatureTable('tissues.tsv', 3 x 2), Graph(3 nodes, 1 links, 1 isolated))

    """

    name: str
    columns: tuple[str, ...]
    values: Tensor

    def __post_init__(self) -> None:
        check_instance(self.name, "name", str, "a string")
        names = check_list(self.columns, "columns", "names")
        columns = tuple(check_name(entry, f"columns[{number}]") for number, entry in enumerate(names))
        values = check_matrix(self.values, "values", torch.float64)
        if values.shape[1] != len(columns):
            raise InputError(f"values: expected {len(columns)} columns, one for each name, got {values.shape[1]}")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "values", values)

    def __repr__(self) -> str:
        return f"FeatureTable({self.name!r}, {self.values.shape[0]} x {self.values.shape[1]})"

    def graph(self, neighbours: int = NEIGHBOURS) -> Graph:
        """The nearest neighbours by cosine similarity, see :func:`neighbour_graph`; rows of zeros have no links."""
        return neighbour_graph(self.values.numpy(), neighbours)

    def keep(self, nodes: Any) -> FeatureTable:
        """The features of these things alone (indices, in this order); the numbers stay as they are."""
        return replace(self, values=self.values[check_index(nodes, len(self.values), "nodes")])


def merge_lines(table: NumberTable) -> NumberTable:
    """Each id once: lines that repeat an earlier one are left out, those that contradict it are refused."""
    first: dict[str, int] = {}
    for at, name in enumerate(table.ids):
        earlier = first.setdefault(name, at)
        if earlier != at and (table.values[earlier] != table.values[at]).any():
            problem = f"expected one line for {shortened(name)}, got other numbers than on line {table.lines[earlier]}"
            raise TableError(table.path, problem, table.lines[at])
    chosen = list(first.values())
    return replace(table, ids=list(first), values=table.values[chosen], lines=[table.lines[at] for at in chosen])


def feature_table(table: NumberTable, nodes: Sequence[str]) -> FeatureTable:
    """Standardised features of the ``nodes``, among which are all ids of the table; a constant feature is refused.

    :param table: each id once.
    :param nodes: M ids.
    """
    largest = abs(table.values).max(axis=0)  # (D,)
    scaled = table.values / np.where(largest > 0, largest, 1.0)  # within [-1, 1]: nothing overflows
    constant = np.flatnonzero(np.ptp(scaled, axis=0) <= CONSTANT)
    if len(constant):
        value = table.values[0, constant[0]]
        among = f"{len(table.ids):,} id{'' if len(table.ids) == 1 else 's'}"
        problem = f"expected a feature that differs between ids, got {value:g} for each of {among}"
        raise TableError(table.path, problem, column=table.names[constant[0]])
    centred = scaled - scaled.mean(axis=0)
    node_of = {node: number for number, node in enumerate(nodes)}
    values = np.zeros((len(nodes), len(table.names)))
    values[[node_of[name] for name in table.ids]] = centred / centred.std(axis=0)
    return FeatureTable(table.path.name, table.names, torch.from_numpy(values))
