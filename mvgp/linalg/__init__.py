"""Lazy linear algebra: operators, roots and solvers, without a notion of priors or data."""

from .conjugate_gradients import SolveReport
from .kronecker import KroneckerLinearOperator
from .pair_operator import PairLinearOperator
from .pairs import PairIndex
from .spectra import root

__all__ = ["KroneckerLinearOperator", "PairIndex", "PairLinearOperator", "SolveReport", "root"]
