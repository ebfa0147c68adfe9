"""A small set of links with something to find, and a study of it that takes a second."""

import numpy as np
import torch

from mvgp.kernels import Graph
from mvgp.prioritise.studies import Study
from mvgp.prioritise.tables import LinkSet

M, N = 18, 30


def planted_links(seed=0, per_row=5):
    """The best items of each row of a smooth matrix of rank 2 with something rough on top. Nothing is drawn."""
    graphs = [Graph([(i, (i + s) % n) for i in range(n) for s in (1, 2)], n) for n in (M, N)]
    angles = [2 * np.pi * np.arange(n) / n for n in (M, N)]
    row, col = np.arange(M)[:, None], np.arange(N)
    rough = np.sin(
        7.3 * row**2 + 3.1 * col + 1.7 * row * col + seed
    )  # fixed: what can be found is the same in every run
    truth = np.cos(angles[0][:, None] - angles[1][None, :]) + 0.1 * rough
    best = torch.from_numpy(truth).topk(per_row, 1).indices.flatten()
    ids = [[f"{kind}{i}" for i in range(n)] for kind, n in (("d", M), ("g", N))]
    return LinkSet(*ids, torch.arange(M).repeat_interleave(per_row), best, *graphs, source="planted")


def small_study(**options):
    given = {
        "models": ("popularity", "hilbert", "trace", "best"),
        "folds": 3,
        "run_folds": 2,
        "negative_sets": 2,
        "strengths": (0.5, 0.2),
        "trace_shares": (1.0, 0.0),
        "metric": "MAP@10",
        "k": 20,
        "patience": None,
        "tolerance": 0.05,
        "top": 5,
    }
    return Study(**{**given, **options})


def tiny_study(**options):
    """One fold, one set of negatives."""
    return small_study(**{"models": ("popularity", "trace"), "run_folds": 1, "negative_sets": 1, **options})


def tables_of(directory):
    """Every table as its bytes."""
    return {file.name: file.read_bytes() for file in sorted((directory / "tables").glob("*.tsv"))}
