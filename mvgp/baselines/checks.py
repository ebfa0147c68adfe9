"""Checks of the settings of a baseline, and of what it is fitted to."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..data import PositiveUnlabelled
from ..errors import InputError
from ..kernels import Graph

DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


def check_positive(given: Any, name: str) -> None:
    """A finite number above 0."""
    if not _is_number(given) or not 0 < given < float("inf"):
        raise InputError(f"{name}: expected a positive number, got {given!r}")


def check_not_negative(given: Any, name: str) -> None:
    """A finite number of at least 0."""
    if not _is_number(given) or not 0 <= given < float("inf"):
        raise InputError(f"{name}: expected a number of at least 0, got {given!r}")


def check_share(given: Any, name: str) -> None:
    """A number above 0 and at most 1."""
    if not _is_number(given) or not 0 < given <= 1:
        raise InputError(f"{name}: expected a number above 0 and at most 1, got {given!r}")


def check_count(given: Any, name: str, least: int = 1) -> None:
    """A whole number of at least ``least``."""
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise InputError(f"{name}: expected a whole number of at least {least}, got {given!r}")


def check_dtype(given: Any) -> None:
    """Single or double precision."""
    if given not in DTYPES:
        raise InputError(f"dtype: expected torch.float32 or torch.float64, got {given!r}")


def check_graph(given: Any, name: str) -> None:
    """A graph."""
    if not isinstance(given, Graph):
        raise InputError(f"{name}: expected mvgp.kernels.Graph, got {type(given).__name__}")


def check_nodes(graph: Graph, count: int, name: str) -> None:
    """A graph with a node for each row, or for each column, of the links."""
    if graph.num_nodes != count:
        raise InputError(f"{name}: expected {count} nodes as in the links, got {graph.num_nodes}")


def check_links(given: Any) -> None:
    """Known links; labels of both kinds are none, as a negative says something that no baseline would use."""
    if not isinstance(given, PositiveUnlabelled):
        raise InputError(f"links: expected mvgp.PositiveUnlabelled, got {type(given).__name__}")


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)
