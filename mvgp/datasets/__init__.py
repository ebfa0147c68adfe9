"""Problems to try the models on."""

from .synthetic import SyntheticMatrix, synthetic_matrix

__all__ = ["SyntheticMatrix", "synthetic_matrix"]
