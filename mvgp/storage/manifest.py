"""The manifest of an archive: its format, its version, its arrays, and the tree that refers to them."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from ..errors import StorageError
from .budget import Budget
from .npy import ArrayEntry

FORMAT = "mvgp-posterior"
VERSION = 1  # raised with every change that an older mvgp would misread
NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
DEEPEST = 100  # parts inside parts
KEYS = {"format", "version", "written_by", "arrays", "content", "sha256"}


@dataclass(frozen=True)
class Manifest:
    """What ``manifest.json`` says.

    :param arrays: entries by name.
    :param content: the tree, tensors by name.
    """

    arrays: dict[str, ArrayEntry]
    content: Any


def render(manifest: Manifest, written_by: dict[str, str]) -> bytes:
    """The text of ``manifest.json``, with its own SHA-256."""
    body = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": written_by,
        "arrays": {name: entry.described() for name, entry in manifest.arrays.items()},
        "content": manifest.content,
    }
    return json.dumps({**body, "sha256": _digest(body)}, indent=1, allow_nan=False).encode()


def parse(text: bytes, budget: Budget) -> Manifest:
    """The checked manifest: format and version first, so that a newer file is called that."""
    # each value but the first follows one of these; those inside a text count as well
    budget.allows("values", sum(text.count(mark) for mark in (b",", b"[", b"{")), "manifest")
    try:
        found = json.loads(text.decode(), object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"manifest: expected JSON, got {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        got = found.get("format") if isinstance(found, dict) else found
        raise StorageError(f"manifest: expected format {FORMAT!r}, got {got!r:.100}")
    version = found.get("version")
    if type(version) is not int or version < 1:
        raise StorageError(f"manifest: expected a positive whole number as version, got {version!r:.100}")
    if version > VERSION:
        raise StorageError(f"written by a newer mvgp: version {version}, this one reads up to {VERSION}")
    if set(found) != KEYS:
        raise StorageError(f"manifest: expected {', '.join(sorted(KEYS))}, got {sorted(found)!r:.200}")
    _check_depth(found)
    digest = found.pop("sha256")
    if digest != _digest(found):
        raise StorageError(f"manifest: expected sha256 {digest!r:.80}, got {_digest(found)}")
    entries = found["arrays"]
    if isinstance(entries, dict):
        budget.allows("arrays", len(entries), "manifest")
    if not isinstance(entries, dict) or not all(NAME.fullmatch(name) for name in entries):
        raise StorageError(f"manifest: expected arrays by names of letters, digits, _ and dots, got {entries!r:.200}")
    return Manifest({name: ArrayEntry.checked(entry, name) for name, entry in entries.items()}, found["content"])


def _digest(body: dict[str, Any]) -> str:
    try:
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"manifest: expected finite numbers, got {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()


def _check_depth(tree: Any) -> None:
    """Parts inside parts, level by level, so that deep ones end no stack."""
    level = [tree]
    for _ in range(DEEPEST):
        level = [
            part
            for one in level
            if isinstance(one, dict | list)
            for part in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise StorageError(f"manifest: expected parts inside one another up to {DEEPEST} deep, got deeper ones")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key that occurs twice")
    return found


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word}, which is no JSON")
