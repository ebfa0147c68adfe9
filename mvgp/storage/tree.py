"""Trees: what is stored, as nested dictionaries and lists of plain values and tensors.

JSON has no arrays and no infinite numbers. In the manifest a tensor is the name of its array, and a number that is not
finite is a word.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..errors import StorageError

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
