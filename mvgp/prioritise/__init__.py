"""Prioritise: a ranked list of columns for each row of a table of links, with its uncertainty."""

from .fit import fit_prioritiser, prioritise
from .lookup import find_rows
from .prioritiser import Prioritiser, load_prioritiser
from .ranked_rows import Prioritisation, RankedRow
from .recipes import MODELS

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
