"""Baselines: what one would rank with instead of a Gaussian process, as recipes with the same ``fit``."""

from .base import Baseline
from .candidates import BASELINE_NAMES, candidates
from .factors import BPR, EASE, ImplicitALS, PureSVD
from .graphs import Katz, NeighbourVoting, Popularity, Propagation

__all__ = [
    "BASELINE_NAMES",
    "BPR",
    "EASE",
    "Baseline",
    "ImplicitALS",
    "Katz",
    "NeighbourVoting",
    "Popularity",
    "Propagation",
    "PureSVD",
    "candidates",
]
