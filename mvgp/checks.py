"""Checks of single arguments: gradients, numbers, and kinds of things.

Each check takes a value and the name of its argument, and returns the value in the form the library works with. Its
error names the argument and says what was expected and what came. Nothing is guessed: booleans and strings are not
numbers, 0.5 is not a whole number, complex numbers are not real.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
from collections.abc import Callable, Collection
from pathlib import Path
from types import UnionType
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

from .errors import InputError, SizeError

P = ParamSpec("P")
R = TypeVar("R")
LARGEST = 2**63 - 1  # of 64-bit positions, counts and seeds
SHOWN_CHARACTERS = 120  # of a value in a message
FLOATS = (torch.float32, torch.float64)


def shown(value: Any) -> str:
    """What came, in few words: short values as they are, arrays by their type and shape, the rest by its type."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} with shape {tuple(value.shape)}" if value.dim() else _short(value)
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}" if value.ndim else _short(value)
    if value is None or isinstance(value, numbers.Number | str | bytes | list | tuple | set | torch.dtype):
        return _short(value)
    return f"a {type(value).__name__}" if not isinstance(value, type) else f"the class {value.__name__}"


def _short(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 1024:
        return f"a whole number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


# Gradients ----------------------------------------------------------------------------------------


def refuse_gradient(value: Any, name: str) -> None:
    """Raise if ``value`` (a tensor, an operator, data, or some of those) requires a gradient, which would be lost.

    Under ``torch.no_grad()`` nobody asks for one, and nothing is refused.
    """
    if not torch.is_grad_enabled():
        return
    if isinstance(value, tuple | list) and any(isinstance(part, Tensor) for part in value[:1]):
        for part in value:
            refuse_gradient(part, name)
    elif getattr(value, "requires_grad", False) is True:
        raise InputError(
            f"{name}: requires a gradient, which is not carried here; pass it detached, or call under torch.no_grad()"
        )


def without_gradient(function: Callable[P, R]) -> Callable[P, R]:
    """Run ``function`` under ``torch.no_grad()``; an argument that requires a gradient is refused by its name."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def constant(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.is_grad_enabled():
            for name, value in signature.bind(*args, **kwargs).arguments.items():
                refuse_gradient(value, name)
        with torch.no_grad():
            return function(*args, **kwargs)

    return constant


def gradient_of(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Carry the gradients of the arguments ``names``, and refuse those of all others by name.

    Where none of them requires a gradient the function runs under ``torch.no_grad()``, see :func:`without_gradient`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def carrying(*args: P.args, **kwargs: P.kwargs) -> R:
            carried = False
            if torch.is_grad_enabled():
                for name, value in signature.bind(*args, **kwargs).arguments.items():
                    if name in names and isinstance(value, Tensor):
                        carried = carried or value.requires_grad
                    else:
                        refuse_gradient(value, name)
            with torch.set_grad_enabled(carried):
                return function(*args, **kwargs)

        return carrying

    return decorate


# Numbers ------------------------------------------------------------------------------------------


def check_number(value: Any, name: str) -> float:
    """A finite real number."""
    return _number(value, name, "a finite number", -math.inf)


def check_positive(value: Any, name: str) -> float:
    """A finite number above 0."""
    return _number(value, name, "a positive finite number", 0.0)


def check_not_negative(value: Any, name: str) -> float:
    """A finite number of at least 0."""
    return _number(value, name, "a finite number that is not negative", 0.0, or_low=True)


def check_share(value: Any, name: str) -> float:
    """A number from 0 to 1."""
    return _number(value, name, "a number from 0 to 1", 0.0, 1.0, or_low=True, or_high=True)


def check_part(value: Any, name: str) -> float:
    """A number above 0 and at most 1."""
    return _number(value, name, "a number above 0 and at most 1", 0.0, 1.0, or_high=True)


def check_between(value: Any, name: str, low: float = 0.0, high: float = 1.0) -> float:
    """A number strictly between two others."""
    return _number(value, name, f"a number between {low:g} and {high:g}", low, high)


def check_tolerance(value: Any, name: str = "tolerance") -> float:
    """A positive number; infinity would ask for nothing."""
    return check_positive(value, name)


def real(value: Any) -> float | None:
    """The number, or None for what is none: a boolean, a string, a complex number, an array of several."""
    if isinstance(value, Tensor | np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        plain = not isinstance(value, Tensor) or (value.layout == torch.strided and not value.is_meta)
        value = value.item() if plain and tuple(value.shape) == () else None
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        huge: Any = value  # beyond all doubles
        return math.inf if huge > 0 else -math.inf


def _number(
    value: Any,
    name: str,
    expected: str,
    low: float,
    high: float = math.inf,
    *,
    or_low: bool = False,
    or_high: bool = False,
) -> float:
    refuse_gradient(value, name)
    number = real(value)
    inside = number is not None and (low < number or (or_low and number == low))
    if number is None or not inside or not (number < high or (or_high and number == high)):
        raise InputError(f"{name}: expected {expected}, got {shown(value)}")
    return number


# Whole numbers ------------------------------------------------------------------------------------


def check_whole_number(value: Any, name: str, minimum: int = 1, maximum: int = LARGEST) -> int:
    """A whole number from ``minimum`` to ``maximum``, from Python, numpy or torch."""
    number = whole(value)
    if number is None or not minimum <= number <= maximum:
        raise InputError(f"{name}: expected {_expected_whole(minimum, maximum)}, got {shown(value)}")
    return number


def check_iterations(value: Any, name: str = "max_iterations") -> int:
    """A limit on iterations: a positive whole number."""
    return check_whole_number(value, name)


def check_seed(value: Any, name: str = "seed", maximum: int = LARGEST) -> int:
    """A seed of random numbers: a whole number of at least 0."""
    return check_whole_number(value, name, 0, maximum)


def whole(value: Any) -> int | None:
    """The whole number, or None for what is none: a boolean, 0.5, 2.0, a string, an array of several."""
    if isinstance(value, Tensor):
        plain = value.dim() == 0 and value.layout == torch.strided and not value.is_meta
        value = value.item() if plain else None
    elif isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        value = value.item() if value.ndim == 0 else None
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        return None
    return int(value)


def _expected_whole(minimum: int, maximum: int) -> str:
    if maximum < LARGEST:
        return f"a whole number from {minimum} to {maximum}"
    return "a positive whole number" if minimum == 1 else f"a whole number of at least {minimum}"


def check_memory(entries: float, name: str, what: str, maximum: float = 2.0**31) -> None:
    """Refuse an answer with more numbers than fit into a machine's memory."""
    if entries > maximum:
        raise SizeError(f"{name}: {what} needs {entries:.3g} numbers, the limit is {maximum:.3g}")


# Kinds of things ----------------------------------------------------------------------------------


def check_flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name}: expected True or False, got {shown(value)}")
    return bool(value)


