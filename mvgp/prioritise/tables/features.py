"""FeatureTable: numbers that describe the rows or the columns of a LinkSet, standardised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...checks import check_instance
from ...errors import InputError
from ...kernels.graph import Graph
from ...tensor_checks import check_index, check_list, check_matrix, check_name
from .graphs import NEIGHBOURS, neighbour_graph
from .reader import NumberTable, TableError, shortened

CONSTANT = 1e-15  # a range below this share of the largest value is rounding


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
