"""candidates: the settings of each baseline that validation chooses among."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch

from ...checks import check_dtype, check_seed, shown
from ...errors import InputError
from ..tables.link_set import LinkSet, check_link_set
from .base import Baseline
from .factors import BPR, ImplicitALS, PureSVD
from .graphs import Katz, NeighbourVoting, Popularity, Propagation
from .ials import IALS, GraphIALS
from .linear import EASE, EDLAE, GFCF, RowGP, RP3beta

BASELINE_NAMES = (
    "popularity",
    "neighbours",
    "ease",
    "edlae",
    "row-gp",
    "rp3beta",
    "gfcf",
    "als",
    "ials",
    "ials-graph",
    "bpr",
    "puresvd",
    "katz",
    "propagation",
)


def candidates(name: str, link_set: LinkSet, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[Baseline]:
    """Recipes of one kind with different settings, for validation to choose among.

    The settings are the same for every set of links, apart from ranks that its shape does not allow: choose on links
    that are held out of the training part.

    :param name: one of ``BASELINE_NAMES``.
    :param link_set: its graphs and its shape are used, its links are not.
    :param seed: of recipes that start at random.
    :param dtype: of the computation and the scores; for choosing, single precision will do.

    Example:
        >>> from mvgp.prioritise.baselines.candidates import candidates
        >>> from mvgp.prioritise.tables import LinkSet
        >>> from mvgp.kernels import Graph
        >>> link_set = LinkSet(["a", "b"], ["x", "y", "z"], [0, 1], [2, 0], Graph([(0, 1)], 2), Graph([], 3))
        >>> candidates("neighbours", link_set)[0]
        NeighbourVoting(hops=1, decay=0.5, popularity_weight=0.001)

    """
    if not isinstance(name, str) or name not in BASELINE_NAMES:
        raise InputError(f"baseline: expected one of {', '.join(BASELINE_NAMES)}, got {shown(name)}")
    check_link_set(link_set)
    return list(_grid(name, link_set, check_seed(seed), check_dtype(dtype)))


def _grid(name: str, link_set: LinkSet, seed: int, dtype: torch.dtype) -> Iterator[Baseline]:
    graphs = (link_set.row_graph, link_set.col_graph)
    match name:
        case "popularity":
            yield Popularity(dtype=dtype)
        case "neighbours":
            for hops, popularity_weight in product((1, 2, 3, 5), (1e-3, 0.1)):
                yield NeighbourVoting(graphs[0], hops, popularity_weight=popularity_weight, dtype=dtype)
        case "ease":
            for regularisation in (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0):
                yield EASE(regularisation, dtype=dtype)
        case "edlae":
            for regularisation, dropout in product((10.0, 30.0, 100.0), (0.3, 0.5, 0.7)):
                yield EDLAE(regularisation, dropout, dtype=dtype)
        case "row-gp":
            for regularisation, col_exponent in product((3.0, 10.0, 30.0), (0.0, 0.15, 0.3)):
                yield RowGP(graphs[0], regularisation, col_exponent=col_exponent, dtype=dtype)
        case "rp3beta":
            for alpha, beta in product((0.3, 0.5, 0.8), (0.0, 0.25, 0.5, 0.75)):
                yield RP3beta(alpha, beta, dtype=dtype)
        case "gfcf":
            ranks = _ranks(name, link_set, (128, 256, 512, 1024))
            for factors, alpha in (*product(ranks, (0.3,)), *product(ranks[-2:-1] or ranks, (0.1, 1.0))):
                yield GFCF(factors, alpha, seed=seed, dtype=dtype)
        case "ials":
            pairs = ((0.003, 0.03), (0.01, 0.03), (0.03, 0.03), (0.01, 0.01), (0.01, 0.1))
            for factors, (regularisation, unlabelled_weight) in product((128, 512), pairs):
                yield IALS(factors, regularisation, unlabelled_weight, seed=seed, dtype=dtype)
            yield IALS(512, 0.15, 0.01, frequency_exponent=0.5, seed=seed, dtype=dtype)
        case "ials-graph":
            triples = [(0.003, 0.01, mu) for mu in (0.001, 0.003, 0.01, 0.03, 0.1)]
            triples += [(0.01, 0.01, mu) for mu in (0.003, 0.03)]
            triples += [(0.01, 0.03, mu) for mu in (1.0, 3.0, 10.0, 30.0, 100.0)]  # for many links in a row
            for regularisation, unlabelled_weight, mu in triples:
                yield GraphIALS(*graphs, 256, regularisation, unlabelled_weight, mu, seed=seed, dtype=dtype)
        case "als":
            for factors, (alpha, regularisation) in product((64, 256, 512), ((10.0, 3.0), (10.0, 30.0), (40.0, 100.0))):
                yield ImplicitALS(factors, regularisation, alpha, seed=seed, dtype=dtype)
        case "bpr":
            for factors, learning_rate in product((64, 128), (0.05, 0.1, 0.3)):
                yield BPR(factors, learning_rate, seed=seed, dtype=dtype)
        case "puresvd":
            for factors in _ranks(name, link_set, (8, 32, 128, 512)):
                yield PureSVD(factors, seed=seed, dtype=dtype)
        case "katz":
            for beta in (1e-3, 1e-2):
                yield Katz(*graphs, beta, 3, "none", row_weight=1.0, col_weight=0.1, dtype=dtype)
            for row_weight in (0.1, 0.3, 1.0):
                yield Katz(*graphs, 0.9, 3, "walk", row_weight, 0.03, dtype=dtype)
            for row_weight, col_weight in ((1.0, 0.3), (0.3, 0.1), (0.1, 0.1), (0.03, 0.03), (0.01, 0.03)):
                yield Katz(*graphs, 0.9, 3, "blocks", row_weight, col_weight, dtype=dtype)
            yield Katz(*graphs, 0.5, 5, "blocks", 0.03, 0.03, dtype=dtype)
        case "propagation":
            for restart, iterations in product((0.1, 0.3, 0.8), (4, 8)):
                yield Propagation(*graphs, restart, iterations, dtype=dtype)
            yield Propagation(*graphs, 0.03, 8, dtype=dtype)
            for iterations in (12, 16):
                yield Propagation(*graphs, 0.1, iterations, dtype=dtype)
            yield Propagation(*graphs, 0.3, 4, normalise_links=True, dtype=dtype)


def _ranks(name: str, link_set: LinkSet, ranks: tuple[int, ...]) -> list[int]:
    """The ranks that the shape allows; the largest possible one in place of those beyond it."""
    largest = min(link_set.shape) - 1
    if largest < 1:
        raise InputError(f"{name}: expected at least 2 rows and 2 columns, got {link_set.shape}")
    return sorted({min(rank, largest) for rank in ranks})
