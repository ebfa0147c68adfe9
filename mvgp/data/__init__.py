"""Observed data: which entries of a matrix are known, and what they are."""

from .observed import ObservedMatrix

__all__ = ["ObservedMatrix"]
