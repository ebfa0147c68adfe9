"""LinkSet: known links between two kinds of things, a graph of each, and their names; read_links: one from tables."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...checks import check_choice, check_instance, check_part, check_seed, shown
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import InputError
from ...kernels.graph import DiffusionKernel, Graph
from ...priors.matrix_gp import MatrixGP
from ...tensor_checks import check_index, check_list, check_name
from .reader import MAX_BYTES, Columns, FilePath, Table, TableError, examples, is_number, read_table, shortened

FILTERS = ("paper", "none")


@dataclass(frozen=True)
class FileReport:
    """What was read from one file.

    :param file: its name.
    :param what: its role: "pairs", "row edges", "column edges", "row names", "column names".
    :param lines: below the header, without comments and blank lines.
    :param header: the fields of the header; None if the first line was data.
    :param duplicates: lines that repeat an earlier one; of edges in either direction.
    :param self_links: edges from an id to itself, dropped.
    :param matched: how many of its ids are among those of the pairs; of names, among those of pairs and edges.
    :param ids: how many different ids there are.
    """

    file: str
    what: str
    lines: int
    header: tuple[str, ...] | None
    duplicates: int = 0
    self_links: int = 0
    matched: int = 0
    ids: int = 0

    def __str__(self) -> str:
        parts = [f"{self.lines:,} lines", "no header" if self.header is None else f"header {' | '.join(self.header)}"]
        if self.duplicates:
            parts.append(f"{self.duplicates:,} duplicates merged")
        if self.self_links:
            parts.append(f"{self.self_links:,} self-links dropped")
        if self.what != "pairs":
            where = "in use" if self.what.endswith("names") else "in the pairs"
            parts.append(f"{self.matched:,} of {self.ids:,} ids are {where}")
        return f"{self.what}: {self.file}, " + ", ".join(parts)


@dataclass(frozen=True)
class ReadReport:
    """What was read, and what the filters left out; ``print`` shows it as a few lines of text.

    :param files: one for each file.
    :param filters: "paper" or "none".
    :param dropped_rows: without a link in the row graph.
    :param dropped_cols: without a link in the column graph.
    :param dropped_links: pairs of a dropped row or column.
    """

    files: tuple[FileReport, ...]
    filters: str
    dropped_rows: int = 0
    dropped_cols: int = 0
    dropped_links: int = 0

    def __str__(self) -> str:
        dropped = f"dropped {self.dropped_rows:,} rows and {self.dropped_cols:,} columns without a link in their graph"
        last = f"filters {self.filters}: {dropped}, and {self.dropped_links:,} pairs with them"
        return "\n".join([*map(str, self.files), last])

    def summary(self) -> str:
        """One line: the files, and what was dropped."""
        files = ", ".join(f"{file.what} {file.file}" for file in self.files)
        dropped = f" dropped {self.dropped_links:,} pairs" if self.dropped_links else ""
        return f"{files}; filters {self.filters}{dropped}"


@dataclass(frozen=True, eq=False, repr=False)
class LinkSet:
    """Rows (tasks, diseases), columns (items, genes), the links known between them, and a graph of each.

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
        check_instance(self.source, "source", str, "a string")
        checked = PositiveUnlabelled(self.rows, self.cols, self.shape)  # sorted, within bounds, no duplicates
        object.__setattr__(self, "rows", checked.rows)
        object.__setattr__(self, "cols", checked.cols)

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

    def prior(self, time: float = 1.0, shift: float = 1.0, dtype: torch.dtype = torch.float64) -> MatrixGP:
        """The paper's prior: :math:`e^{-tL} + s I` on each graph."""
        kernels = [DiffusionKernel(g, time=time, shift=shift, dtype=dtype) for g in (self.row_graph, self.col_graph)]
        return MatrixGP(*kernels, dtype=dtype)

    def keep(self, rows: Any = None, cols: Any = None) -> LinkSet:
        """Only these rows and columns (indices, in this order), with the links and edges among them."""
        changes: dict[str, Any] = {}
        new_numbers = []
        for side, positions, count in (("row", rows, self.shape[0]), ("col", cols, self.shape[1])):
            nodes = np.arange(count) if positions is None else check_index(positions, count, f"{side}s").cpu().numpy()
            if len(nodes) == 0 or len(np.unique(nodes)) < len(nodes):
                raise InputError(f"{side}s: expected distinct positions, at least one, got {nodes.tolist()[:10]}")
            for name in (f"{side}_ids", f"{side}_names"):
                changes[name] = tuple(getattr(self, name)[node] for node in nodes.tolist())
            graph = getattr(self, f"{side}_graph").adjacency()
            changes[f"{side}_graph"] = Graph.from_adjacency(graph[nodes][:, nodes])
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
        """A fingerprint of ids, links and edges, which tells whether results belong to the same data."""
        digest = hashlib.sha256()
        for ids in (self.row_ids, self.col_ids):
            digest.update("\0".join(ids).encode() + b"\1")
        for graph in (self.row_graph, self.col_graph):
            edges = graph.adjacency().tocoo()
            for array in (edges.row.astype(np.int64), edges.col.astype(np.int64), edges.data.astype(np.float64)):
                digest.update(np.ascontiguousarray(array).tobytes())
        for tensor in (self.rows, self.cols):
            digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()[:16]


