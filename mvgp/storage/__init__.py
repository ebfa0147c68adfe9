"""Storage: posteriors in files that hold numbers and names, and no code."""

from .files import load, save

__all__ = ["load", "save"]
