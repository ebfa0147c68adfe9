"""Prioritise: a ranked list of columns for each row of a table of links, with its uncertainty."""

from .ranking.prioritiser import Prioritiser, fit_prioritiser, load_prioritiser, prioritise
from .ranking.rows import Prioritisation, RankedRow, find_rows
from .tuning.tune import MODELS

__all__ = [
    "MODELS",
    "Prioritisation",
    "Prioritiser",
    "RankedRow",
    "find_rows",
    "fit_prioritiser",
    "load_prioritiser",
    "prioritise",
]