def _strings(names: Any, name: str) -> tuple[str, ...]:
    entries = list(names) if isinstance(names, str) else check_list(names, name, "names")  # "abc" has three
    return tuple(check_name(entry, f"{name}[{number}]") for number, entry in enumerate(entries))


# From tables -------------------------------------------------------------------------------------


def read_links(
    pairs: FilePath,
    row_edges: FilePath | None = None,
    col_edges: FilePath | None = None,
    row_names: FilePath | None = None,
    col_names: FilePath | None = None,
    *,
    filters: str = "paper",
    header: bool | None = None,
    delimiter: str | None = None,
    pairs_columns: Columns | None = None,
    row_edges_columns: Columns | None = None,
    col_edges_columns: Columns | None = None,
    row_names_columns: Columns | None = None,
    col_names_columns: Columns | None = None,
    max_bytes: int = MAX_BYTES,
) -> LinkSet:
    r"""Known links, a graph of the rows, one of the columns, and names, from text tables.

    A table is UTF-8 text, plain or gzip'd, with fields separated by tabs, commas or semicolons, found from the
    content. Ids are text. Blank lines and lines that begin with ``#`` are skipped. Rows and columns are the ids of
    pairs and edges, sorted: an edge may lead to an id that has no pair yet. ``LinkSet.report`` says what was read and
    what was left out.

    :param pairs: row id, column id; a pair listed twice counts once.
    :param row_edges: two row ids and perhaps a weight. A link listed more than once, in either direction, counts once,
        with the largest of its weights; one from an id to itself is dropped.
    :param col_edges: the same for columns.
    :param row_names: row id, name; ids without a name keep their id.
    :param col_names: the same for columns.
    :param filters: "paper" keeps rows with a link in the row graph and columns with one in the column graph, where
        there is such a graph; "none" keeps all.
    :param header: whether tables begin with a header; when left out, the content of each decides.
    :param delimiter: of all tables; when left out, the content of each decides.
    :param pairs_columns: two names of columns, or positions from 0; (0, 1) when left out.
    :param row_edges_columns: two, or three with the weight; when left out, (0, 1) and the third if there is one.
    :param col_edges_columns: the same.
    :param row_names_columns: of id and name; (0, 1) when left out.
    :param col_names_columns: the same.
    :param max_bytes: the largest size of a table after decompression, 1 GiB when left out; a larger one is refused
        without being read further. Tables are regular files: a FIFO or a device is refused before it is opened.

    Example:
        >>> import pathlib, tempfile
        >>> from mvgp.prioritise.tables import read_links
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "pairs.csv").write_text("disease,gene\nasthma,IL13\nasthma,IL4\neczema,FLG\n")
        >>> _ = (folder / "edges.tsv").write_text("asthma\teczema\t0.7\neczema\thay fever\t0.4\n")
        >>> links = read_links(folder / "pairs.csv", row_edges=folder / "edges.tsv")
        >>> links, links.row_ids
        (LinkSet(3 x 3, 3 links; 2 row edges, 0 column edges), ('asthma', 'eczema', 'hay fever'))
        >>> print(links.report)
        pairs: pairs.csv, 3 lines, header disease | gene
        row edges: edges.tsv, 2 lines, no header, 2 of 3 ids are in the pairs
        filters paper: dropped 0 rows and 0 columns without a link in their graph, and 0 pairs with them

    """
    check_choice(filters, "filters", FILTERS)
    if header is not None and not isinstance(header, bool):
        raise InputError(f"header: expected True, False or None, got {shown(header)}")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"#\r\n'):
        raise InputError(f"delimiter: expected one character or None, got {shown(delimiter)}")
    _check_columns(pairs_columns, (2,), header, "pairs_columns")
    _check_columns(row_edges_columns, (2, 3), header, "row_edges_columns")
    _check_columns(col_edges_columns, (2, 3), header, "col_edges_columns")
    _check_columns(row_names_columns, (2,), header, "row_names_columns")
    _check_columns(col_names_columns, (2,), header, "col_names_columns")
    options: dict[str, Any] = {"header": header, "delimiter": delimiter, "max_bytes": max_bytes}
    table = read_table(pairs, pairs_columns, **options)
    distinct = list(dict.fromkeys(zip(*table.columns, strict=True)))  # (row id, column id)
    reports = [FileReport(table.path.name, "pairs", len(table), table.header, len(table) - len(distinct))]
    rows, cols = (_Side(name, set(ids)) for name, ids in zip(("row", "column"), table.columns, strict=True))
    edges = ((rows, cols, row_edges, row_edges_columns), (cols, rows, col_edges, col_edges_columns))
    for side, other, path, columns in edges:
        if path is not None:
            reports.append(side.add_edges(read_table(path, columns, weighted=True, **options), other, table.path))
    names = ((rows, cols, row_names, row_names_columns), (cols, rows, col_names, col_names_columns))
    for side, other, path, columns in names:
        if path is not None:
            reports.append(side.add_names(read_table(path, columns, ids=1, **options), other, table.path))
    return _link_set(rows, cols, distinct, ReadReport(tuple(reports), filters))


