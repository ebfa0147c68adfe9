"""Solvers of the posterior mean: a loss on the observed pairs plus a penalty on singular values."""

from .alternating import AlternatingSolution, solve_alternating
from .factored import solve_dense, solve_hybrid
from .low_rank import LowRank, MeanSolution
from .problem import Certificate, MeanProblem, Penalty, SpectralElasticNet, TraceBall
from .proximal import solve_proximal
from .ridge import solve_ridge

__all__ = [
    "AlternatingSolution",
    "Certificate",
    "LowRank",
    "MeanProblem",
    "MeanSolution",
    "Penalty",
    "SpectralElasticNet",
    "TraceBall",
    "solve_alternating",
    "solve_dense",
    "solve_hybrid",
    "solve_proximal",
    "solve_ridge",
]
