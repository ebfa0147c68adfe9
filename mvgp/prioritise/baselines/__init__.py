"""Baselines to compare a Gaussian process with: recipes with the same ``fit``."""

from .base import Baseline
from .candidates import BASELINE_NAMES, candidates
from .factors import BPR, GraphALS, ImplicitALS, PureSVD
from .graphs import Katz, NeighbourVoting, Popularity, Propagation
from .ials import IALS, GraphIALS
from .linear import EASE, EDLAE, GFCF, RowGP, RP3beta

__all__ = [
    "BASELINE_NAMES",
    "BPR",
    "EASE",
    "EDLAE",
    "GFCF",
    "IALS",
    "Baseline",
    "GraphALS",
    "GraphIALS",
    "ImplicitALS",
    "Katz",
    "NeighbourVoting",
    "Popularity",
    "Propagation",
    "PureSVD",
    "RP3beta",
    "RowGP",
    "candidates",
]
