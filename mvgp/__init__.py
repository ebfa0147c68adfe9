"""mvgp: matrix-variate Gaussian processes on GPyTorch."""

from .data import ObservedMatrix
from .models import FullGP
from .posteriors import GaussianPosterior
from .priors import MatrixGP

__version__ = "0.1.0"

__all__ = ["FullGP", "GaussianPosterior", "MatrixGP", "ObservedMatrix", "__version__"]
