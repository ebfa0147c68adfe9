"""A small LinkSet with two groups. Nothing in it is drawn."""

import numpy as np

from mvgp.kernels import Graph
from mvgp.prioritise.tables import LinkSet

M, N = 10, 16


def linked(m, n):
    """About half of the pairs within a group, by a fixed rule: each row has links, and some columns have more."""
    return m % 2 == n % 2 and (3 * (m // 2) + 5 * (n // 2) + (m // 2) * (n // 2) ** 2) % 7 < 4


def make_links():
    pairs = np.array([(m, n) for m in range(M) for n in range(N) if linked(m, n)])
    graphs = [Graph([(i, (i + 2) % size) for i in range(size)], size) for size in (M, N)]
    names = [f"disease {m}" for m in range(M - 2)] + ["twin", "twin"]
    ids = [f"D{m}" for m in range(M)], [f"g{n}" for n in range(N)]
    return LinkSet(*ids, pairs[:, 0], pairs[:, 1], *graphs, names, [f"GENE{n}" for n in range(N)], "made up")


LINKS = make_links()
