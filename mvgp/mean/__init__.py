"""Solvers of the posterior mean: a loss on the observed pairs plus a penalty on singular values."""

from .additive import AdditivePart, AdditiveSolution, solve_additive
from .factored import AlternatingSolution, solve_alternating, solve_dense, solve_hybrid
from .low_rank import LowRank, MeanSolution
from .problem import Certificate, MeanProblem, Penalty, SpectralElasticNet, TraceBall
from .proximal import solve_proximal
from .ridge import solve_ridge

__all__ = [
    "AdditivePart",
    "AdditiveSolution",
    "AlternatingSolution",
    "Certificate",
    "LowRank",
    "MeanProblem",
    "MeanSolution",
    "Penalty",
    "SpectralElasticNet",
    "TraceBall",
    "solve_additive",
    "solve_alternating",
    "solve_dense",
    "solve_hybrid",
    "solve_proximal",
    "solve_ridge",
]
