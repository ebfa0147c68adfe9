"""mvgp: matrix-variate Gaussian processes on GPyTorch."""

from .data import ObservedMatrix, PositiveUnlabelled
from .models import FactorGP, FullGP, PairwiseSVM, TraceGP
from .posteriors import GaussianPosterior
from .priors import MatrixGP
from .solvers import SpectralElasticNet, TraceBall
from .storage import load

__version__ = "0.1.0"

__all__ = [
    "FactorGP",
    "FullGP",
    "GaussianPosterior",
    "MatrixGP",
    "ObservedMatrix",
    "PairwiseSVM",
    "PositiveUnlabelled",
    "SpectralElasticNet",
    "TraceBall",
    "TraceGP",
    "__version__",
    "load",
]
