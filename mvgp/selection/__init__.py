"""Selection: strength, trace share and kernels by validation along warm-started paths, and what it takes."""

from .averaged_ranker import AveragedRanker
from .choice import Choice
from .choose import ChoiceInterrupted, choose
from .choose_kernels import KernelChoiceInterrupted, choose_kernels
from .kernel_choice import KernelCandidate, KernelChoice
from .negative_sets import NegativeSets
from .negatives import with_negatives
from .nested import NestedResult, OuterFold, nested_cross_validation
from .records import PathRecord, Point
from .score import Score
from .splits import Split, split_pairs, split_rows

__all__ = [
    "AveragedRanker",
    "Choice",
    "ChoiceInterrupted",
    "KernelCandidate",
    "KernelChoice",
    "KernelChoiceInterrupted",
    "NegativeSets",
    "NestedResult",
    "OuterFold",
    "PathRecord",
    "Point",
    "Score",
    "Split",
    "choose",
    "choose_kernels",
    "nested_cross_validation",
    "split_pairs",
    "split_rows",
    "with_negatives",
]
