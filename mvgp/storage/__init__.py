"""Storage: posteriors in files that hold numbers and names, and no code."""

from .budget import Budget
from .files import load, save

__all__ = ["Budget", "load", "save"]
