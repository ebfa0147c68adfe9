"""JSON from a file that anybody may have changed: bounded in size, depth and digits."""

from __future__ import annotations

import json
import math
import os
from typing import Any

from ..errors import InputError
from .regular import open_regular

MOST_BYTES = 2**26
DEEPEST = 50
DIGITS = 19  # of a whole number: those of 64 bits


def read_json(path: str | os.PathLike[str], what: str = "JSON") -> Any:
    """What a file says; ``FileNotFoundError`` if there is none, :class:`~mvgp.errors.InputError` if it is no such JSON.

    Whole numbers have at most 19 digits, numbers are finite, and nothing is nested more than 50 deep.

    :param what: is expected, for messages.
    """
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path}: expected {what}, got {error.strerror or error}") from error
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: expected {what} of at most {MOST_BYTES:,} bytes, got more")
    try:
        found = json.loads(content.decode(), parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected text in UTF-8, got {error}") from error
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise InputError(f"{where}: expected {what}, got {error.msg}") from error
    except ValueError as error:
        raise InputError(f"{path}: expected {what}, got {error}") from error
    except RecursionError:
        found = None
        deep = True
    else:
        deep = _deep(found)
    if deep:
        raise InputError(f"{path}: expected {what}, nested at most {DEEPEST} deep, got more")
    return found


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:20]} for a finite number")
    return found


def _deep(found: Any) -> bool:
    waiting = [(found, 0)]
    while waiting:
        value, depth = waiting.pop()
        if not isinstance(value, dict | list):
            continue
        if depth >= DEEPEST:
            return True
        waiting += [(one, depth + 1) for one in (value.values() if isinstance(value, dict) else value)]
    return False