def _check_columns(columns: Columns | None, counts: tuple[int, ...], header: bool | None, name: str) -> None:
    """Positions or names of different columns, as many as one of ``counts``."""
    if columns is None:
        return
    if isinstance(columns, str) or not isinstance(columns, Sequence) or len(columns) not in counts:
        expected = " or ".join(map(str, counts))
        raise InputError(f"{name}: expected {expected} names or places of columns, got {columns!r}")
    for column in columns:
        if isinstance(column, bool) or not isinstance(column, int | str) or (isinstance(column, int) and column < 0):
            raise InputError(f"{name}: expected names or places (from 0) of columns, got {column!r}")
    if len(set(columns)) < len(columns):
        raise InputError(f"{name}: expected different columns, got {tuple(columns)!r}")
    if header is False and any(isinstance(column, str) for column in columns):
        raise InputError(f"{name}: columns have names in a header only, got {tuple(columns)!r} with header=False")


@dataclass
class _Side:
    """What was read about the rows, or about the columns, which are its ``name``."""

    name: str
    pair_ids: set[str]
    edge_ids: list[str] | None = None  # every id in the edges, sorted; None if there is no such table
    ends: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))  # (E, 2) in edge_ids, distinct
    weights: np.ndarray | None = None  # (E,)
    names: dict[str, str] = field(default_factory=dict)  # of some ids

    @property
    def ids(self) -> set[str]:
        """Ids of pairs and edges."""
        return self.pair_ids.union(self.edge_ids or ())

    def add_edges(self, table: Table, other: _Side, pairs: Path) -> FileReport:
        weights = _read_weights(table) if len(table.columns) > 2 else np.ones(len(table))
        self.edge_ids = ids = sorted(set(table.columns[0]).union(table.columns[1]))
        number_of = {name: number for number, name in enumerate(ids)}
        ends = np.array([[number_of[name] for name in column] for column in table.columns[:2]], dtype=np.int64)
        ends.sort(axis=0)  # (2, E)
        proper = ends[0] != ends[1]
        keys, group = np.unique(ends[0, proper] * len(ids) + ends[1, proper], return_inverse=True)
        self.ends, self.weights = np.stack(np.divmod(keys, len(ids)), axis=1), np.zeros(len(keys))
        np.maximum.at(self.weights, group, weights[proper])  # the largest of a link that is listed more than once
        matched = self._count_matches(set(ids), self.pair_ids, table.path, other.pair_ids, pairs)
        counts = (len(group) - len(keys), int((~proper).sum()), matched, len(ids))
        return FileReport(table.path.name, f"{self.name} edges", len(table), table.header, *counts)

    def add_names(self, table: Table, other: _Side, pairs: Path) -> FileReport:
        names: dict[str, str] = {}
        first_line: dict[str, int] = {}
        for key, name, line in zip(*table.columns, table.lines, strict=True):
            if names.setdefault(key, name) != name:
                earlier = f"{shortened(names[key])} on line {first_line[key]}"
                problem = f"expected one name for {shortened(key)}, got {shortened(name)} after {earlier}"
                raise TableError(table.path, problem, line)
            first_line.setdefault(key, line)
        self.names = {key: name for key, name in names.items() if name}
        matched = self._count_matches(set(names), self.ids, table.path, other.ids, pairs)
        counts = (len(table) - len(names), 0, matched, len(names))
        return FileReport(table.path.name, f"{self.name} names", len(table), table.header, *counts)

    def _count_matches(self, ids: set[str], known: set[str], path: Path, other: set[str], pairs: Path) -> int:
        """How many of the ids of a file are known; if none is, the error shows some of both."""
        matched = len(ids & known)
        if matched:
            return matched
        other_name, swapped = "column" if self.name == "row" else "row", len(ids & other)
        hint = f"; {swapped} are among its {other_name} ids: are its columns the other way round?" if swapped else ""
        raise TableError(
            path,
            f"expected ids of {pairs.name}, but none of its {len(ids)} ids ({examples(ids)}) is among the "
            f"{len(known)} {self.name} ids there ({examples(known)}){hint}",
        )

    def graph(self, nodes: list[str]) -> Graph:
        """The graph on ``nodes``, which contain every id of the edges; without links if no edges were read."""
        node_of = {node: number for number, node in enumerate(nodes)}
        numbers = np.array([node_of[name] for name in self.edge_ids or ()], dtype=np.int64)
        return Graph(numbers[self.ends], len(nodes), self.weights)

    def kept(self, graph: Graph) -> np.ndarray:
        """Nodes with a link in their graph; all if no edges were read."""
        if self.edge_ids is None:
            return np.arange(graph.num_nodes)
        return np.flatnonzero(np.diff(graph.adjacency().indptr))


