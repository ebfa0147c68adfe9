"""Checks of what the solvers of the mean are given."""

from __future__ import annotations

from typing import Any

from ..checks import check_instance, check_tolerance, check_whole_number
from ..errors import InputError
from .problem import MeanProblem


def check_solve(problem: Any, tolerance: Any, max_iterations: Any) -> tuple[float, int]:
    """A problem, a tolerance and a limit on iterations (0: the start is certified); the last two are returned."""
    check_instance(problem, "problem", MeanProblem, "mvgp.solvers.MeanProblem")
    return check_tolerance(tolerance), check_whole_number(max_iterations, "max_iterations", 0)


def check_penalty(penalty: Any) -> None:
    """A function of singular values, with all that the solvers ask for."""
    for part in ("shrink", "value", "conjugate"):
        if isinstance(penalty, type) or not callable(getattr(penalty, part, None)):
            raise InputError(f"penalty: expected a Penalty with a method {part}, got {type(penalty).__name__}")
    if not hasattr(penalty, "ridge"):
        raise InputError(f"penalty: expected a Penalty with a property ridge, got {type(penalty).__name__}")
