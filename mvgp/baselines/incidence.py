"""Sparse matrices that baselines are made of: links, and normalised weights of graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse

from ..data import PositiveUnlabelled
from ..kernels import Graph
from .checks import DTYPES, check_links


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
