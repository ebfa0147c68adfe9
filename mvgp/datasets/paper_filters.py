"""The paper's filters: only what has a link in its graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import InputError
from ..kernels import Graph
from .link_set import LinkSet


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
