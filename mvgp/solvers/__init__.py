"""Solvers of the posterior mean: a loss on the observed pairs plus a penalty on singular values."""

from .alternating import AlternatingSolution, solve_alternating
from .biases import BiasedSquaredLoss
from .certificate import Certificate
from .dense import solve_dense
from .hybrid import solve_hybrid
from .losses import Loss, LossValue, SquaredLoss
from .low_rank import LowRank
from .penalties import Penalty, SpectralElasticNet, TraceBall
from .problem import MeanProblem
from .proximal import solve_proximal
from .ranking import RetargetedLoss
from .ridge import solve_ridge
from .solution import MeanSolution

__all__ = [
    "AlternatingSolution",
    "BiasedSquaredLoss",
    "Certificate",
    "Loss",
    "LossValue",
    "LowRank",
    "MeanProblem",
    "MeanSolution",
    "Penalty",
    "RetargetedLoss",
    "SpectralElasticNet",
    "SquaredLoss",
    "TraceBall",
    "solve_alternating",
    "solve_dense",
    "solve_hybrid",
    "solve_proximal",
    "solve_ridge",
]
