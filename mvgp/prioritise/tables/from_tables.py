"""read_links: a LinkSet from text tables of links, edges, features and names."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...checks import check_choice, shown
from ...errors import InputError
from ...kernels.graph import Graph
from .graphs import feature_table, merge_lines, union_graph
from .link_set import Dropped, FileReport, LinkSet, ReadReport
from .reader import (
    MAX_BYTES,
    Columns,
    FilePath,
    NumberTable,
    Table,
    TableError,
    examples,
    is_number,
    read_numbers,
    read_table,
    shortened,
)

Source = FilePath | Any  # of a table: a file, or a pandas frame
FILTERS = ("linked", "paper", "none")


def read_links(
    pairs: Source,
    row_edges: Source | Sequence[Source] | None = None,
    col_edges: Source | Sequence[Source] | None = None,
    row_names: Source | None = None,
    col_names: Source | None = None,
    *,
    row_features: Source | Sequence[Source] | None = None,
    col_features: Source | Sequence[Source] | None = None,
    filters: str = "linked",
    header: bool | None = None,
    delimiter: str | None = None,
    pairs_columns: Columns | None = None,
    row_edges_columns: Columns | None = None,
    col_edges_columns: Columns | None = None,
    row_names_columns: Columns | None = None,
    col_names_columns: Columns | None = None,
    max_bytes: int = MAX_BYTES,
) -> LinkSet:
    r"""Known links, graphs and features of the rows and of the columns, and names, from text tables or pandas frames.

    A table is UTF-8 text, plain or gzip'd, with fields separated by tabs, commas or semicolons, found from the
    content. Ids are text. Blank lines and lines that begin with ``#`` are skipped. Rows and columns are the ids of
    pairs, edges and features, sorted: an edge may lead to an id that has no pair yet. ``LinkSet.report`` says what was
    read and what was left out.

    Any of the tables may be a pandas frame with the same columns; ``header``, ``delimiter`` and ``max_bytes`` are for
    files. The ids of a frame of features are its index, unless that only counts the lines.

    :param pairs: row id, column id; a pair listed twice counts once.
    :param row_edges: two row ids and perhaps a weight. A link listed more than once, in either direction, counts once,
        with the largest of its weights; one from an id to itself is dropped. Several tables, in a list, are several
        graphs: ``LinkSet.row_graphs``.
    :param col_edges: the same for columns.
    :param row_names: row id, name; ids without a name keep their id.
    :param col_names: the same for columns.
    :param row_features: row id and numbers, with a header; several tables in a list. Each is standardised
        (``LinkSet.row_features``) and becomes a graph of nearest neighbours by cosine similarity, after those of the
        edges in ``LinkSet.row_graphs``. Ids that a table does not have get zeros, the mean, and no neighbours.
    :param col_features: the same for columns.
    :param filters: "linked" keeps all that have a known link, or a link in one of their graphs. "paper" keeps rows
        with a link in a graph of the rows and columns with one in a graph of the columns, where there is such a graph:
        known links of others are lost. "none" keeps all.
    :param header: whether tables begin with a header; when left out, the content of each decides.
    :param delimiter: of all tables; when left out, the content of each decides.
    :param pairs_columns: two names of columns, or positions from 0; (0, 1) when left out.
    :param row_edges_columns: two, or three with the weight; when left out, (0, 1) and the third if there is one. They
        are those of each table of ``row_edges``.
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
        3 rows x 3 columns, 3 links; filters linked dropped 0 rows, 0 columns and 0 links

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
    table = _table(pairs, pairs_columns, "pairs", **options)
    distinct = list(dict.fromkeys(zip(*table.columns, strict=True)))  # (row id, column id)
    reports = [FileReport(table.path.name, "pairs", len(table), table.header, len(table) - len(distinct))]
    rows, cols = (_Side(name, set(ids)) for name, ids in zip(("row", "column"), table.columns, strict=True))
    edges = ((rows, cols, row_edges, row_edges_columns), (cols, rows, col_edges, col_edges_columns))
    for side, other, paths, columns in edges:
        for path in _listed(paths):
            edge_table = _table(path, columns, f"{side.name}_edges", weighted=True, **options)
            reports.append(side.add_edges(edge_table, other, table.path))
    for side, other, paths in ((rows, cols, row_features), (cols, rows, col_features)):
        for path in _listed(paths):
            numbers = _numbers(path, f"{side.name}_features") if _is_frame(path) else read_numbers(path, **options)
            reports.append(side.add_features(numbers, other, table.path))
    names = ((rows, cols, row_names, row_names_columns), (cols, rows, col_names, col_names_columns))
    for side, other, name_path, columns in names:
        if name_path is not None:
            name_table = _table(name_path, columns, f"{side.name}_names", ids=1, **options)
            reports.append(side.add_names(name_table, other, table.path))
    return _link_set(rows, cols, distinct, ReadReport(tuple(reports), filters))


