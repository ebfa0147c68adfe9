"""Files of units: arrays and plain values behind a line with their SHA-256, so that any damage shows."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import numpy as np

from ..errors import StorageError
from .unit import Outcome, Unit

WORD = b"mvgp study unit 1 sha256 "
HEAD = len(WORD) + 64 + 1  # the digits, a line break


def to_bytes(outcome: Outcome, belongs: str) -> bytes:
    """The content of a file.

    :param belongs: a digest of study and data.
    """
    info = json.dumps({"belongs": belongs, "unit": str(outcome.unit), "info": outcome.info}).encode()
    held = io.BytesIO()
    arrays: dict[str, Any] = {f"array_{name}": array for name, array in outcome.arrays.items()}
    np.savez(held, info=np.frombuffer(info, dtype=np.uint8), **arrays)
    body = held.getvalue()
    return WORD + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def check(content: bytes) -> bytes:
    """What is behind the first line, if it is what was written."""
    if not content.startswith(WORD):
        raise StorageError(f"expected a unit of a study, got a file that begins with {content[:8]!r}")
    body = content[HEAD:]
    if hashlib.sha256(body).hexdigest().encode() + b"\n" != content[len(WORD) : HEAD]:
        raise StorageError("expected the SHA-256 of its first line, got another: it is cut short or was changed")
    return body


def from_bytes(content: bytes, unit: Unit, belongs: str) -> Outcome:
    """What was written for this unit of this study."""
    try:
        with np.load(io.BytesIO(check(content)), allow_pickle=False) as held:
            told = json.loads(held["info"].tobytes())
            arrays = {name.removeprefix("array_"): held[name] for name in held.files if name != "info"}
    except StorageError:
        raise
    except Exception as error:  # bytes can be wrong in more ways than there are names for
        raise StorageError(" ".join(f"{type(error).__name__}: {error}".split())) from error
    if not isinstance(told, dict) or not isinstance(told.get("info"), dict):
        raise StorageError("info: expected names and values, got something else")
    for name, wanted in (("belongs", belongs), ("unit", str(unit))):
        if told.get(name) != wanted:
            raise StorageError(f"{name}: expected {wanted!r}, got {told.get(name)!r}")
    return Outcome(unit, arrays, told["info"])
