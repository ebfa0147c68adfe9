"""Roots of piecewise linear functions of one variable."""

from __future__ import annotations

from collections.abc import Callable


def increasing_root(
    function: Callable[[float], tuple[float, float]], low: float, high: float, first: float | None = None
) -> float:
    """Where a piecewise linear, nondecreasing function is 0: Newton's method inside a bracket.

    :param function: maps t to value and slope.
    :param low: where it is not positive.
    :param high: where it is not negative.
    :param first: where to begin.
    """
    t = (low + high) / 2 if first is None else first
    for _ in range(100):
        value, slope = function(t)
        if value == 0:
            break
        low, high = (t, high) if value < 0 else (low, t)
        ahead = t - value / slope if slope > 0 else t
        middle = (low + high) / 2
        ahead = ahead if low < ahead < high else middle
        if ahead == t or not low < ahead < high:
            break
        t = ahead
    return t
