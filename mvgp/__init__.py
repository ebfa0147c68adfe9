"""mvgp: matrix-variate Gaussian processes on GPyTorch."""

from .data import ObservedMatrix, PositiveUnlabelled
from .mean import SpectralElasticNet, TraceBall
from .models import FactorGP, FullGP, PairwiseSVM, TraceGP
from .posteriors import GaussianPosterior
from .priors import MatrixGP
from .storage import load
from .version import __version__

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
