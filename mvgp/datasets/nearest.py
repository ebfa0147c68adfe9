"""Graph of nearest neighbours by what things have in common."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from scipy import sparse

from ..errors import InputError
from ..kernels import Graph

BLOCK = 512  # rows whose similarities to all others are held at once
DECIMALS = 6  # similarities are rounded, so that ties are ties on every machine


def information_content(sets: Collection[Collection[str]]) -> dict[str, float]:
    """Minus the logarithm of the share of the sets that each term is in.

    :param sets: terms of each thing.
    """
    counts: dict[str, int] = {}
    for terms in sets:
        for term in terms:
            counts[term] = counts.get(term, 0) + 1
    return {term: float(np.log(len(sets) / count)) for term, count in counts.items()}


def nearest_graph(sets: Sequence[Collection[str]], weight: dict[str, float], neighbours: int = 10) -> Graph:
    """Each thing linked to those most like it; the weight of a link is the similarity.

    Similarity is the cosine of two vectors with one entry for each term, its weight if the thing has it and 0
    otherwise. A link is there if one of its ends is among the nearest of the other. Things without a term in common are
    not linked.

    :param sets: terms of each of the N things.
    :param weight: of each term.
    :param neighbours: how many each thing chooses; ties go to the first.

    Example:
        >>> from mvgp.datasets.nearest import nearest_graph
        >>> weight = {"a": 1.0, "b": 1.0, "c": 2.0}
        >>> nearest_graph([{"a", "b"}, {"b"}, {"c"}], weight, neighbours=1).adjacency().toarray()
        array([[0.      , 0.707107, 0.      ],
               [0.707107, 0.      , 0.      ],
               [0.      , 0.      , 0.      ]])

    """
    if isinstance(neighbours, bool) or not isinstance(neighbours, int) or neighbours < 1:
        raise InputError(f"neighbours: expected a whole number of at least 1, got {neighbours!r}")
    vectors = _unit_vectors(sets, weight)  # (N, terms)
    count = len(sets)
    transposed = vectors.T.tocsr()
    links = sparse.csr_array((count, count))
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        similar = (vectors[start:stop] @ transposed).toarray().round(DECIMALS)  # (B, N)
        similar[np.arange(stop - start), np.arange(start, stop)] = 0.0
        rows, cols = _largest(similar, min(neighbours, count))
        links = links + sparse.csr_array((similar[rows, cols], (rows + start, cols)), shape=(count, count))
    return Graph.from_adjacency(links.maximum(links.T))


def _largest(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the ``count`` largest positive values of each row; of equal ones the first."""
    least = np.partition(values, -count, axis=1)[:, -count]
    rows, cols = np.nonzero((values >= least[:, None]) & (values > 0))
    order = np.lexsort((cols, -values[rows, cols], rows))
    rows, cols = rows[order], cols[order]
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)  # within its row
    return rows[place < count], cols[place < count]


def _unit_vectors(sets: Sequence[Collection[str]], weight: dict[str, float]) -> sparse.csr_array:
    """(N, terms): rows of length 1, or 0 where there is no term of positive weight."""
    place = {term: at for at, term in enumerate(sorted(t for t, value in weight.items() if value > 0))}
    lists = [sorted(place[term] for term in terms if term in place) for terms in sets]
    ends = np.cumsum([0, *map(len, lists)])
    cols = np.array([at for found in lists for at in found], dtype=np.int64)
    values = np.array([weight[term] for term in sorted(place)])[cols] if len(cols) else np.zeros(0)
    vectors = sparse.csr_array((values, cols, ends), shape=(len(sets), max(len(place), 1)))
    length = np.sqrt(np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel())
    return sparse.csr_array(sparse.diags_array(1.0 / np.where(length > 0, length, 1.0)) @ vectors)
