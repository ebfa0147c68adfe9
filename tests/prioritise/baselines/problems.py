"""Small sets of links with a structure that can be found again."""

import numpy as np

import mvgp
from mvgp.kernels import Graph
from mvgp.prioritise.tables import LinkSet
from tests import randomness


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


def planted(seed=0, shape=(120, 150), groups=6, per_row=12):
    """Each row and column belongs to a group; most links are within it. Returns the set, training and held-out pairs.

    All groups are of the same size, whatever the seed, so that counts of links say nothing about a row.
    """
    rng = randomness.numpy_generator(seed)
    row_group, col_group = (np.arange(count) % groups for count in shape)
    pairs = []
    for row in range(shape[0]):
        chance = np.where(col_group == row_group[row], 100.0, 1.0)
        pairs += [(row, int(col)) for col in rng.choice(shape[1], per_row, replace=False, p=chance / chance.sum())]
    pairs = np.array(pairs)[rng.permutation(len(pairs))]
    graphs = [Graph(_within(rng, group), len(group)) for group in (row_group, col_group)]
    ids = [[f"{side}{place}" for place in range(count)] for side, count in zip("rc", shape, strict=True)]
    held, train = np.split(pairs, [len(pairs) // 5])
    return LinkSet(*ids, train[:, 0], train[:, 1], *graphs), held


def _within(rng, group):
    """Links between nodes, most of them of the same group."""
    ends = rng.integers(len(group), size=(20 * len(group), 2))
    same = group[ends[:, 0]] == group[ends[:, 1]]
    return ends[same | (rng.random(len(ends)) < 0.02)]
