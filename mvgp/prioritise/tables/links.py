"""read_links: a LinkSet from text tables of pairs, edges and names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...checks import check_choice, shown
from ...errors import InputError
from ...kernels.graph import Graph
from .link_set import FileReport, LinkSet, ReadReport
from .reader import MAX_BYTES, Columns, FilePath, Table, TableError, examples, is_number, read_table, shortened

FILTERS = ("paper", "none")


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
    _check_options(filters, header, delimiter)
    _check_columns(pairs_columns, (2,), header, "pairs_columns")
    for name, columns in (("row_edges_columns", row_edges_columns), ("col_edges_columns", col_edges_columns)):
        _check_columns(columns, (2, 3), header, name)
    for name, columns in (("row_names_columns", row_names_columns), ("col_names_columns", col_names_columns)):
        _check_columns(columns, (2,), header, name)
    options: dict[str, Any] = {"header": header, "delimiter": delimiter, "max_bytes": max_bytes}
    table = read_table(pairs, pairs_columns, **options)
    distinct = list(dict.fromkeys(zip(*table.columns, strict=True)))  # (row id, column id)
    reports = [FileReport(table.path.name, "pairs", len(table), table.header, len(table) - len(distinct))]
    rows, cols = (_Side(name, set(ids)) for name, ids in zip(("row", "column"), table.columns, strict=True))
    for side, other, edges, columns in (
        (rows, cols, row_edges, row_edges_columns),
        (cols, rows, col_edges, col_edges_columns),
    ):
        if edges is not None:
            reports.append(side.add_edges(read_table(edges, columns, weighted=True, **options), other, table.path))
    for side, other, names, columns in (
        (rows, cols, row_names, row_names_columns),
        (cols, rows, col_names, col_names_columns),
    ):
        if names is not None:
            reports.append(side.add_names(read_table(names, columns, ids=1, **options), other, table.path))
    return _link_set(rows, cols, distinct, ReadReport(tuple(reports), filters))


def _check_options(filters: object, header: object, delimiter: object) -> None:
    check_choice(filters, "filters", FILTERS)
    if header is not None and not isinstance(header, bool):
        raise InputError(f"header: expected True, False or None, got {shown(header)}")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"#\r\n'):
        raise InputError(f"delimiter: expected one character or None, got {shown(delimiter)}")


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
    """What was read about the rows, or about the columns.

    :param name: "row" or "column".
    :param pair_ids: ids in the pairs.
    :param edges: of the graph; None if there is no such table.
    :param names: of some ids.
    """

    name: str
    pair_ids: set[str]
    edges: _Edges | None = None
    names: dict[str, str] = field(default_factory=dict)

    @property
    def ids(self) -> set[str]:
        """Ids of pairs and edges."""
        return self.pair_ids if self.edges is None else self.pair_ids.union(self.edges.ids)

    def add_edges(self, table: Table, other: _Side, pairs: Path) -> FileReport:
        self.edges = edges = _read_edges(table)
        matched = self._count_matches(set(edges.ids), self.pair_ids, table.path, other.pair_ids, pairs)
        counts = (edges.duplicates, edges.self_links, matched, len(edges.ids))
        return FileReport(table.path.name, f"{self.name} edges", len(table), table.header, *counts)

    def add_names(self, table: Table, other: _Side, pairs: Path) -> FileReport:
        self.names, duplicates = _read_names(table)
        ids = set(table.columns[0])
        counts = (duplicates, 0, self._count_matches(ids, self.ids, table.path, other.ids, pairs), len(ids))
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
        if self.edges is None:
            return Graph([], len(nodes))
        node_of = {node: number for number, node in enumerate(nodes)}
        numbers = np.array([node_of[name] for name in self.edges.ids], dtype=np.int64)
        return Graph(numbers[self.edges.ends], len(nodes), self.edges.weights)


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
    kept_rows = np.arange(len(row_ids)) if rows.edges is None else _linked(links.row_graph)
    kept_cols = np.arange(len(col_ids)) if cols.edges is None else _linked(links.col_graph)
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


def _linked(graph: Graph) -> np.ndarray:
    return np.flatnonzero(np.diff(graph.adjacency().indptr))


@dataclass(frozen=True, eq=False)
class _Edges:
    """Links between different ids, each listed once.

    :param ids: every id in the table, sorted.
    :param ends: (E, 2) positions in ``ids``.
    :param weights: (E,).
    :param duplicates: how many lines were merged with an earlier one.
    :param self_links: how many lines linked an id to itself.
    """

    ids: list[str]
    ends: np.ndarray
    weights: np.ndarray
    duplicates: int
    self_links: int


def _read_edges(table: Table) -> _Edges:
    """Edges from two columns of ids and perhaps one of weights.

    A link listed more than once, in either direction, counts once, with the largest of its weights.
    """
    weights = _read_weights(table) if len(table.columns) > 2 else np.ones(len(table))
    ids = sorted(set(table.columns[0]).union(table.columns[1]))
    number_of = {name: number for number, name in enumerate(ids)}
    ends = np.array([[number_of[name] for name in column] for column in table.columns[:2]], dtype=np.int64).T  # (E, 2)
    ends.sort(axis=1)
    proper = ends[:, 0] != ends[:, 1]
    ends, weights = ends[proper], weights[proper]
    keys, group = np.unique(ends[:, 0] * len(ids) + ends[:, 1], return_inverse=True)
    largest = np.zeros(len(keys))
    np.maximum.at(largest, group, weights)
    distinct = np.stack([keys // len(ids), keys % len(ids)], axis=1)
    return _Edges(ids, distinct, largest, len(ends) - len(keys), int((~proper).sum()))


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


def _read_names(table: Table) -> tuple[dict[str, str], int]:
    """The name of each id, and how many lines repeat an earlier one. An empty name is left out."""
    names: dict[str, str] = {}
    first_line: dict[str, int] = {}
    for key, name, line in zip(*table.columns, table.lines, strict=True):
        if names.setdefault(key, name) != name:
            earlier = f"{shortened(names[key])} on line {first_line[key]}"
            problem = f"expected one name for {shortened(key)}, got {shortened(name)} after {earlier}"
            raise TableError(table.path, problem, line)
        first_line.setdefault(key, line)
    return {key: name for key, name in names.items() if name}, len(table) - len(names)
