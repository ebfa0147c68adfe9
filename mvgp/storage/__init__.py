"""Storage: posteriors in files that hold numbers and names, and no code."""

from .budget import Budget
from .posteriors import load, save

__all__ = ["Budget", "load", "save"]
