"""Fields: a tree as it came from a file, of which every part is checked when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..errors import StorageError

LARGEST = 1.7e308  # a number, whole or not, that fits in double precision


class Fields:
    """Named parts.

    :param tree: the parts.
    :param where: its place in the whole, for messages.
    """

    def __init__(self, tree: Any, where: str) -> None:
        if not isinstance(tree, dict):
            raise StorageError(f"{where}: expected named parts, got {type(tree).__name__}")
        self._tree, self.where = tree, where

    def only(self, *names: str, optional: tuple[str, ...] = ()) -> None:
        """Refuse missing parts, and those of other names: nothing in a file is ignored."""
        for name in names:
            self._get(name)
        unknown = set(self._tree) - {*names, *optional}
        if unknown:
            known = ", ".join((*names, *optional)) or "none"
            raise StorageError(f"{self.where}: expected the parts {known}, got {sorted(unknown)!r:.200}")

    def keys(self) -> set[str]:
        """The names of the parts."""
        return set(self._tree)

    def _wrong(self, name: str, expected: str, got: Any) -> StorageError:
        return StorageError(f"{self.where}.{name}: expected {expected}, got {got!r:.100}")

    def _get(self, name: str) -> Any:
        if name not in self._tree:
            raise StorageError(f"{self.where}: expected a part {name!r}, got {sorted(self._tree)!r:.200}")
        return self._tree[name]

    def has(self, name: str) -> bool:
        """Whether a part is there and not None."""
        return self._get(name) is not None

    def fields(self, name: str) -> Fields:
        """Named parts inside."""
        return Fields(self._get(name), f"{self.where}.{name}")

    def items(self, name: str) -> list[Any]:
        """A list of anything."""
        found = self._get(name)
        if not isinstance(found, list):
            raise self._wrong(name, "a list", found)
        return found

    def each(self, name: str) -> list[Fields]:
        """A list of named parts."""
        return [Fields(part, f"{self.where}.{name}[{at}]") for at, part in enumerate(self.items(name))]

    def text(self, name: str, choices: Iterable[str] | None = None) -> str:
        """A text, one of ``choices`` if they are given."""
        found = self._get(name)
        allowed = None if choices is None else list(choices)
        if not isinstance(found, str) or (allowed is not None and found not in allowed):
            raise self._wrong(name, "a text" if allowed is None else f"one of {', '.join(allowed)}", found)
        return found

    def label(self, name: str, longest: int = 100) -> str:
        """A short text that can be shown on a terminal as it is."""
        found = self.text(name)
        if len(found) > longest or not found.isprintable():
            raise self._wrong(name, f"a text of up to {longest} letters that can be printed", found)
        return found

    def flag(self, name: str) -> bool:
        """True or false."""
        found = self._get(name)
        if not isinstance(found, bool):
            raise self._wrong(name, "true or false", found)
        return found

    def whole(self, name: str, least: int = 0, most: int = 2**62) -> int:
        """A whole number from ``least`` to ``most``."""
        return _whole(self._get(name), least, most, f"{self.where}.{name}")

    def wholes(self, name: str, least: int = 0, most: int = 2**62) -> list[int]:
        """A list of them."""
        return [_whole(one, least, most, f"{self.where}.{name}[{at}]") for at, one in enumerate(self.items(name))]

    def number(self, name: str, least: float = -math.inf) -> float:
        """A finite number from ``least``; a whole one stays whole."""
        return _number(self._get(name), least, f"{self.where}.{name}")

    def positive(self, name: str) -> float:
        """A finite number above 0."""
        found = self._get(name)
        if type(found) in (int, float) and not found > 0:
            raise self._wrong(name, "a positive number", found)
        return self.number(name)

    def optional_positive(self, name: str) -> float | None:
        """A positive number; None where it is null, or missing as in older files."""
        return None if self._tree.get(name) is None else self.positive(name)

    def optional_probability(self, name: str) -> float | None:
        """A number from 0 to 1; None where it is null, or missing as in older files."""
        if self._tree.get(name) is None:
            return None
        found = self.number(name, 0)
        if found > 1:
            raise self._wrong(name, "a probability", found)
        return found

    def numbers(self, name: str) -> list[float]:
        """A list of finite numbers."""
        return [_number(one, -math.inf, f"{self.where}.{name}[{at}]") for at, one in enumerate(self.items(name))]

    def array(self, name: str, dtype: torch.dtype | None = None, shape: tuple[int | None, ...] | None = None) -> Tensor:
        """A tensor of a type and a shape; None in a shape stands for any size."""
        found = self._get(name)
        if not isinstance(found, Tensor):
            raise self._wrong(name, "an array", found)
        if dtype is not None and found.dtype != dtype:
            raise self._wrong(name, f"an array of {dtype}", found.dtype)
        if shape is not None:
            fits = len(shape) == found.dim() and all(
                want in (None, got) for want, got in zip(shape, found.shape, strict=True)
            )
            if not fits:
                sizes = ", ".join("any" if size is None else str(size) for size in shape)
                raise self._wrong(name, f"an array of shape ({sizes})", tuple(found.shape))
        return found

    def finite(self, name: str, dtype: torch.dtype, shape: tuple[int | None, ...]) -> Tensor:
        """The same, all its numbers finite."""
        found = self.array(name, dtype, shape)
        if not bool(torch.isfinite(found).all()):
            raise self._wrong(name, "finite numbers", "others")
        return found

    def positions(self, name: str, size: int, length: int | None = None) -> Tensor:
        """(T,) int64 in [0, size)."""
        found = self.array(name, torch.int64, (length,))
        if found.numel() and not 0 <= int(found.min()) <= int(found.max()) < size:
            raise self._wrong(name, f"positions in [0, {size})", (int(found.min()), int(found.max())))
        return found


def _whole(found: Any, least: int, most: int, where: str) -> int:
    if type(found) is not int or not least <= found <= most:
        raise StorageError(f"{where}: expected a whole number from {least} to {most}, got {found!r:.100}")
    return found


def _number(found: Any, least: float, where: str) -> float:
    if type(found) not in (int, float):
        raise StorageError(f"{where}: expected a number, got {found!r:.100}")
    if not abs(found) <= LARGEST:
        raise StorageError(f"{where}: expected a finite number, got {found!r:.100}")
    if found < least:
        raise StorageError(f"{where}: expected a number of at least {least:g}, got {found!r:.100}")
    number: float = found
    return number