def _link_set(rows: _Side, cols: _Side, pairs: list[tuple[str, ...]], report: ReadReport) -> LinkSet:
    """Everything that was read; with filters "paper", only rows and columns with a link in their graph."""
    row_ids, col_ids = sorted(rows.ids), sorted(cols.ids)
    row_of, col_of = ({name: number for number, name in enumerate(ids)} for ids in (row_ids, col_ids))
    links = LinkSet(
        tuple(row_ids),
        tuple(col_ids),
        torch.tensor([row_of[row] for row, _ in pairs]),
        torch.tensor([col_of[col] for _, col in pairs]),
        rows.graph(row_ids),
        cols.graph(col_ids),
        tuple(rows.names.get(name, name) for name in row_ids),
        tuple(cols.names.get(name, name) for name in col_ids),
        report.summary(),
        report,
    )
    if report.filters == "none":
        return links
    kept_rows, kept_cols = rows.kept(links.row_graph), cols.kept(links.col_graph)
    kept = int((np.isin(links.rows.numpy(), kept_rows) & np.isin(links.cols.numpy(), kept_cols)).sum())
    if kept == 0:
        raise InputError(
            f"filters: none of the {len(links)} pairs has its row among the {len(kept_rows)} of {len(row_ids)} rows "
            f"and its column among the {len(kept_cols)} of {len(col_ids)} columns that have a link in their graph; "
            "filters='none' would keep all"
        )
    report = replace(
        report,
        dropped_rows=len(row_ids) - len(kept_rows),
        dropped_cols=len(col_ids) - len(kept_cols),
        dropped_links=len(links) - kept,
    )
    return replace(links.keep(kept_rows, kept_cols), source=report.summary(), report=report)


def _read_weights(table: Table) -> np.ndarray:
    cells = table.columns[2]
    weights = np.array([float(cell) if is_number(cell) and "_" not in cell else math.nan for cell in cells])
    bad = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(bad):
        cell = cells[bad[0]]
        hint = "" if is_number(cell) else " (without that column, or if two columns are named, every weight is 1)"
        problem = f"expected a weight, a finite number of at least 0, got {shortened(cell)}{hint}"
        raise TableError(table.path, problem, table.lines[bad[0]])
    return weights
