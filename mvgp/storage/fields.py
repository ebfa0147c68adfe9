"""Fields: named parts as they came from a file. Each is checked when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..errors import StorageError

LARGEST = 1.7e308  # a number, whole or not, that fits in double precision


class Fields:
    """Named parts of a file. Each method takes the name of a part and returns it, or refuses the file.

    :param tree: the parts.
    :param where: its place in the whole, for messages.
    """

    def __init__(self, tree: Any, where: str) -> None:
        if not isinstance(tree, dict):
            raise StorageError(f"{where}: expected named parts, got {type(tree).__name__}")
        self._tree, self.where = tree, where

    def only(self, *names: str) -> None:
        """Refuse missing parts, and those of other names: nothing in a file is ignored."""
        for name in names:
            self._get(name)
        unknown = set(self._tree) - set(names)
        if unknown:
            known = ", ".join(names) or "none"
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
        value = self._get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return value

    def each(self, name: str) -> list[Fields]:
        """A list of named parts."""
        return [Fields(part, f"{self.where}.{name}[{index}]") for index, part in enumerate(self.items(name))]

    def text(self, name: str, choices: Iterable[str] | None = None) -> str:
        """A text, one of ``choices`` if they are given."""
        value = self._get(name)
        allowed = None if choices is None else list(choices)
        if not isinstance(value, str) or (allowed is not None and value not in allowed):
            raise self._wrong(name, "a text" if allowed is None else f"one of {', '.join(allowed)}", value)
        return value

    def label(self, name: str, longest: int = 100) -> str:
        """A short text that can be shown on a terminal as it is."""
        value = self.text(name)
        if len(value) > longest or not value.isprintable():
            raise self._wrong(name, f"a text of up to {longest} letters that can be printed", value)
        return value

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def whole(self, name: str, minimum: int = 0, maximum: int = 2**62) -> int:
        """A whole number from ``minimum`` to ``maximum``."""
        return _whole(self._get(name), minimum, maximum, f"{self.where}.{name}")

    def wholes(self, name: str, minimum: int = 0, maximum: int = 2**62) -> list[int]:
        """A list of them."""
        items = enumerate(self.items(name))
        return [_whole(item, minimum, maximum, f"{self.where}.{name}[{index}]") for index, item in items]

    def number(self, name: str, minimum: float = -math.inf) -> float:
        """A finite number from ``minimum``; a whole one stays whole."""
        return _number(self._get(name), minimum, f"{self.where}.{name}")

    def positive(self, name: str) -> float:
        """A finite number above 0."""
        value = self._get(name)
        if type(value) in (int, float) and not value > 0:
            raise self._wrong(name, "a positive number", value)
        return self.number(name)

    def not_negative(self, name: str) -> float:
        """A finite number from 0."""
        return self.number(name, 0)

    def optional_positive(self, name: str) -> float | None:
        """A positive number or None."""
        return self.positive(name) if self.has(name) else None

    def optional_not_negative(self, name: str) -> float | None:
        """A number from 0, or None."""
        return self.not_negative(name) if self.has(name) else None

    def optional_probability(self, name: str) -> float | None:
        """A number from 0 to 1, or None."""
        value = self.optional_not_negative(name)
        if value is not None and value > 1:
            raise self._wrong(name, "a probability", value)
        return value

    def numbers(self, name: str) -> list[float]:
        """A list of finite numbers."""
        items = enumerate(self.items(name))
        return [_number(item, -math.inf, f"{self.where}.{name}[{index}]") for index, item in items]

    def array(self, name: str, dtype: torch.dtype | None = None, shape: tuple[int | None, ...] | None = None) -> Tensor:
        """A tensor of a type and a shape; None in a shape stands for any size."""
        value = self._get(name)
        if not isinstance(value, Tensor):
            raise self._wrong(name, "an array", value)
        if dtype is not None and value.dtype != dtype:
            raise self._wrong(name, f"an array of {dtype}", value.dtype)
        if shape is not None:
            fits = len(shape) == value.dim() and all(
                expected in (None, size) for expected, size in zip(shape, value.shape, strict=True)
            )
            if not fits:
                sizes = ", ".join("any" if size is None else str(size) for size in shape)
                raise self._wrong(name, f"an array of shape ({sizes})", tuple(value.shape))
        return value

    def finite(self, name: str, dtype: torch.dtype, shape: tuple[int | None, ...]) -> Tensor:
        """The same, all its numbers finite."""
        value = self.array(name, dtype, shape)
        if not bool(torch.isfinite(value).all()):
            raise self._wrong(name, "finite numbers", "others")
        return value

    def positions(self, name: str, size: int, length: int | None = None) -> Tensor:
        """(T,) int64 in [0, size)."""
        value = self.array(name, torch.int64, (length,))
        if value.numel() and not 0 <= int(value.min()) <= int(value.max()) < size:
            raise self._wrong(name, f"positions in [0, {size})", (int(value.min()), int(value.max())))
        return value


def _whole(value: Any, minimum: int, maximum: int, where: str) -> int:
    if type(value) is not int or not minimum <= value <= maximum:
        raise StorageError(f"{where}: expected a whole number from {minimum} to {maximum}, got {value!r:.100}")
    return value


def _number(value: Any, minimum: float, where: str) -> float:
    if type(value) not in (int, float):
        raise StorageError(f"{where}: expected a number, got {value!r:.100}")
    if not abs(value) <= LARGEST:
        raise StorageError(f"{where}: expected a finite number, got {value!r:.100}")
    if value < minimum:
        raise StorageError(f"{where}: expected a number of at least {minimum:g}, got {value!r:.100}")
    number: float = value
    return number
