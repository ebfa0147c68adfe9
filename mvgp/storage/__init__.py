"""Storage: posteriors in files that hold numbers and names, and no code."""

from .fields import Budget, Fields
from .posteriors import load, save
from .registry import RestoreContext, register

__all__ = ["Budget", "Fields", "RestoreContext", "load", "register", "save"]
