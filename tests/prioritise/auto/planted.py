"""Sets of links whose structure is known. Nothing in them is drawn but the null, where there is nothing to be found."""

import numpy as np

import mvgp
from mvgp.kernels import Graph
from mvgp.prioritise.tables import LinkSet
from tests.prioritise.auto.oracle import names

FAMILY, FAMILIES, SHARED = 6, 24, 8  # rows of a family, families, columns that belong to one


def cliques(count, size):
    """Nodes in groups of ``size``, all of a group linked."""
    node = np.arange(count)
    pairs = [(node, node - node % size + (node + step) % size) for step in range(1, size)]
    edges = np.concatenate([np.stack(ends, axis=1) for ends in pairs])
    return Graph(edges[edges[:, 0] < edges[:, 1]], count)


def link_set(pairs, shape, row_graph=None, col_graph=None):
    graphs = (row_graph or Graph([], shape[0]), col_graph or Graph([], shape[1]))
    return LinkSet(names(shape[0], "r"), names(shape[1], "c"), *np.asarray(pairs).T.copy(), *graphs)


def by_rows():
    """Rows of a family, linked in the graph, share columns; the first of each family is new. Set and held-out pairs.

    Each column has about as many links as any other, and a new row has no link, so only the graph can say anything.
    """
    pairs = [
        (family * FAMILY + row, family * SHARED + (row + step) % SHARED)
        for family in range(FAMILIES)
        for row in range(FAMILY)
        for step in range(5)
    ]
    new = [row % FAMILY == 0 for row, _ in pairs]
    shape = (FAMILY * FAMILIES, SHARED * FAMILIES)
    known = [pair for pair, held in zip(pairs, new, strict=True) if not held]
    return link_set(known, shape, row_graph=cliques(shape[0], FAMILY)), [
        pair for pair, held in zip(pairs, new, strict=True) if held
    ]


def by_cols():
    """Each row is linked to columns of one group of the graph, and no column to two rows. Set and held-out pairs."""
    rows, size, known = 80, 8, 5
    pairs = [(row, row * size + place) for row in range(rows) for place in range(known)]
    held_out = [(row, row * size + place) for row in range(rows) for place in range(known, size)]
    return link_set(pairs, (rows, rows * size), col_graph=cliques(rows * size, size)), held_out


def by_links():
    """Rows of a kind have columns in common; there is no graph. Set and held-out pairs."""
    kinds, rows, cols = 6, 120, 90
    pairs = [(row, col) for row in range(rows) for col in range(cols) if col % kinds == row % kinds]
    held = [(3 * row + col // kinds) % 4 == 0 for row, col in pairs]
    known = [pair for pair, left_out in zip(pairs, held, strict=True) if not left_out]
    return link_set(known, (rows, cols)), [pair for pair, left_out in zip(pairs, held, strict=True) if left_out]


def permuted(rng, shape, most):
    """Rows of 1 to ``most`` links to columns that are drawn, with graphs that have nothing to do with them."""
    counts = 1 + np.arange(shape[0]) % most
    pairs = [(row, col) for row, count in enumerate(counts) for col in rng.choice(shape[1], count, replace=False)]
    return link_set(pairs, shape, cliques(shape[0], FAMILY), cliques(shape[1], 5))


def labels(pairs, shape):
    return mvgp.PositiveUnlabelled(*np.asarray(pairs).T.copy(), shape=shape)
