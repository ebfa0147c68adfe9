"""LinkSet: known links between two kinds of things, a graph of each, and their names."""

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
            ids = _distinct(getattr(self, f"{side}_ids"), f"{side}_ids")
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
        kept_rows, kept_cols = _positions(rows, self.shape[0], "rows"), _positions(cols, self.shape[1], "cols")
        new_row, new_col = _new_numbers(kept_rows, self.shape[0]), _new_numbers(kept_cols, self.shape[1])
        kept = (new_row[self.rows] >= 0) & (new_col[self.cols] >= 0)
        if not bool(kept.any()):
            sizes = f"{len(kept_rows)} rows, {len(kept_cols)} columns"
            raise InputError(f"none of the {len(self)} links is left among {sizes}")
        return replace(
            self,
            row_ids=tuple(self.row_ids[row] for row in kept_rows.tolist()),
            col_ids=tuple(self.col_ids[col] for col in kept_cols.tolist()),
            rows=new_row[self.rows[kept]],
            cols=new_col[self.cols[kept]],
            row_graph=_subgraph(self.row_graph, kept_rows),
            col_graph=_subgraph(self.col_graph, kept_cols),
            row_names=tuple(self.row_names[row] for row in kept_rows.tolist()),
            col_names=tuple(self.col_names[col] for col in kept_cols.tolist()),
        )

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


def _distinct(ids: Sequence[Any], name: str) -> tuple[str, ...]:
    entries = _strings(ids, name)
    if len(set(entries)) < len(entries):
        repeated = next(entry for entry, count in Counter(entries).items() if count > 1)
        raise InputError(f"{name}: expected distinct ids, got {repeated!r} more than once")
    return entries


def _positions(positions: Any, count: int, name: str) -> Tensor:
    if positions is None:
        return torch.arange(count)
    checked = check_index(positions, count, name).cpu()
    if len(checked) == 0 or len(checked.unique()) != len(checked):
        raise InputError(f"{name}: expected distinct positions, at least one, got {checked.tolist()[:10]}")
    return checked


def _new_numbers(kept: Tensor, count: int) -> Tensor:
    """(count,): the new number of each position, -1 for those that are dropped."""
    numbers = torch.full((count,), -1)
    numbers[kept] = torch.arange(len(kept))
    return numbers


def _subgraph(graph: Graph, kept: Tensor) -> Graph:
    nodes = kept.numpy()
    return Graph.from_adjacency(graph.adjacency()[nodes][:, nodes])
