"""Checks of the settings of a baseline, and of what it is fitted to."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..checks import check_instance
from ..data import PositiveUnlabelled
from ..errors import InputError
from ..kernels import Graph

DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


def check_graph(given: Any, name: str) -> None:
    """A graph."""
    check_instance(given, name, Graph, "mvgp.kernels.Graph")


def check_nodes(graph: Graph, count: int, name: str) -> None:
    """A graph with a node for each row, or for each column, of the links."""
    if graph.num_nodes != count:
        raise InputError(f"{name}: expected {count} nodes as in the links, got {graph.num_nodes}")


def check_links(given: Any) -> None:
    """Known links; labels of both kinds are none, as a negative says something that no baseline would use."""
    check_instance(given, "links", PositiveUnlabelled, "mvgp.PositiveUnlabelled")
