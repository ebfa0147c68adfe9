"""The default model: a sum of terms, weighed by held-out links of the user's own data."""

from .fit import Assessment, Auto, AutoRanker
from .scale import ScaleFit, fit_scale

__all__ = ["Assessment", "Auto", "AutoRanker", "ScaleFit", "fit_scale"]
