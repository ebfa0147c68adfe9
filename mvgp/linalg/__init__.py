"""Lazy linear algebra underneath the models. It knows nothing of Gaussian processes."""

from .cg import conjugate_gradients
from .evidence import Evidence, Solution
from .kronecker import KroneckerLinearOperator, SpectralKroneckerLinearOperator
from .observed import PairLinearOperator
from .pairs import PairIndex
from .polynomial import ChebyshevLinearOperator
from .roots import root
from .spectral import SpectralLinearOperator

__all__ = [
    "ChebyshevLinearOperator",
    "Evidence",
    "KroneckerLinearOperator",
    "PairIndex",
    "PairLinearOperator",
    "Solution",
    "SpectralKroneckerLinearOperator",
    "SpectralLinearOperator",
    "conjugate_gradients",
    "root",
]
