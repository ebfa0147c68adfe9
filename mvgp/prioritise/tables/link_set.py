"""LinkSet: known links between two kinds of things, graphs and features of each, their names, and what was read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...checks import check_instance, check_part, check_seed
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import InputError
from ...kernels.graph import DiffusionKernel, Graph
from ...priors.matrix_gp import MatrixGP
from ...tensor_checks import check_index, check_list, check_name
from .graphs import FeatureTable, union_graph


@dataclass(frozen=True)
class FileReport:
    """What was read from one file.

    :param file: its name.
    :param what: its role: "pairs", "row edges", "column edges", "row features", "column features", "row names",
        "column names".
    :param lines: below the header, without comments and blank lines.
    :param header: the fields of the header; None if the first line was data.
    :param duplicates: lines that repeat an earlier one; of edges in either direction.
    :param self_links: edges from an id to itself, dropped.
    :param matched: how many of its ids are among those of the pairs; of names, among all that were read before.
    :param ids: how many different ids there are.
    :param columns: how many features.
    :param missing: rows, or columns, of the set that have no features there, and get the mean of each.
    """

    file: str
    what: str
    lines: int
    header: tuple[str, ...] | None
    duplicates: int = 0
    self_links: int = 0
    matched: int = 0
    ids: int = 0
    columns: int = 0
    missing: int = 0

    def __str__(self) -> str:
        names = self.header and (self.header if len(self.header) <= 4 else (*self.header[:3], "..."))
        parts = [f"{self.lines:,} lines", "no header" if names is None else f"header {' | '.join(names)}"]
        if self.duplicates:
            parts.append(f"{self.duplicates:,} duplicates merged")
        if self.self_links:
            parts.append(f"{self.self_links:,} self-links dropped")
        if self.what != "pairs":
            where = "in use" if self.what.endswith("names") else "in the pairs"
            parts.append(f"{self.matched:,} of {self.ids:,} ids are {where}")
        if self.columns:
            sign = ", of which the cosine keeps the sign alone" if self.columns == 1 else ""
            parts.append(f"{counted(self.columns, 'feature')}{sign}")
            side = self.what.split()[0]
            parts.append(
                f"{counted(self.missing, side)} without features {'has' if self.missing == 1 else 'have'} zeros"
            )
        return f"{self.what}: {self.file}, " + ", ".join(parts)


@dataclass(frozen=True)
class Dropped:
    """A row, or a column, that the filters left out.

    :param id: its id.
    :param name: its name; the id if it has none.
    :param links: how many known links went with it.
    """

    id: str
    name: str
    links: int


@dataclass(frozen=True)
class ReadReport:
    """What was read, and what the filters left out; ``print`` shows it as a few lines of text.

    :param files: one for each file.
    :param filters: "linked", "paper" or "none".
    :param shape: numbers of rows and columns that are kept.
    :param links: known links that are kept.
    :param row_drops: rows that the filters left out.
    :param col_drops: columns that the filters left out.
    :param dropped_links: pairs of a dropped row or column.

    Example:
        >>> from mvgp.prioritise.tables import Dropped, FileReport, ReadReport
        >>> file = FileReport("pairs.tsv", "pairs", 4, None)
        >>> print(ReadReport((file,), "paper", (2, 3), 3, (Dropped("d9", "Gout", 1),), (), 1))
        pairs: pairs.tsv, 4 lines, no header
        2 rows x 3 columns, 3 links; filters paper dropped 1 row, 0 columns and 1 link

    """

    files: tuple[FileReport, ...]
    filters: str
    shape: tuple[int, int] = (0, 0)
    links: int = 0
    row_drops: tuple[Dropped, ...] = ()
    col_drops: tuple[Dropped, ...] = ()
    dropped_links: int = 0

    @property
    def dropped_rows(self) -> int:
        """How many rows the filters left out."""
        return len(self.row_drops)

    @property
    def dropped_cols(self) -> int:
        """How many columns the filters left out."""
        return len(self.col_drops)

    def find_dropped_row(self, text: str) -> Dropped | None:
        """The dropped row with this id, or this name, or this name in any case; None if there is none."""
        return _find(text.strip(), self.row_drops)

    def keeping(self, dropped: Dropped) -> str:
        """The filters that keep what was dropped: "linked" if it has a known link, otherwise "none"."""
        return "linked" if dropped.links else "none"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.files), self.counts()])

    def counts(self) -> str:
        """One line: rows, columns and links that are kept, and those that were dropped."""
        kept = f"{self.shape[0]:,} rows x {self.shape[1]:,} columns, {self.links:,} links"
        rows, cols = counted(self.dropped_rows, "row"), counted(self.dropped_cols, "column")
        return f"{kept}; filters {self.filters} dropped {rows}, {cols} and {counted(self.dropped_links, 'link')}"

    def summary(self) -> str:
        """One line: the files, and what was dropped."""
        files = ", ".join(f"{file.what} {file.file}" for file in self.files)
        dropped = f" dropped {self.dropped_links:,} pairs" if self.dropped_links else ""
        return f"{files}; filters {self.filters}{dropped}"


def _find(text: str, drops: Sequence[Dropped]) -> Dropped | None:
    keys = (
        (text, lambda one: one.id),
        (text, lambda one: one.name),
        (text.casefold(), lambda one: one.name.casefold()),
    )
    return next((one for wanted, key in keys for one in drops if key(one) == wanted), None)


def counted(count: int, noun: str) -> str:
    """A number with its noun: "1 row", "2,000 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True, eq=False, repr=False)