def _listed(paths: Source | Sequence[Source] | None) -> Sequence[Source]:
    """None, one table or several: as a list."""
    if paths is None:
        return ()
    return [paths] if isinstance(paths, str | bytes | os.PathLike) or not isinstance(paths, Sequence) else paths


def _is_frame(source: Any) -> bool:
    """Whether it is a pandas frame and no path."""
    return all(hasattr(source, part) for part in ("iloc", "columns", "index"))


def _table(
    source: Source, columns: Columns | None, name: str, *, ids: int = 2, weighted: bool = False, **options: Any
) -> Table:
    """A table of a file, or of a pandas frame, whose cells become text; its ``name`` stands for that of a file."""
    if not _is_frame(source):
        return read_table(source, columns, ids=ids, weighted=weighted, **options)
    frame: Any = source
    header = tuple(str(column) for column in frame.columns)
    path = Path(f"frame of {name}")
    requested: Columns = range(2 + (weighted and len(header) > 2)) if columns is None else columns
    texts = []
    for number, column in enumerate(requested):
        position = header.index(column) if column in header else column
        if not isinstance(position, int) or position >= len(header):
            raise TableError(path, f"expected a column {column!r}, got the columns {', '.join(header)}")
        cells, missing = frame.iloc[:, position], frame.iloc[:, position].isna().to_numpy()
        if number < ids and missing.any():
            raise TableError(
                path, f"expected an id in column {header[position]}, got nothing", int(missing.argmax()) + 1
            )
        texts.append(["" if gone else str(cell).strip() for cell, gone in zip(cells, missing, strict=True)])
    if not len(frame):
        raise TableError(path, "expected at least one line, got none")
    return Table(path, tuple(texts), range(1, len(frame) + 1), header)


def _numbers(frame: Any, name: str) -> NumberTable:
    """A pandas frame of numbers; the ids are its index, or its first column where the index counts the lines."""
    path, counts = Path(f"frame of {name}"), list(frame.index) == list(range(len(frame)))
    indexed = frame.set_index(frame.columns[0]) if counts and len(frame.columns) else frame
    try:
        values = indexed.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise TableError(path, f"expected numbers in every column but that of the ids, got {error}") from None
    bad = ~np.isfinite(values)
    if bad.any() or values.size == 0:
        line, column = (int(part[0]) for part in bad.nonzero()) if bad.any() else (0, 0)
        got = f"{values[line, column]} in column {indexed.columns[column]}" if bad.any() else "none"
        raise TableError(path, f"expected finite numbers, got {got}", line + 1)
    names = tuple(str(column) for column in indexed.columns)
    return NumberTable(
        path, [str(one).strip() for one in indexed.index], values, names, range(1, len(frame) + 1), names
    )


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
class _Edges:
    """The edges of one table."""

    name: str
    ids: list[str]  # every id in it, sorted
    ends: np.ndarray  # (E, 2) in ids, distinct
    weights: np.ndarray  # (E,)

    def graph(self, node_of: dict[str, int]) -> Graph:
        """The graph on the nodes, among which is every id."""
        numbers = np.array([node_of[name] for name in self.ids], dtype=np.int64)
        return Graph(numbers[self.ends], len(node_of), self.weights)


