"""Edge lists: pairs of ids of one kind, with weights or without."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels import Graph
from .headers import is_number
from .table import Table
from .table_error import TableError, shown


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
            raise TableError(table.path, f"{expected}, got {shown(text)}{hint}", table.lines[at])
        found[at] = number
    return found
