"""Hyperparameters: marginal likelihoods with gradients, learning, leave-one-out, validation along paths."""

from .complete_grid import LearnedGrid, learn_grid
from .kernel_search import KernelCandidate, KernelChoice, KernelChoiceInterrupted, choose_kernels
from .learning import Learned, learn
from .leave_one_out import LeaveOneOut, leave_one_out
from .marginal import LogMarginal, MatrixMarginalLogLikelihood, log_marginal
from .negatives import NegativeSets, with_negatives
from .nested import NestedResult, OuterFold, nested_cross_validation
from .probes import LogDeterminant, Reference, log_determinant
from .records import AveragedRanker, PathRecord, Point
from .scoring import Score
from .splits import Split, split_pairs, split_rows
from .trace_bound import LearnedTrace, TraceBound, learn_trace, trace_bound
from .validation import Choice, ChoiceInterrupted, choose

__all__ = [
    "AveragedRanker",
    "Choice",
    "ChoiceInterrupted",
    "KernelCandidate",
    "KernelChoice",
    "KernelChoiceInterrupted",
    "Learned",
    "LearnedGrid",
    "LearnedTrace",
    "LeaveOneOut",
    "LogDeterminant",
    "LogMarginal",
    "MatrixMarginalLogLikelihood",
    "NegativeSets",
    "NestedResult",
    "OuterFold",
    "PathRecord",
    "Point",
    "Reference",
    "Score",
    "Split",
    "TraceBound",
    "choose",
    "choose_kernels",
    "learn",
    "learn_grid",
    "learn_trace",
    "leave_one_out",
    "log_determinant",
    "log_marginal",
    "nested_cross_validation",
    "split_pairs",
    "split_rows",
    "trace_bound",
    "with_negatives",
]
