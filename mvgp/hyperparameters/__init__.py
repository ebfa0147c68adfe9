"""Hyperparameters: marginal likelihoods with gradients, learning, leave-one-out, validation along paths."""

from .complete_grid import learn_grid
from .kernel_search import KernelChoice, KernelChoiceInterrupted, choose_kernels
from .learning import learn
from .leave_one_out import leave_one_out
from .marginal import MatrixMarginalLogLikelihood, log_marginal
from .splits import NegativeSets, Split, split_pairs, split_rows, with_negatives
from .trace_bound import learn_trace, trace_bound
from .validation import Choice, ChoiceInterrupted, choose, nested_cross_validation

__all__ = [
    "Choice",
    "ChoiceInterrupted",
    "KernelChoice",
    "KernelChoiceInterrupted",
    "MatrixMarginalLogLikelihood",
    "NegativeSets",
    "Split",
    "choose",
    "choose_kernels",
    "learn",
    "learn_grid",
    "learn_trace",
    "leave_one_out",
    "log_marginal",
    "nested_cross_validation",
    "split_pairs",
    "split_rows",
    "trace_bound",
    "with_negatives",
]
