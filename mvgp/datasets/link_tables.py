"""LinkTables: pairs, edges and names as they are read, one file after the other, and the LinkSet they make."""

from __future__ import annotations

import os
from typing import Any

import torch

from ..kernels import Graph
from .edge_table import EdgeTable, edge_table
from .link_set import LinkSet
from .matching import check_match
from .name_table import name_table
from .paper_filters import linked_only
from .read_report import FileReport, ReadReport
from .table import Columns, read_table

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
