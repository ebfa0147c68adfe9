"""Sparse matrices that baselines are made of: links, and normalised weights of graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ...checks import check_index, check_instance
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import InputError
from ...kernels.graph import Graph
from ...metrics.ranking import Ranker

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


@runtime_checkable
class Baseline(Protocol):
    """A recipe without a prior. Its ``repr`` states the settings that matter; ``fit`` does not change it."""

    def fit(self, links: PositiveUnlabelled) -> Ranker:
        """The ranker given ``links``."""
        ...


BLOCK = 256  # rows computed at a time


class BlockRanker(ABC):
    """A fitted baseline: a :class:`~mvgp.metrics.Ranker` that computes the rows asked for, when they are asked for.

    :param shape: (M, N).
    :param dtype: of the scores.
    """

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype) -> None:
        self._shape, self.dtype = shape, dtype

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self._shape

    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): the scores of whole rows, all of them when ``rows`` (R,) is left out."""
        wanted = np.arange(self.shape[0]) if rows is None else check_index(rows, self.shape[0], "rows").cpu().numpy()
        found = np.empty((len(wanted), self.shape[1]), dtype=DTYPES[self.dtype])
        for start in range(0, len(wanted), BLOCK):
            found[start : start + BLOCK] = self._block(wanted[start : start + BLOCK])
        return torch.from_numpy(found)

    @abstractmethod
    def _block(self, rows: np.ndarray) -> np.ndarray:
        """(R, N) of at most :data:`BLOCK` rows (R,)."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]} x {self.shape[1]})"


def incidence(links: PositiveUnlabelled, dtype: torch.dtype) -> Any:
    """X, a scipy CSR array (M, N): 1 where there is a link."""
    check_links(links)
    ones = np.ones(len(links), dtype=DTYPES[dtype])
    return sparse.csr_array((ones, (links.rows.cpu().numpy(), links.cols.cpu().numpy())), shape=links.shape)


def weights(graph: Graph, dtype: torch.dtype) -> Any:
    """W, a symmetric scipy CSR array (N, N)."""
    return graph.adjacency().astype(DTYPES[dtype])


def row_normalised(matrix: Any) -> Any:
    """D^-1 A: each row adds up to 1, or to 0 when it was empty."""
    return (sparse.diags_array(_power_of_sums(matrix, 1, -1.0)) @ matrix).tocsr()


def symmetrically_normalised(matrix: Any) -> Any:
    """D^-1/2 A E^-1/2 with the sums D of the rows and E of the columns; its singular values are at most 1."""
    left, right = (sparse.diags_array(_power_of_sums(matrix, axis, -0.5)) for axis in (1, 0))
    return (left @ matrix @ right).tocsr()


def _power_of_sums(matrix: Any, axis: int, power: float) -> np.ndarray:
    """The sums along ``axis`` to a power, in the precision of ``matrix``; 0 where the sum is 0."""
    sums = np.asarray(matrix.sum(axis=axis), dtype=np.float64).ravel()
    found = np.zeros_like(sums)
    found[sums > 0] = sums[sums > 0] ** power
    return found.astype(matrix.dtype)
