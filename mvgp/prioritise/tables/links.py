"""read_links: a LinkSet from text tables."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...checks import check_choice, shown
from ...errors import InputError
from ...kernels.graph import Graph
from .columns import Columns, Table, check_columns, read_table
from .link_set import FileReport, LinkSet, ReadReport
from .text import MAX_BYTES, TableError, check_max_bytes, is_number, shown_field, some


def check_match(ids: set[str], path: Path, side: str, pair_ids: dict[str, set[str]], pairs: Path) -> int:
    """How many of ``ids`` are among those of the pairs; none is an error that shows some of both.

    :param ids: of the file.
    :param path: the file.
    :param side: "row" or "column".
    :param pair_ids: those of the pairs, for both sides.
    :param pairs: the file of pairs.
    """
    common = ids & pair_ids[side]
    if common:
        return len(common)
    other = "column" if side == "row" else "row"
    swapped = len(ids & pair_ids[other])
    hint = f"; {swapped} are among its {other} ids: are its columns the other way round?" if swapped else ""
    raise TableError(
        path,
        f"expected ids of {pairs.name}, but none of its {len(ids)} ids ({some(ids)}) is among the "
        f"{len(pair_ids[side])} {side} ids there ({some(pair_ids[side])}){hint}",
    )


def name_table(table: Table) -> tuple[dict[str, str], int]:
    """The name of each id, and how many lines repeat an earlier one. An empty name counts as none."""
    found: dict[str, str] = {}
    line_of: dict[str, int] = {}
    repeated = 0
    for one, name, line in zip(*table.columns, table.lines, strict=True):
        if one in found and found[one] != name:
            first = f"{shown_field(found[one])} on line {line_of[one]}"
            raise TableError(
                table.path, f"expected one name for {shown_field(one)}, got {shown_field(name)} after {first}", line
            )
        repeated += one in found
        found[one] = name
        line_of.setdefault(one, line)
    return {one: name for one, name in found.items() if name}, repeated


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """Links between different ids, each listed once.

    :param ids: every id in the table, sorted.
    :param ends: (E, 2) places of ids.
    :param weights: (E,).
    :param duplicates: how many lines were merged with an earlier one.
    :param self_links: how many lines linked an id to itself.
    """

    ids: list[str]
    ends: np.ndarray
    weights: np.ndarray
    duplicates: int
    self_links: int

    def graph(self, nodes: list[str]) -> Graph:
        """On ``nodes``, which hold every id of the table."""
        at = {node: place for place, node in enumerate(nodes)}
        places = np.array([at[one] for one in self.ids], dtype=np.int64)
        return Graph(places[self.ends], len(nodes), self.weights)


def edge_table(table: Table) -> EdgeTable:
    """From two columns of ids and perhaps one of weights.

    A link listed more than once, in either direction, counts once, with the largest of its weights.
    """
    weights = _weights(table) if len(table.columns) > 2 else np.ones(len(table))
    ids = sorted(set(table.columns[0]).union(table.columns[1]))
    at = {one: place for place, one in enumerate(ids)}
    ends = np.array([[at[one] for one in column] for column in table.columns[:2]], dtype=np.int64).T  # (E, 2)
    ends.sort(axis=1)
    proper = ends[:, 0] != ends[:, 1]
    ends, weights = ends[proper], weights[proper]
    keys, place = np.unique(ends[:, 0] * len(ids) + ends[:, 1], return_inverse=True)
    largest = np.zeros(len(keys))
    np.maximum.at(largest, place, weights)
    found = np.stack([keys // len(ids), keys % len(ids)], axis=1)
    return EdgeTable(ids, found, largest, len(ends) - len(keys), int((~proper).sum()))


def _weights(table: Table) -> Any:
    found = np.empty(len(table))
    for at, text in enumerate(table.columns[2]):
        number = float(text) if is_number(text) else math.nan
        if not math.isfinite(number) or number < 0 or "_" in text:
            expected = "expected a weight, a finite number of at least 0"
            hint = "" if is_number(text) else " (without that column, or if two columns are named, every weight is 1)"
            raise TableError(table.path, f"{expected}, got {shown_field(text)}{hint}", table.lines[at])
        found[at] = number
    return found


def linked_only(found: LinkSet, rows: bool, cols: bool) -> LinkSet:
    """Only rows and columns with a link in their graph.

    :param found: what was read.
    :param rows: whether there is a graph of the rows to filter by.
    :param cols: the same for columns.
    """
    row_at = _linked(found.row_graph) if rows else np.arange(found.shape[0])
    col_at = _linked(found.col_graph) if cols else np.arange(found.shape[1])
    left = int((np.isin(found.rows.numpy(), row_at) & np.isin(found.cols.numpy(), col_at)).sum())
    if left == 0:
        raise InputError(
            f"filters: none of the {len(found)} pairs has its row among the {len(row_at)} of {found.shape[0]} rows and "
            f"its column among the {len(col_at)} of {found.shape[1]} columns that have a link in their graph; "
            "filters='none' would keep all"
        )
    kept = found.keep(row_at, col_at)
    if found.report is None:
        return kept
    report = found.report.with_dropped(found.shape[0] - len(row_at), found.shape[1] - len(col_at), len(found) - left)
    return replace(kept, source=report.summary(), report=report)


def _linked(graph: Graph) -> np.ndarray:
    return np.flatnonzero(np.diff(graph.adjacency().indptr))


FilePath = str | os.PathLike[str]


class LinkTables:
    """What has been read so far. A side is "row" or "column".

    :param pairs: the file of pairs.
    :param columns: of pairs.
    :param header: of every file.
    :param delimiter: of every file.
    :param max_bytes: of every file.
    """

    def __init__(
        self, pairs: FilePath, columns: Columns | None, header: bool | None, delimiter: str | None, max_bytes: int
    ) -> None:
        self._options: dict[str, Any] = {"header": header, "delimiter": delimiter, "max_bytes": max_bytes}
        table = read_table(pairs, columns, **self._options)
        self._path = table.path
        self._pairs = list(dict.fromkeys(zip(*table.columns, strict=True)))  # distinct (row id, column id)
        self._pair_ids = {"row": set(table.columns[0]), "column": set(table.columns[1])}
        self._ids = dict(self._pair_ids)  # and those of edges
        self._edges: dict[str, EdgeTable] = {}
        self._names: dict[str, dict[str, str]] = {"row": {}, "column": {}}
        duplicates = len(table) - len(self._pairs)
        self._reports = [FileReport(table.path.name, "pairs", len(table), table.header, duplicates)]

    def add_edges(self, side: str, path: FilePath, columns: Columns | None) -> None:
        """The graph of one side."""
        table = read_table(path, columns, weighted=True, **self._options)
        self._edges[side] = edges = edge_table(table)
        matched = check_match(set(edges.ids), table.path, side, self._pair_ids, self._path)
        self._ids[side] = self._ids[side].union(edges.ids)
        counts = (edges.duplicates, edges.self_links, matched, len(edges.ids))
        self._reports.append(FileReport(table.path.name, f"{side} edges", len(table), table.header, *counts))

    def add_names(self, side: str, path: FilePath, columns: Columns | None) -> None:
        """The names of one side, after its edges."""
        table = read_table(path, columns, ids=1, **self._options)
        self._names[side], duplicates = name_table(table)
        ids = set(table.columns[0])
        counts = (duplicates, 0, check_match(ids, table.path, side, self._ids, self._path), len(ids))
        self._reports.append(FileReport(table.path.name, f"{side} names", len(table), table.header, *counts))

    def link_set(self, filters: str) -> LinkSet:
        """All of it; with filters "paper", what has links in the graphs that were given."""
        ids = {side: sorted(found) for side, found in self._ids.items()}
        rows, cols = ({one: at for at, one in enumerate(ids[side])} for side in ("row", "column"))
        report = ReadReport(tuple(self._reports), filters)
        found = LinkSet(
            tuple(ids["row"]),
            tuple(ids["column"]),
            torch.tensor([rows[row] for row, _ in self._pairs]),
            torch.tensor([cols[col] for _, col in self._pairs]),
            self._graph("row", ids["row"]),
            self._graph("column", ids["column"]),
            tuple(self._names["row"].get(one, one) for one in ids["row"]),
            tuple(self._names["column"].get(one, one) for one in ids["column"]),
            report.summary(),
            report,
        )
        return linked_only(found, "row" in self._edges, "column" in self._edges) if filters == "paper" else found

    def _graph(self, side: str, nodes: list[str]) -> Graph:
        return self._edges[side].graph(nodes) if side in self._edges else Graph([], len(nodes))


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

    A table is UTF-8 text, plain or gzip'd, with fields separated by tabs, commas or semicolons, told from its content.
    Ids are text. Blank lines and lines that begin with ``#`` are skipped. Rows and columns are the ids of pairs and
    edges, sorted: an edge may lead to an id that has no pair yet. What was read and left out is in ``LinkSet.report``.

    :param pairs: row id, column id; a pair listed twice counts once.
    :param row_edges: two row ids and perhaps a weight. A link listed more than once, in either direction, counts once,
        with the largest of its weights; one from an id to itself is dropped.
    :param col_edges: the same for columns.
    :param row_names: row id, name; ids without a name keep their id.
    :param col_names: the same for columns.
    :param filters: "paper" keeps rows with a link in the row graph and columns with one in the column graph, where
        there is such a graph; "none" keeps all.
    :param header: whether tables begin with one; left out, it is told from the content of each.
    :param delimiter: of all tables; left out, it is told from the content of each.
    :param pairs_columns: two names of columns, or places from 0; (0, 1) when left out.
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
    check_options(filters, header, delimiter)
    check_columns(pairs_columns, (2,), header, "pairs_columns")
    for name, columns in (("row_edges_columns", row_edges_columns), ("col_edges_columns", col_edges_columns)):
        check_columns(columns, (2, 3), header, name)
    for name, columns in (("row_names_columns", row_names_columns), ("col_names_columns", col_names_columns)):
        check_columns(columns, (2,), header, name)
    tables = LinkTables(pairs, pairs_columns, header, delimiter, check_max_bytes(max_bytes))
    for side, edges, columns in (("row", row_edges, row_edges_columns), ("column", col_edges, col_edges_columns)):
        if edges is not None:
            tables.add_edges(side, edges, columns)
    for side, names, columns in (("row", row_names, row_names_columns), ("column", col_names, col_names_columns)):
        if names is not None:
            tables.add_names(side, names, columns)
    return tables.link_set(filters)


def check_options(filters: object, header: object, delimiter: object) -> None:
    """Whether they are among what there is."""
    check_choice(filters, "filters", FILTERS)
    if header is not None and not isinstance(header, bool):
        raise InputError(f"header: expected True, False or None, got {shown(header)}")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"#\r\n'):
        raise InputError(f"delimiter: expected one character or None, got {shown(delimiter)}")