class LinkSet:
    """Rows (tasks, diseases), columns (items, genes), the links known between them, and graphs of each.

    An axis may have several graphs, those of its feature tables among them. Models that know one graph of an axis take
    ``row_graph`` and ``col_graph``, in which :meth:`with_graphs` puts the links of all (:func:`union_graph`).

    :param row_ids: M distinct ids.
    :param col_ids: N distinct ids.
    :param rows: (P,) row of each link.
    :param cols: (P,) column of each link.
    :param row_graph: on the M rows; without links when nothing is known.
    :param col_graph: on the N columns.
    :param row_names: M names to show, not necessarily distinct; the ids when left out.
    :param col_names: N names to show.
    :param source: where the data come from, in one line.
    :param report: what was read and left out, of a set read from tables.
    :param row_graphs: every graph of the rows; ``row_graph`` alone when left out.
    :param col_graphs: every graph of the columns.
    :param row_graph_names: one for each of ``row_graphs``, to show; "row graph 1", ... when left out.
    :param col_graph_names: one for each of ``col_graphs``.
    :param row_features: feature tables of the rows, for models that use the numbers themselves.
    :param col_features: feature tables of the columns.

    Example:
        >>> from mvgp.prioritise.tables import LinkSet
        >>> from mvgp.kernels import Graph
        >>> LinkSet(["a", "b"], ["x", "y", "z"], [0, 1], [2, 0], Graph([(0, 1)], 2), Graph([], 3))
        LinkSet(2 x 3, 2 links; 1 row edges, 0 column edges)

    """

    row_ids: tuple[str, ...]
    col_ids: tuple[str, ...]
    rows: Tensor
    cols: Tensor
    row_graph: Graph
    col_graph: Graph
    row_names: tuple[str, ...] = ()
    col_names: tuple[str, ...] = ()
    source: str = ""
    report: ReadReport | None = None
    row_graphs: tuple[Graph, ...] = ()
    col_graphs: tuple[Graph, ...] = ()
    row_graph_names: tuple[str, ...] = ()
    col_graph_names: tuple[str, ...] = ()
    row_features: tuple[FeatureTable, ...] = ()
    col_features: tuple[FeatureTable, ...] = ()

    def __post_init__(self) -> None:
        for side, graph in (("row", self.row_graph), ("col", self.col_graph)):
            check_instance(graph, f"{side}_graph", Graph, "mvgp.kernels.Graph")
            ids = _strings(getattr(self, f"{side}_ids"), f"{side}_ids")
            if len(set(ids)) < len(ids):
                repeated = Counter(ids).most_common(1)[0][0]
                raise InputError(f"{side}_ids: expected distinct ids, got {repeated!r} more than once")
            names = _strings(getattr(self, f"{side}_names"), f"{side}_names") or ids
            if len(names) != len(ids):
                raise InputError(f"{side}_names: expected {len(ids)} names, one for each id, got {len(names)}")
            if graph.num_nodes != len(ids):
                raise InputError(f"{side}_graph: expected {len(ids)} nodes, one for each id, got {graph.num_nodes}")
            object.__setattr__(self, f"{side}_ids", ids)
            object.__setattr__(self, f"{side}_names", names)
            self._check_graphs(side, graph)
        check_instance(self.source, "source", str, "a string")
        checked = PositiveUnlabelled(self.rows, self.cols, self.shape)  # sorted, within bounds, no duplicates
        object.__setattr__(self, "rows", checked.rows)
        object.__setattr__(self, "cols", checked.cols)

    @classmethod
    def from_links(
        cls, links: PositiveUnlabelled, row_graph: Graph | None = None, col_graph: Graph | None = None
    ) -> LinkSet:
        """Links that are known by their numbers, as of a scipy matrix; ids are their names, or numbers from 0.

        :param links: from a matrix by ``PositiveUnlabelled.from_scipy``, from a frame by ``from_frame``.
        :param row_graph: on the M rows; without links when left out.
        :param col_graph: on the N columns.

        Example:
            >>> import mvgp
            >>> from scipy import sparse
            >>> user_items = sparse.csr_array([[1, 0, 2], [0, 1, 0]])
            >>> mvgp.prioritise.tables.LinkSet.from_links(mvgp.PositiveUnlabelled.from_scipy(user_items))
            LinkSet(2 x 3, 3 links; 0 row edges, 0 column edges)

        """
        check_instance(links, "links", PositiveUnlabelled, "mvgp.PositiveUnlabelled")
        (m, n), row_ids, col_ids = links.shape, links.row_names, links.col_names
        return cls(
            tuple(map(str, range(m))) if row_ids is None else row_ids,
            tuple(map(str, range(n))) if col_ids is None else col_ids,
            links.rows,
            links.cols,
            Graph([], m) if row_graph is None else row_graph,
            Graph([], n) if col_graph is None else col_graph,
        )

    def _check_graphs(self, side: str, graph: Graph) -> None:
        """The graphs and features of an axis: as many nodes as ids, and a name for each."""
        graphs = tuple(check_list(getattr(self, f"{side}_graphs"), f"{side}_graphs", "graphs")) or (graph,)
        for number, part in enumerate(graphs):
            check_instance(part, f"{side}_graphs[{number}]", Graph, "mvgp.kernels.Graph")
            if part.num_nodes != graph.num_nodes:
                came = f"{part.num_nodes} in {side}_graphs[{number}]"
                raise InputError(f"{side}_graphs: expected {graph.num_nodes} nodes, one for each id, got {came}")
        if len(graphs) == 1 and graphs[0] is not graph:
            raise InputError(f"{side}_graphs: expected {side}_graph where there is one graph, got another graph")
        names = _strings(getattr(self, f"{side}_graph_names"), f"{side}_graph_names")
        names = names or tuple(f"{side} graph {number}" for number in range(1, len(graphs) + 1))
        if len(names) != len(graphs):
            raise InputError(f"{side}_graph_names: expected {len(graphs)} names, one for each graph, got {len(names)}")
        features = tuple(check_list(getattr(self, f"{side}_features"), f"{side}_features", "feature tables"))
        for number, table in enumerate(features):
            check_instance(table, f"{side}_features[{number}]", FeatureTable, "mvgp.prioritise.tables.FeatureTable")
            if len(table.values) != graph.num_nodes:
                came = f"{len(table.values)} in {side}_features[{number}]"
                raise InputError(f"{side}_features: expected {graph.num_nodes} lines, one for each id, got {came}")
        object.__setattr__(self, f"{side}_graphs", graphs)
        object.__setattr__(self, f"{side}_graph_names", names)
        object.__setattr__(self, f"{side}_features", features)

    def with_graphs(
        self,
        row_graphs: Sequence[Graph] = (),
        col_graphs: Sequence[Graph] = (),
        row_features: Sequence[FeatureTable] = (),
        col_features: Sequence[FeatureTable] = (),
    ) -> LinkSet:
        """The same links with further graphs and features.

        Each feature table adds a graph, too: that of its nearest neighbours (:meth:`FeatureTable.graph`). ``row_graph``
        becomes the union of all graphs of the rows (:func:`union_graph`), ``col_graph`` that of the columns.

        :param row_graphs: on the M rows.
        :param col_graphs: on the N columns.
        :param row_features: with M lines each.
        :param col_features: with N lines each.

        Example:
            >>> from mvgp.prioritise.tables import LinkSet
            >>> from mvgp.kernels import Graph
            >>> links = LinkSet("ab", "xyz", [0, 1], [2, 0], Graph([(0, 1)], 2), Graph([], 3))
            >>> both = links.with_graphs(col_graphs=[Graph([(0, 1)], 3), Graph([(1, 2)], 3)])
            >>> both, both.col_graph_names
            (LinkSet(2 x 3, 2 links; 1 row edges, 2 column edges), ('col graph 1', 'col graph 2'))

        """
        changes: dict[str, Any] = {}
        for side, graphs, tables in (("row", row_graphs, row_features), ("col", col_graphs, col_features)):
            added = check_list(graphs, f"{side}_graphs", "graphs")
            features = check_list(tables, f"{side}_features", "feature tables")
            if not added and not features:
                continue
            own, names = getattr(self, f"{side}_graphs"), getattr(self, f"{side}_graph_names")
            if len(own) == 1 and own[0].num_links == 0:  # it stands for none
                own = names = ()
            for number, table in enumerate(features):
                check_instance(table, f"{side}_features[{number}]", FeatureTable, "mvgp.prioritise.tables.FeatureTable")
            every = (*own, *added, *(table.graph() for table in features))
            new_names = (f"{side} graph {number}" for number in range(len(own) + 1, len(own) + len(added) + 1))
            changes |= {
                f"{side}_graph": union_graph(every),
                f"{side}_graphs": every,
                f"{side}_graph_names": (*names, *new_names, *(table.name for table in features)),
                f"{side}_features": (*getattr(self, f"{side}_features"), *features),
            }
        return replace(self, **changes)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return len(self.row_ids), len(self.col_ids)

    def __len__(self) -> int:
        return int(self.rows.numel())

    def __repr__(self) -> str:
        return (
            f"LinkSet({self.shape[0]} x {self.shape[1]}, {len(self)} links; {self.row_graph.num_links} row edges, "
            f"{self.col_graph.num_links} column edges)"
        )

    def links(self, weight: float = 0.05) -> PositiveUnlabelled:
        """Data to fit: the links, and every other item of their rows with a small weight."""
        return PositiveUnlabelled(self.rows, self.cols, self.shape, weight)

    def prior(
        self,
        time: float = 1.0,
        shift: float = 1.0,
        dtype: torch.dtype = torch.float64,
        *,
        row_time: float | None = None,
        row_shift: float | None = None,
        col_time: float | None = None,
        col_shift: float | None = None,
    ) -> MatrixGP:
        """The paper's prior: :math:`e^{-tL} + s I` on each graph, of an axis with several on their union.

        :param time: t of both axes.
        :param shift: s of both axes.
        :param dtype: of the parameters.
        :param row_time: t of the rows; ``time`` when left out.
        :param row_shift: s of the rows; ``shift`` when left out.
        :param col_time: t of the columns; ``time`` when left out.
        :param col_shift: s of the columns; ``shift`` when left out.
        """
        kernels = [
            DiffusionKernel(
                graph, time if own_time is None else own_time, shift if own_shift is None else own_shift, dtype=dtype
            )
            for graph, own_time, own_shift in (
                (self.row_graph, row_time, row_shift),
                (self.col_graph, col_time, col_shift),
            )
        ]
        return MatrixGP(*kernels, dtype=dtype)

    def keep(self, rows: Any = None, cols: Any = None) -> LinkSet:
        """Only these rows and columns (indices, in this order), with the links and edges among them.

        Each graph loses the edges of other nodes, the union of several (``row_graph``) with the scales it had.
        """
        changes: dict[str, Any] = {}
        new_numbers = []
        for side, positions, count in (("row", rows, self.shape[0]), ("col", cols, self.shape[1])):
            nodes = np.arange(count) if positions is None else check_index(positions, count, f"{side}s").cpu().numpy()
            if len(nodes) == 0 or len(np.unique(nodes)) < len(nodes):
                raise InputError(f"{side}s: expected distinct positions, at least one, got {nodes.tolist()[:10]}")
            for name in (f"{side}_ids", f"{side}_names"):
                changes[name] = tuple(getattr(self, name)[node] for node in nodes.tolist())
            graph, graphs = getattr(self, f"{side}_graph"), getattr(self, f"{side}_graphs")
            changes[f"{side}_graph"] = part = _subgraph(graph, nodes)
            changes[f"{side}_graphs"] = (part,) if len(graphs) == 1 else tuple(_subgraph(g, nodes) for g in graphs)
            changes[f"{side}_features"] = tuple(table.keep(nodes) for table in getattr(self, f"{side}_features"))
            new_numbers.append(torch.full((count,), -1))  # for those that are dropped
            new_numbers[-1][nodes] = torch.arange(len(nodes))
        new_rows, new_cols = new_numbers[0][self.rows], new_numbers[1][self.cols]
        kept = (new_rows >= 0) & (new_cols >= 0)
        if not bool(kept.any()):
            sizes = f"{len(changes['row_ids'])} rows, {len(changes['col_ids'])} columns"
            raise InputError(f"none of the {len(self)} links is left among {sizes}")
        return replace(self, rows=new_rows[kept], cols=new_cols[kept], **changes)

    def subsample(self, share: float, seed: int = 0) -> LinkSet:
        """A random share of the links, with all rows and columns, as the paper's 5 % sets."""
        share, seed = check_part(share, "share"), check_seed(seed)
        count = max(1, round(share * len(self)))
        drawn = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:count].sort().values
        return replace(self, rows=self.rows[drawn], cols=self.cols[drawn])

    def digest(self) -> str:
        """A fingerprint of ids, links, edges and features, which tells whether results belong to the same data."""
        digest = hashlib.sha256()
        for ids in (self.row_ids, self.col_ids):
            digest.update("\0".join(ids).encode() + b"\1")
        several = [graphs for graphs in (self.row_graphs, self.col_graphs) if len(graphs) > 1]
        for graph in (self.row_graph, self.col_graph, *(graph for graphs in several for graph in graphs)):
            edges = graph.adjacency().tocoo()
            for array in (edges.row.astype(np.int64), edges.col.astype(np.int64), edges.data.astype(np.float64)):
                digest.update(np.ascontiguousarray(array).tobytes())
        features = (table.values for table in (*self.row_features, *self.col_features))
        for tensor in (self.rows, self.cols, *features):
            digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()[:16]


def check_link_set(value: Any) -> LinkSet:
    """A set of links, as an argument called ``link_set``."""
    makers = "read_links or LinkSet.from_links makes one"
    return check_instance(value, "link_set", LinkSet, f"mvgp.prioritise.tables.LinkSet ({makers})")


def _subgraph(graph: Graph, nodes: np.ndarray) -> Graph:
    return Graph.from_adjacency(graph.adjacency()[nodes][:, nodes])


def _strings(names: Any, name: str) -> tuple[str, ...]:
    entries = list(names) if isinstance(names, str) else check_list(names, name, "names")  # "abc" has three
    return tuple(check_name(entry, f"{name}[{number}]") for number, entry in enumerate(entries))
