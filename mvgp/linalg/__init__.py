"""Lazy linear algebra: operators, roots and solvers, without a notion of priors or data."""

from .conjugate_gradients import SolveReport
from .pair_operator import KroneckerLinearOperator, PairLinearOperator
from .pairs import PairIndex
from .spectra import root

__all__ = ["KroneckerLinearOperator", "PairIndex", "PairLinearOperator", "SolveReport", "root"]
