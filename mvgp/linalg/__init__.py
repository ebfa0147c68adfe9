"""Lazy linear algebra: operators, roots and solvers, without a notion of priors or data."""

from .cg import conjugate_gradients
from .evidence import Evidence, Solution
from .gram import GramLinearOperator
from .kronecker import KroneckerLinearOperator, SpectralKroneckerLinearOperator
from .observed import PairLinearOperator
from .pairs import PairIndex
from .polynomial import ChebyshevLinearOperator
from .roots import root
from .spectral import SpectralLinearOperator

__all__ = [
    "ChebyshevLinearOperator",
    "Evidence",
    "GramLinearOperator",
    "KroneckerLinearOperator",
    "PairIndex",
    "PairLinearOperator",
    "Solution",
    "SpectralKroneckerLinearOperator",
    "SpectralLinearOperator",
    "conjugate_gradients",
    "root",
]
