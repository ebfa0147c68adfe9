"""Observed data: which entries of a matrix are known, and what they are."""

from .observed import ObservedMatrix
from .positive_unlabelled import PositiveUnlabelled

__all__ = ["ObservedMatrix", "PositiveUnlabelled"]