@dataclass
class _Side:
    """What was read about the rows, or about the columns, which are its ``name``."""

    name: str
    pair_ids: set[str]
    edges: list[_Edges] = field(default_factory=list)
    features: list[NumberTable] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # of some ids

    @property
    def ids(self) -> set[str]:
        """Ids of pairs, edges and features."""
        return self.pair_ids.union(*(table.ids for table in self.edges), *(table.ids for table in self.features))

    @property
    def has_graph(self) -> bool:
        """Whether edges or features were read."""
        return bool(self.edges or self.features)

    def add_edges(self, table: Table, other: _Side, pairs: Path) -> FileReport:
        weights = _read_weights(table) if len(table.columns) > 2 else np.ones(len(table))
        ids = sorted(set(table.columns[0]).union(table.columns[1]))
        number_of = {name: number for number, name in enumerate(ids)}
        ends = np.array([[number_of[name] for name in column] for column in table.columns[:2]], dtype=np.int64)
        ends.sort(axis=0)  # (2, E)
        proper = ends[0] != ends[1]
        keys, group = np.unique(ends[0, proper] * len(ids) + ends[1, proper], return_inverse=True)
        largest = np.zeros(len(keys))
        np.maximum.at(largest, group, weights[proper])  # of a link that is listed more than once
        matched = self._count_matches(set(ids), self.pair_ids, table.path, other.pair_ids, pairs)
        self.edges.append(_Edges(table.path.name, ids, np.stack(np.divmod(keys, len(ids)), axis=1), largest))
        counts = (len(group) - len(keys), int((~proper).sum()), matched, len(ids))
        return FileReport(table.path.name, f"{self.name} edges", len(table), table.header, *counts)

    def add_features(self, table: NumberTable, other: _Side, pairs: Path) -> FileReport:
        merged = merge_lines(table)
        matched = self._count_matches(set(merged.ids), self.pair_ids, table.path, other.pair_ids, pairs)
        self.features.append(merged)
        counts = (len(table.ids) - len(merged.ids), 0, matched, len(merged.ids), len(table.names))
        return FileReport(table.path.name, f"{self.name} features", len(table.ids), table.header, *counts)

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

    def axis(self, nodes: list[str], side: str) -> dict[str, Any]:
        """Graphs and features of the nodes, as arguments of a LinkSet."""
        node_of = {node: number for number, node in enumerate(nodes)}
        features = tuple(feature_table(table, nodes) for table in self.features)
        graphs = (*(edges.graph(node_of) for edges in self.edges), *(table.graph() for table in features))
        names = (*(edges.name for edges in self.edges), *(table.name for table in features))
        every = graphs or (Graph([], len(nodes)),)
        return {
            f"{side}_graph": union_graph(every),
            f"{side}_graphs": every,
            f"{side}_graph_names": names,
            f"{side}_features": features,
            f"{side}_names": tuple(self.names.get(name, name) for name in nodes),
        }


def _link_set(rows: _Side, cols: _Side, pairs: list[tuple[str, ...]], report: ReadReport) -> LinkSet:
    """Everything that was read, without what the filters leave out."""
    row_ids, col_ids = sorted(rows.ids), sorted(cols.ids)
    row_of, col_of = ({name: number for number, name in enumerate(ids)} for ids in (row_ids, col_ids))
    links = LinkSet(
        tuple(row_ids),
        tuple(col_ids),
        torch.tensor([row_of[row] for row, _ in pairs]),
        torch.tensor([col_of[col] for _, col in pairs]),
        **rows.axis(row_ids, "row"),
        **cols.axis(col_ids, "col"),
    )
    row_counts, col_counts = (
        np.bincount(part.numpy(), minlength=count)
        for part, count in zip((links.rows, links.cols), links.shape, strict=True)
    )
    kept_rows = _kept(report.filters, rows, links.row_graph, row_counts)
    kept_cols = _kept(report.filters, cols, links.col_graph, col_counts)
    kept = int((kept_rows[links.rows.numpy()] & kept_cols[links.cols.numpy()]).sum())
    if kept == 0:
        raise InputError(
            f"filters: none of the {len(links)} pairs has its row among the {kept_rows.sum()} of {len(row_ids)} rows "
            f"and its column among the {kept_cols.sum()} of {len(col_ids)} columns that have a link in their graph; "
            "filters='linked' would keep all pairs"
        )
    report = replace(
        report,
        shape=(int(kept_rows.sum()), int(kept_cols.sum())),
        links=kept,
        row_drops=_drops(links.row_ids, links.row_names, row_counts, kept_rows),
        col_drops=_drops(links.col_ids, links.col_names, col_counts, kept_cols),
        dropped_links=len(links) - kept,
    )
    if report.row_drops or report.col_drops:
        links = links.keep(np.flatnonzero(kept_rows), np.flatnonzero(kept_cols))
    lacking = {
        f"{side.name} features": iter([len(set(ids).difference(table.ids)) for table in side.features])
        for side, ids in ((rows, links.row_ids), (cols, links.col_ids))
    }
    files = (replace(file, missing=next(lacking[file.what])) if file.columns else file for file in report.files)
    report = replace(report, files=tuple(files))
    return replace(links, source=report.summary(), report=report)


def _kept(filters: str, side: _Side, graph: Graph, links: np.ndarray) -> np.ndarray:
    """Which nodes the filters keep, as booleans; ``links`` are their numbers of known links."""
    if filters == "none" or not side.has_graph:
        return np.ones(graph.num_nodes, dtype=bool)
    in_graph: np.ndarray = np.diff(graph.adjacency().indptr) > 0
    return in_graph if filters == "paper" else in_graph | (links > 0)


def _drops(ids: Sequence[str], names: Sequence[str], links: np.ndarray, kept: np.ndarray) -> tuple[Dropped, ...]:
    return tuple(Dropped(ids[node], names[node], int(links[node])) for node in np.flatnonzero(~kept).tolist())


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
