"""A small LinkSet with two groups."""

import numpy as np

from mvgp.datasets import LinkSet
from mvgp.kernels import Graph

from .. import randomness

M, N = 10, 16


def make_links(seed=0):
    rng = randomness.numpy_generator(seed)
    pairs = np.array([(m, n) for m in range(M) for n in range(N) if m % 2 == n % 2 and rng.random() < 0.5])
    graphs = [Graph([(i, (i + 2) % size) for i in range(size)], size) for size in (M, N)]
    names = [f"disease {m}" for m in range(M - 2)] + ["twin", "twin"]
    ids = [f"D{m}" for m in range(M)], [f"g{n}" for n in range(N)]
    return LinkSet(*ids, pairs[:, 0], pairs[:, 1], *graphs, names, [f"GENE{n}" for n in range(N)], "made up")


LINKS = make_links()
