"""Small sets of links with a structure that can be found again."""

import numpy as np

import mvgp
from mvgp.kernels import Graph
from mvgp.prioritise.tables import LinkSet


def random_links(rng, shape, share=0.2, empty_row=None):
    mask = rng.random(shape) < share
    mask[0, 0] = True
    if empty_row is not None:
        mask[empty_row] = False
    return mvgp.PositiveUnlabelled(*mask.nonzero(), shape=shape)


def random_graph(rng, count, isolated=None):
    """Weighted; one node may be without links."""
    edges = rng.integers(0, count, (3 * count, 2))
    edges = edges[(edges != isolated).all(axis=1)] if isolated is not None else edges
    return Graph(edges, count, rng.uniform(0.5, 2.0, len(edges)))


def dense_links(links):
    found = np.zeros(links.shape)
    found[links.rows.numpy(), links.cols.numpy()] = 1
    return found


def planted(shape=(120, 150), groups=6, per_row=12):
    """Each row and column belongs to a group; most links are within it. Returns the set and held-out pairs.

    Nothing is drawn: what a ranker makes of it is the same in every run. All groups are of the same size, and so are
    all rows, so that counts of links say nothing about a row. One link of a row, or more, leads out of its group.
    """
    row, col = np.ogrid[: shape[0], : shape[1]]
    mixed, same = (row * 7919 + col * 104729 + row * col * 31) % 10007, row % groups == col % groups
    order = np.argsort(np.where(same, mixed, mixed + 10007), axis=1, kind="stable")  # those within the group first
    other = np.maximum(same.sum(1), per_row - 1)[:, None]  # place of the first of the others that is not taken yet
    cols = np.concatenate([order[:, : per_row - 1], np.take_along_axis(order, other, axis=1)], axis=1)
    pairs = np.stack([np.repeat(np.arange(shape[0]), per_row), cols.flatten()], axis=1)
    is_held = (2 * pairs[:, 0] + pairs[:, 1]) % 5 == 0
    graphs = [Graph(_within(count, groups), count) for count in shape]
    ids = [[f"{side}{place}" for place in range(count)] for side, count in zip("rc", shape, strict=True)]
    return LinkSet(*ids, *pairs[~is_held].T.copy(), *graphs), pairs[is_held]


def _within(count, groups):
    """Links of a node to three of its group, and of every tenth node to one of the next group."""
    node = np.arange(count)
    within = [(node, (node + step * groups) % count) for step in (1, 2, 3)]
    return np.concatenate([np.stack(ends, axis=1) for ends in [*within, (node[::10], (node[::10] + 1) % count)]])
