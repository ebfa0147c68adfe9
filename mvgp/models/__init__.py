"""Models: recipes that turn a prior and a likelihood into a posterior."""

from .full_gp import FullGP

__all__ = ["FullGP"]
