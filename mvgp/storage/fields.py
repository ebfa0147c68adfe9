"""What comes out of a file: named parts, each checked when it is asked for, and what they may cost."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from ..checks import check_instance
from ..errors import InputError, StorageError

LARGEST = 1.7e308  # a number, whole or not, that fits in double precision
T = TypeVar("T")


@dataclass(frozen=True)
class Budget:
    """The most that loading one file may take. A file that asks for more is refused before it gets it.

    The limits leave room for all but very large posteriors; raise one for a file you trust.

    :param file_bytes: size of the file. Arrays are stored as they are, and copied once, so it bounds their memory too.
    :param manifest_bytes: size of the description at its start.
    :param values: texts, numbers, lists and named parts in the description.
    :param arrays: arrays of the file.
    :param kernels: kernels of the file, those inside others included.
    :param memory_bytes: memory for evaluating the kernels, as estimated from their sizes.
    :param operations: floating-point operations for that, estimated likewise; a core does some 1e10 in a second.
    :param iterations: limit of conjugate gradients that a posterior may bring along.

    Example:
        >>> from mvgp.storage import Budget
        >>> Budget(memory_bytes=32 * 2**30).kernels
        256

    """

    file_bytes: int = 16 * 2**30
    manifest_bytes: int = 2**25
    values: int = 2**20
    arrays: int = 10_000
    kernels: int = 256
    memory_bytes: int = 4 * 2**30
    operations: int = 10**12
    iterations: int = 20_000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            limit = getattr(self, field.name)
            if type(limit) is not int or limit < 1:
                raise InputError(f"{field.name}: expected a positive whole number, got {limit!r:.100}")

    def allows(self, name: str, needed: int, where: str) -> None:
        """Refuse a file that needs more of something than there is."""
        limit = getattr(self, name)
        if needed > limit:
            raise StorageError(
                f"{where}: expected at most {limit:,} {name.replace('_', ' ')}, got {needed:,}; if you trust the file, "
                f"give budget=mvgp.storage.Budget({name}=...)"
            )


class Spending:
    """What has been granted of a budget (the usual one for None) so far, over all parts of a file."""

    def __init__(self, budget: Budget | None) -> None:
        limits = Budget() if budget is None else budget
        self.budget: Budget = check_instance(limits, "budget", Budget, "mvgp.storage.Budget")
        self._granted: Counter[str] = Counter()

    def need(self, where: str, **needs: int) -> None:
        """Grant more kernels, memory_bytes or operations, or refuse the file; ``where`` is for messages."""
        for name, more in needs.items():
            self._granted[name] += more
            self.budget.allows(name, self._granted[name], where)


class Fields:
    """Named parts of a file. Each method takes the name of a part and returns it, or refuses the file.

    :param tree: the parts.
    :param where: its place in the whole, for messages.

    Example:
        >>> from mvgp.storage import Fields
        >>> parts = Fields({"power": 2.0, "kind": "RBF"}, "prior.row_kernel")
        >>> parts.positive("power"), parts.text("kind")
        (2.0, 'RBF')

    """

    def __init__(self, tree: Any, where: str) -> None:
        self._tree, self.where = tree, where
        self.require(isinstance(tree, dict), "", "named parts", type(tree).__name__)

    def only(self, *names: str) -> None:
        """Refuse missing parts, and those of other names: nothing in a file is ignored."""
        for name in names:
            self._get(name)
        unknown = self.keys() - set(names)
        self.require(not unknown, "", f"the parts {', '.join(names) or 'none'}", sorted(unknown))

    def require(self, holds: object, name: str, expected: str, got: object = "others") -> None:
        """Refuse the file unless ``holds``; ``name`` is that of a part, or empty for all of them together."""
        if not holds:
            raise StorageError(f"{self.where}{name and '.'}{name}: expected {expected}, got {got!s:.200}")

    def keys(self) -> set[str]:
        """The names of the parts."""
        return set(self._tree)

    def holds(self, name: str) -> bool:
        """Whether there is a part of that name, which not every file has."""
        return name in self._tree

    def _wrong(self, name: str, expected: str, got: Any) -> StorageError:
        return StorageError(f"{self.where}.{name}: expected {expected}, got {got!r:.100}")

    def _get(self, name: str) -> Any:
        if name not in self._tree:  # the names are sorted for the message alone: lists have thousands
            self.require(False, "", f"a part {name!r}", sorted(self._tree))
        return self._tree[name]

    def has(self, name: str) -> bool:
        """Whether a part that may be None is not."""
        return self._get(name) is not None

    def optional(self, name: str, read: Callable[[Fields, str], T]) -> T | None:
        """None, or what a method of this class returns: ``parts.optional("noise", Fields.positive)``."""
        return read(self, name) if self.has(name) else None

    def fields(self, name: str) -> Fields:
        """Named parts inside."""
        return Fields(self._get(name), f"{self.where}.{name}")

    def optional_fields(self, name: str) -> Fields | None:
        """Named parts inside, or None."""
        return self.optional(name, Fields.fields)

    def each(self, name: str, read: Callable[[Fields, str], T]) -> list[T]:
        """A list, each item by a method of this class: ``parts.each("weights", Fields.positive)``."""
        items = self._get(name)
        if not isinstance(items, list):
            raise self._wrong(name, "a list", items)
        numbered = Fields({f"{name}[{index}]": item for index, item in enumerate(items)}, self.where)
        return [read(numbered, f"{name}[{index}]") for index in range(len(items))]

    def text(self, name: str, choices: Collection[str] | None = None) -> str:
        """A text, one of ``choices`` if there are any."""
        value = self._get(name)
        if not isinstance(value, str) or (choices is not None and value not in choices):
            raise self._wrong(name, "a text" if choices is None else f"one of {', '.join(choices)}", value)
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
        value = self._get(name)
        if type(value) is not int or not minimum <= value <= maximum:
            raise self._wrong(name, f"a whole number from {minimum} to {maximum}", value)
        return value

    def number(self, name: str, minimum: float = -math.inf, maximum: float = math.inf) -> float:
        """A finite number from ``minimum`` to ``maximum``; a whole one stays whole."""
        value = self._get(name)
        if type(value) not in (int, float):
            raise self._wrong(name, "a number", value)
        if not abs(value) <= LARGEST:
            raise self._wrong(name, "a finite number", value)
        if not minimum <= value <= maximum:
            limit = f"at least {minimum:g}" if value < minimum else f"at most {maximum:g}"
            raise self._wrong(name, f"a number of {limit}", value)
        return cast(float, value)

    def not_negative(self, name: str) -> float:
        """A finite number from 0."""
        return self.number(name, 0)

    def positive(self, name: str) -> float:
        """A finite number above 0."""
        value = self._get(name)
        if type(value) in (int, float) and not value > 0:
            raise self._wrong(name, "a positive number", value)
        return self.number(name)

    def array(self, name: str, dtype: torch.dtype | None = None, shape: tuple[int | None, ...] | None = None) -> Tensor:
        """A tensor of a type and a shape; None in a shape stands for any size."""
        value = self._get(name)
        if not isinstance(value, Tensor):
            raise self._wrong(name, "an array", value)
        if dtype is not None and value.dtype != dtype:
            raise self._wrong(name, f"an array of {dtype}", value.dtype)
        if shape is not None:
            sizes = zip(shape, value.shape, strict=False)
            if len(shape) != value.dim() or any(expected not in (None, size) for expected, size in sizes):
                expected = ", ".join("any" if size is None else str(size) for size in shape)
                raise self._wrong(name, f"an array of shape ({expected})", tuple(value.shape))
        return value

    def finite(self, name: str, dtype: torch.dtype, shape: tuple[int | None, ...]) -> Tensor:
        """The same, all its numbers finite."""
        value = self.array(name, dtype, shape)
        self.require(torch.isfinite(value).all(), name, "finite numbers")
        return value

    def positions(self, name: str, size: int, length: int | None = None) -> Tensor:
        """(T,) int64 in [0, size)."""
        value = self.array(name, torch.int64, (length,))
        if value.numel() and not 0 <= int(value.min()) <= int(value.max()) < size:
            raise self._wrong(name, f"positions in [0, {size})", (int(value.min()), int(value.max())))
        return value
