"""Baselines to compare a Gaussian process with: recipes with the same ``fit``."""

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
