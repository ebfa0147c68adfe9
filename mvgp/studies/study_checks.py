"""Checks of single settings of a study."""

from __future__ import annotations

import math
import re
from typing import Any

from ..errors import InputError

LARGEST = 2**63 - 1  # of a whole number: 64 bits, as torch has them
MOST = {"negative_sets": 10_000, "validation_sets": 10_000, "strengths": 10_000, "folds": 1_000_000}


def whole(given: Any, name: str, least: int) -> int:
    """A whole number of at least ``least``, and at most what makes sense."""
    most = MOST.get(name, LARGEST)
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise InputError(f"{name}: expected a whole number of at least {least}, got {shown(given)}")
    if given > most:
        raise InputError(f"{name}: expected a whole number of at most {most}, got {shown(given)}")
    return given


def shown(given: Any) -> str:
    """What came, cut when it is long; numbers of thousands of digits have no text of their own."""
    if isinstance(given, int) and given.bit_length() > 1000:
        return f"a whole number of {given.bit_length()} bits"
    text = repr(given)
    return text if len(text) <= 100 else f"{text[:100]}..."


def text(given: Any, name: str) -> str:
    """Text."""
    if not isinstance(given, str):
        raise InputError(f"{name}: expected a text, got {shown(given)}")
    return given


def truth(given: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(given, bool):
        raise InputError(f"{name}: expected True or False, got {shown(given)}")
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
    large = isinstance(given, int) and given.bit_length() > 1000
    fits = isinstance(given, int | float) and not isinstance(given, bool) and not large and math.isfinite(given)
    if not fits or not (above < given and least <= given and given < below and given <= most):
        bounds = {"above": above, "at least": least, "below": below, "at most": most}
        wanted = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
        raise InputError(f"{name}: expected a finite number {wanted}, got {shown(given)}")
    return float(given)


def numbers(given: Any, name: str, **bounds: float) -> tuple[float, ...]:
    """Different numbers within bounds, at least one."""
    if not isinstance(given, tuple | list) or not given:
        raise InputError(f"{name}: expected a list of numbers, got {shown(given)}")
    found = tuple(number(one, name, **bounds) for one in given)
    if len(set(found)) < len(found):
        raise InputError(f"{name}: expected different numbers, got {list(found)}")
    return found


def names(given: Any, name: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Different names among ``wanted``, at least one."""
    found = (given,) if isinstance(given, str) else given
    if not isinstance(found, tuple | list) or not all(isinstance(one, str) for one in found):
        raise InputError(f"{name}: expected names among {', '.join(wanted)}, got {shown(given)}")
    found = tuple(found)
    if not found or len(set(found)) < len(found):
        raise InputError(f"{name}: expected different names, at least one, got {shown(list(found))}")
    for one in found:
        if one not in wanted:
            raise InputError(f"{name}: expected names among {', '.join(wanted)}, got {shown(one)}")
    return found


def one_of(given: Any, name: str, synonyms: dict[str, str], wanted: tuple[str, ...]) -> str:
    """One of several words."""
    found = synonyms.get(given, given) if isinstance(given, str) else given
    if found not in wanted:
        raise InputError(f"{name}: expected {', '.join(map(repr, (*wanted, *synonyms)))}, got {shown(given)}")
    return str(found)


def ranking_metric(given: Any) -> str:
    """The name of a ranking metric, spelled as tables have it."""
    match = re.fullmatch(r"(auc)|(p|r|map|ndcg)@([1-9][0-9]{0,17})", given.lower()) if isinstance(given, str) else None
    if match is None:
        raise InputError(f"metric: expected 'AUC', or P, R, MAP or nDCG with a place, as 'MAP@100', got {shown(given)}")
    if match[1]:
        return "AUC"
    return f"{'nDCG' if match[2] == 'ndcg' else match[2].upper()}@{match[3]}"