def check_choice(value: Any, name: str, choices: Collection[str]) -> Any:
    """One of several words."""
    if not isinstance(value, str) or value not in choices:
        words = [repr(choice) for choice in choices]
        expected = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
        raise InputError(f"{name}: expected {expected}, got {shown(value)}")
    return value


def check_text(value: Any, name: str) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{name}: expected a string that is not empty, got {shown(value)}")
    return value


def check_instance(value: Any, name: str, kinds: type | UnionType | tuple[type, ...], expected: str) -> Any:
    """An object of a class; ``expected`` is the class's name for the message."""
    if not isinstance(value, kinds):
        came = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise InputError(f"{name}: expected {expected}, got {came}")
    return value


def check_callable(value: Any, name: str, expected: str = "a function") -> Any:
    """Something that can be called."""
    if not callable(value):
        raise InputError(f"{name}: expected {expected}, got {shown(value)}")
    return value


def check_generator(value: Any, name: str = "generator") -> torch.Generator | None:
    """Torch's source of random numbers, or None for its global one."""
    if value is not None and not isinstance(value, torch.Generator):
        raise InputError(f"{name}: expected a torch.Generator or None, got {shown(value)}")
    return value


def check_dtype(value: Any, name: str = "dtype") -> torch.dtype:
    """Single or double precision."""
    if not isinstance(value, torch.dtype) or value not in FLOATS:
        raise InputError(f"{name}: expected torch.float32 or torch.float64, got {shown(value)}")
    return value


def check_device(value: Any, name: str = "device") -> torch.device:
    """A device of torch, or its name."""
    if isinstance(value, torch.device):
        return value
    try:
        if isinstance(value, str):
            return torch.device(value)
    except RuntimeError:
        pass
    raise InputError(f"{name}: expected a torch.device or its name, such as 'cpu', got {shown(value)}")


def check_path(value: Any, name: str = "path") -> Path:
    """The path of a file or a directory."""
    if isinstance(value, bytes) or not isinstance(value, str | os.PathLike) or not str(value) or "\0" in str(value):
        raise InputError(f"{name}: expected a path, got {shown(value)}")
    return Path(value)
