"""Problems to try the models on, and tables of one's own."""

from .link_set import LinkSet
from .synthetic import SyntheticMatrix, synthetic_matrix

__all__ = ["LinkSet", "SyntheticMatrix", "synthetic_matrix"]
