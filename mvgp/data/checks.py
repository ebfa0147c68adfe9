"""Checks of observed entries. Each names the first entry that offends."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


def as_tensor(given: Any, name: str, *, keep_gradient: bool = False) -> Tensor:
    """A tensor from a tensor, an array, a pandas column or a list of numbers.

    :param keep_gradient: whether the caller carries a gradient on; if not, a tensor that requires one is refused.
    """
    if isinstance(given, Tensor):
        if keep_gradient:
            return given
        refuse_gradient(given, name)
        return given.detach()
    try:
        array = np.asarray(given)
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError, RuntimeError) as error:  # a RuntimeError: a list of tensors that require gradients
        raise InputError(f"{name}: expected numbers ({error})") from None


def refuse_gradient(given: Any, name: str) -> None:
    """Raise if ``given`` (a tensor, an operator, data, or some of those) requires a gradient, which would be lost.

    Under ``torch.no_grad()`` nobody asks for one, and nothing is refused.
    """
    if not torch.is_grad_enabled():
        return
    if isinstance(given, tuple | list) and any(isinstance(part, Tensor) for part in given[:1]):
        for part in given:
            refuse_gradient(part, name)
    elif getattr(given, "requires_grad", False) is True:
        raise InputError(
            f"{name}: requires a gradient, which is not carried here; pass it detached, or call under torch.no_grad()"
        )


def without_gradient(function: Callable[P, R]) -> Callable[P, R]:
    """Run ``function`` under ``torch.no_grad()``; an argument that requires a gradient is refused by its name."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def constant(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.is_grad_enabled():
            for name, given in signature.bind(*args, **kwargs).arguments.items():
                refuse_gradient(given, name)
        with torch.no_grad():
            return function(*args, **kwargs)

    return constant


def check_shape(shape: Any) -> tuple[int, int]:
    """A pair of positive sizes."""
    try:
        sizes = tuple(int(size) for size in shape)
        whole = all(int(size) == size for size in shape)
    except (TypeError, ValueError):
        raise InputError(f"shape: expected two positive whole numbers (M, N), got {shape!r}") from None
    if len(sizes) != 2 or not whole or min(sizes) < 1:
        raise InputError(f"shape: expected two positive whole numbers (M, N), got {shape!r}")
    return sizes[0], sizes[1]


def check_index(index: Any, size: int, name: str) -> Tensor:
    """(T,) int64 positions in [0, size)."""
    given = as_tensor(index, name)
    given = given.long() if given.numel() == 0 else given
    given = given.unsqueeze(0) if given.dim() == 0 else given  # one position
    if given.dim() != 1:
        raise InputError(f"{name}: expected a vector of positions, got shape {tuple(given.shape)}")
    if given.dtype == torch.bool:
        raise InputError(f"{name}: expected whole numbers, got booleans (for a mask use ObservedMatrix.from_mask)")
    found = check_whole(given, name)
    bad = (found < 0) | (found >= size)
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"{name}[{at}]: expected a position in [0, {size}), got {found[at].item()}")
    return found


def check_whole(given: Tensor, name: str) -> Tensor:
    """(T,) int64, from any numbers (T,) that are whole."""
    if given.is_complex():
        raise InputError(f"{name}: expected whole numbers, got {given.dtype}")
    if given.is_floating_point():
        bad = given != given.floor()  # NaN differs from itself
        if bad.any():
            at = int(bad.nonzero()[0])
            raise InputError(f"{name}[{at}]: expected a whole number, got {given[at].item()}")
    return given.long()


def check_values(values: Any, length: int, name: str, dtype: torch.dtype | None = None) -> Tensor:
    """(T,) finite floating-point numbers, with their gradient; whole numbers become float64."""
    given = as_tensor(values, name, keep_gradient=True)
    if given.is_complex():
        raise InputError(f"{name}: expected real numbers, got {given.dtype}")
    given = given.to(dtype or (given.dtype if given.is_floating_point() else torch.float64))
    if given.dim() != 1:
        raise InputError(f"{name}: expected a vector, got shape {tuple(given.shape)}")
    if given.numel() != length:
        raise InputError(f"{name}: expected {length} numbers, one for each of rows, got {given.numel()}")
    bad = ~torch.isfinite(given)
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"{name}[{at}]: expected a finite number, got {given[at].item()}")
    return given


def check_weights(weights: Any, length: int, dtype: torch.dtype) -> Tensor:
    """(T,) finite positive weights, with their gradient."""
    found = check_values(weights, length, "weights", dtype)
    bad = found <= 0
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"weights[{at}]: expected a positive number, got {found[at].item()}")
    return found


def check_no_duplicates(key: Tensor, order: Tensor, num_cols: int) -> None:
    """``key`` (T,) are sorted cell numbers m N + n; ``order`` (T,) where each stood before sorting."""
    same = key[1:] == key[:-1]
    if same.any():
        # of all repeated entries, name the one that comes first in the user's own order
        later = order[1:][same]
        pick = int(later.argmin())
        place = int(same.nonzero()[pick])
        pair = (int(key[place]) // num_cols, int(key[place]) % num_cols)
        first, second = sorted((int(order[place]), int(order[place + 1])))
        raise InputError(f"duplicate pair {pair}: entry {second} repeats entry {first}; observe each pair once")


def check_names(names: Any, size: int, name: str) -> tuple[str, ...] | None:
    """As many distinct names as positions, or None."""
    if names is None:
        return None
    found = tuple(str(entry) for entry in names)
    if len(found) != size:
        raise InputError(f"{name}: expected {size} names, got {len(found)}")
    if len(set(found)) != size:
        seen: set[str] = set()
        for at, entry in enumerate(found):
            if entry in seen:
                raise InputError(f"{name}[{at}]: the name {entry!r} appears twice; names must differ")
            seen.add(entry)
    return found
