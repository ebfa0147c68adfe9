"""Evidence for hyperparameters: marginal likelihoods with gradients, learning, leave-one-out."""

from .fit_hyperparameters import Learned, learn
from .learn_grid import LearnedGrid, learn_grid
from .learn_trace import LearnedTrace, learn_trace
from .leave_one_out import LeaveOneOut, leave_one_out
from .log_determinant import LogDeterminant, log_determinant
from .marginal import LogMarginal, log_marginal
from .mll import MatrixMarginalLogLikelihood
from .reference import Reference
from .trace_bound import TraceBound, trace_bound

__all__ = [
    "Learned",
    "LearnedGrid",
    "LearnedTrace",
    "LeaveOneOut",
    "LogDeterminant",
    "LogMarginal",
    "MatrixMarginalLogLikelihood",
    "Reference",
    "TraceBound",
    "learn",
    "learn_grid",
    "learn_trace",
    "leave_one_out",
    "log_determinant",
    "log_marginal",
    "trace_bound",
]
