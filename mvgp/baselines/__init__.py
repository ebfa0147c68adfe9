"""Baselines: what one would rank with instead of a Gaussian process, as recipes with the same ``fit``."""

from .baseline import Baseline
from .bpr import BPR
from .candidates import BASELINE_NAMES, candidates
from .ease import EASE
from .implicit_als import ImplicitALS
from .katz import Katz
from .neighbour_voting import NeighbourVoting
from .popularity import Popularity
from .propagation import Propagation
from .pure_svd import PureSVD

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
