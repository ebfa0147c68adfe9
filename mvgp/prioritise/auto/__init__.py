"""The default model: a sum of terms, weighed by held-out links of the user's own data."""

from .fit import Assessment, Auto, AutoRanker

__all__ = ["Assessment", "Auto", "AutoRanker"]
