"""Checks of single settings of a study."""

from __future__ import annotations

import math
import re
from typing import Any

from ..checks import check_list, check_text
from ..errors import InputError


def whole(given: Any, name: str, least: int) -> int:
    """A whole number of at least ``least``."""
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise InputError(f"{name}: expected a whole number of at least {least}, got {given!r}")
    return given


def truth(given: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(given, bool):
        raise InputError(f"{name}: expected True or False, got {given!r}")
    return given


def number(
    given: Any,
    name: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> float:
    """A finite number within bounds."""
    fits = isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)
    if not fits or not (above < given and least <= given and given < below and given <= most):
        bounds = {"above": above, "at least": least, "below": below, "at most": most}
        wanted = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
        raise InputError(f"{name}: expected a finite number {wanted}, got {given!r}")
    return float(given)


def numbers(given: Any, name: str, **bounds: float) -> tuple[float, ...]:
    """Different numbers within bounds, at least one."""
    if not isinstance(given, tuple | list) or not given:
        raise InputError(f"{name}: expected a list of numbers, got {given!r}")
    found = tuple(number(one, name, **bounds) for one in given)
    if len(set(found)) < len(found):
        raise InputError(f"{name}: expected different numbers, got {list(found)}")
    return found


def names(given: Any, name: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Different names among ``wanted``, at least one."""
    found = (given,) if isinstance(given, str) else tuple(check_list(given, name, "different names, at least one"))
    for one in found:
        check_text(one, name)
    if not found or len(set(found)) < len(found):
        raise InputError(f"{name}: expected different names, at least one, got {list(found)}")
    for one in found:
        if one not in wanted:
            raise InputError(f"{name}: expected names among {', '.join(wanted)}, got {one!r}")
    return found


def one_of(given: Any, name: str, synonyms: dict[str, str], wanted: tuple[str, ...]) -> str:
    """One of several words."""
    found = synonyms.get(given, given) if isinstance(given, str) else given
    if found not in wanted:
        raise InputError(f"{name}: expected {', '.join(map(repr, (*wanted, *synonyms)))}, got {given!r}")
    return str(found)


def ranking_metric(given: Any) -> str:
    """The name of a ranking metric, spelled as tables have it."""
    match = re.fullmatch(r"(auc)|(p|r|map|ndcg)@([1-9]\d*)", given.lower()) if isinstance(given, str) else None
    if match is None:
        raise InputError(f"metric: expected 'AUC', or P, R, MAP or nDCG with a place, as 'MAP@100', got {given!r}")
    if match[1]:
        return "AUC"
    return f"{'nDCG' if match[2] == 'ndcg' else match[2].upper()}@{match[3]}"
