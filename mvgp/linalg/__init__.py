"""Lazy linear algebra: operators, roots and solvers, without a notion of priors or data."""

from .chebyshev import ChebyshevLinearOperator
from .conjugate_gradients import Solution, SolveReport, conjugate_gradients
from .kronecker import KroneckerLinearOperator, SpectralKroneckerLinearOperator
from .pair_operator import PairLinearOperator
from .pairs import PairIndex
from .roots import root
from .spectra import SpectralLinearOperator
from .stacked import GramLinearOperator

__all__ = [
    "ChebyshevLinearOperator",
    "GramLinearOperator",
    "KroneckerLinearOperator",
    "PairIndex",
    "PairLinearOperator",
    "Solution",
    "SolveReport",
    "SpectralKroneckerLinearOperator",
    "SpectralLinearOperator",
    "conjugate_gradients",
    "root",
]
