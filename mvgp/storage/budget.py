"""Trees: what is stored, as nested dictionaries and lists of plain values and tensors.

JSON has no arrays and no infinite numbers. In the manifest a tensor is the name of its array, and a number that is not
finite is a word.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..errors import InputError, StorageError


@dataclass(frozen=True)
class Budget:
    """The most that loading one file may take. A file that asks for more is refused before it gets it.

    The limits leave room for all but very large posteriors; raise one for a file you trust.

    :param file_bytes: size of the file. Arrays are stored as they are, so it bounds their memory too.
    :param manifest_bytes: size of ``manifest.json``.
    :param values: texts, numbers, lists and named parts in it.
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
            given = getattr(self, field.name)
            if type(given) is not int or given < 1:
                raise InputError(f"{field.name}: expected a positive whole number, got {given!r:.100}")

    def allows(self, name: str, needed: int, where: str) -> None:
        """Refuse a file that needs more of something than there is."""
        limit = getattr(self, name)
        if needed > limit:
            raise StorageError(
                f"{where}: expected at most {limit:,} {name.replace('_', ' ')}, got {needed:,}; if you trust the file, "
                f"give budget=mvgp.storage.Budget({name}=...)"
            )


class Spending:
    """What has been granted of a budget so far, over all parts of a file.

    :param budget: the limits.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._granted = dict.fromkeys(("kernels", "memory_bytes", "operations"), 0)

    def need(self, where: str, *, kernels: int = 0, memory_bytes: int = 0, operations: int = 0) -> None:
        """Grant more, or refuse the file; ``where`` is for messages."""
        for name, more in (("kernels", kernels), ("memory_bytes", memory_bytes), ("operations", operations)):
            self._granted[name] += more
            self.budget.allows(name, self._granted[name], where)


def check_budget(budget: Budget | None) -> Budget:
    """The budget, or the usual one for None."""
    if budget is not None and not isinstance(budget, Budget):
        raise InputError(f"budget: expected mvgp.storage.Budget, got {type(budget).__name__}")
    return budget or Budget()


Tree = dict[str, Any]

ARRAY, NUMBER = "$array", "$number"
WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def on_cpu(tree: Any) -> Any:
    """The same tree, its tensors on the CPU."""
    if isinstance(tree, dict):
        return {key: on_cpu(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [on_cpu(value) for value in tree]
    return tree.detach().cpu() if isinstance(tree, Tensor) else tree


def plain(tree: Any, put: Callable[[str, Tensor], str], where: str = "") -> Any:
    """The tree as JSON can hold it.

    :param put: takes a place in the tree and the tensor there, returns the name of its array.
    """
    if isinstance(tree, Tensor):
        return {ARRAY: put(where, tree)}
    if isinstance(tree, dict):
        return {key: plain(value, put, f"{where}.{key}" if where else key) for key, value in tree.items()}
    if isinstance(tree, list):
        return [plain(value, put, f"{where}.{place}") for place, value in enumerate(tree)]
    if isinstance(tree, float) and not math.isfinite(tree):
        return {NUMBER: str(float(tree))}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"{where}: {type(tree).__name__} is not a plain value")


def full(tree: Any, arrays: dict[str, Tensor]) -> Any:
    """The inverse of :func:`plain`, with ``arrays`` by their names."""
    if isinstance(tree, dict) and set(tree) == {ARRAY}:
        name = tree[ARRAY]
        if not isinstance(name, str) or name not in arrays:
            raise StorageError(f"content: expected the name of one of its {len(arrays)} arrays, got {name!r:.100}")
        return arrays[name]
    if isinstance(tree, dict) and set(tree) == {NUMBER}:
        word = tree[NUMBER]
        if not isinstance(word, str) or word not in WORDS:
            raise StorageError(f"content: expected one of {', '.join(WORDS)}, got {word!r:.100}")
        return WORDS[word]
    if isinstance(tree, dict):
        return {key: full(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list):
        return [full(value, arrays) for value in tree]
    return tree
