"""Checks of single arguments: gradients, numbers, and kinds of things.

Each check takes a value and the name of its argument, and returns the value in the form the library works with. Nothing
is guessed: booleans and strings are not numbers, 0.5 is not a whole number, complex numbers are not real.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import numbers
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from types import UnionType
from typing import Any, ParamSpec, TypeVar, cast

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
    if isinstance(value, Tensor | np.ndarray) and value.ndim:
        kind = "a tensor" if isinstance(value, Tensor) else "an array"
        return f"{kind} of {value.dtype} with shape {tuple(value.shape)}"
    plain = numbers.Number | str | bytes | list | tuple | set | torch.dtype | Tensor | np.ndarray | None
    if isinstance(value, plain):
        return _short(value)
    return f"a {type(value).__name__}" if not isinstance(value, type) else f"the class {value.__name__}"


def _short(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 1024:
        return f"a whole number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def require(holds: object, value: Any, name: str, expected: str, got: object = None) -> None:
    """Raise an error that says what was expected and what came (the value, or ``got``), unless ``holds``."""
    if not holds:
        raise InputError(f"{name}: expected {expected}, got {shown(value) if got is None else got}")


# Gradients ----------------------------------------------------------------------------------------


def refuse_gradient(value: Any, name: str) -> None:
    """Raise if ``value`` (a tensor, an operator, data, or some of those) requires a gradient, which would be lost."""
    if not torch.is_grad_enabled():  # nobody asks for one
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
                refuse_gradient(value, getattr(value, "gradient_name", name))
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
                        refuse_gradient(value, getattr(value, "gradient_name", name))
            with torch.set_grad_enabled(carried):
                return function(*args, **kwargs)

        return carrying

    return decorate


# Numbers ------------------------------------------------------------------------------------------


def _number_check(expected: str, inside: Callable[[float], bool], usual: str = "") -> Callable[..., float]:
    """The check of a finite number that is ``inside``; ``usual`` is the name of its argument where none is given."""

    def check(value: Any, name: str = usual) -> float:
        refuse_gradient(value, name)
        number = real(value)
        fits = number is not None and math.isfinite(number) and inside(number)
        require(fits, value, name, expected)
        return cast(float, number)

    return check


check_number = _number_check("a finite number", lambda number: True)
check_positive = _number_check("a positive finite number", lambda number: number > 0)
check_tolerance = _number_check("a positive finite number", lambda number: number > 0, "tolerance")
check_not_negative = _number_check("a finite number that is not negative", lambda number: number >= 0)
check_share = _number_check("a number from 0 to 1", lambda number: 0 <= number <= 1)
check_part = _number_check("a number above 0 and at most 1", lambda number: 0 < number <= 1)
check_between = _number_check("a number between 0 and 1", lambda number: 0 < number < 1)


def real(value: Any) -> float | None:
    """The number, or None for what is none: a boolean, a string, a complex number, an array of several."""
    value = _scalar(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        huge: Any = value  # beyond all doubles
        return math.inf if huge > 0 else -math.inf


def check_whole_number(value: Any, name: str, minimum: int = 1, maximum: int = LARGEST) -> int:
    """A whole number from ``minimum`` to ``maximum``, from Python, numpy or torch."""
    number = whole(value)
    if number is None or not minimum <= number <= maximum:
        expected = "a positive whole number" if minimum == 1 else f"a whole number of at least {minimum}"
        expected = expected if maximum == LARGEST else f"a whole number from {minimum} to {maximum}"
        raise InputError(f"{name}: expected {expected}, got {shown(value)}")
    return number


def check_iterations(value: Any, name: str = "max_iterations") -> int:
    """A limit on iterations: a positive whole number."""
    return check_whole_number(value, name)


def check_seed(value: Any, name: str = "seed", maximum: int = LARGEST) -> int:
    """A seed of random numbers: a whole number of at least 0."""
    return check_whole_number(value, name, 0, maximum)


def whole(value: Any) -> int | None:
    """The whole number, or None for what is none: a boolean, 0.5, 2.0, a string, an array of several."""
    value = _scalar(value)
    return None if isinstance(value, bool) or not isinstance(value, numbers.Integral) else int(value)


def _scalar(value: Any) -> Any:
    """What is in a tensor or an array of shape (), None for any other; the rest as it is."""
    if isinstance(value, Tensor):
        return value.item() if value.dim() == 0 and value.layout == torch.strided and not value.is_meta else None
    if isinstance(value, np.ndarray):
        return value.item() if value.ndim == 0 and not isinstance(value, np.ma.MaskedArray) else None
    return value


def check_memory(entries: float, name: str, what: str, maximum: float = 2.0**31) -> None:
    """Refuse an answer with more numbers than fit into a machine's memory."""
    if entries > maximum:
        raise SizeError(f"{name}: {what} needs {entries:.3g} numbers, the limit is {maximum:.3g}")


def free_memory() -> int | None:
    """Bytes that can be had without swapping, within the limits of the container; None where nobody knows."""
    sizes = []
    with contextlib.suppress(OSError):
        available = re.search(r"^MemAvailable: *(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
        sizes += [1024 * int(available[1])] if available else []
    with contextlib.suppress(OSError, ValueError):
        folder = Path("/sys/fs/cgroup")
        sizes.append(int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text()))
    if not sizes and hasattr(os, "sysconf"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(sizes) if sizes else None


# Kinds of things ----------------------------------------------------------------------------------


def check_flag(value: Any, name: str) -> bool:
    """True or False."""
    require(isinstance(value, bool | np.bool_), value, name, "True or False")
    return bool(value)


def check_choice(value: Any, name: str, choices: Collection[str]) -> Any:
    """One of several words."""
    *others, last = (repr(choice) for choice in choices)
    expected = f"{', '.join(others)} or {last}" if others else last
    require(isinstance(value, str) and value in choices, value, name, expected)
    return value


def check_text(value: Any, name: str) -> str:
    """A string that is not empty."""
    require(isinstance(value, str) and value, value, name, "a string that is not empty")
    return str(value)


def check_instance(value: Any, name: str, kinds: type | UnionType | tuple[type, ...], expected: str) -> Any:
    """An object of a class; ``expected`` is the class's name for the message."""
    came = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    require(isinstance(value, kinds), value, name, expected, came)
    return value


def check_callable(value: Any, name: str, expected: str = "a function") -> Any:
    """Something that can be called."""
    require(callable(value), value, name, expected)
    return value


def check_generator(value: torch.Generator | None, name: str = "generator") -> torch.Generator | None:
    """Torch's source of random numbers, or None for its global one."""
    require(value is None or isinstance(value, torch.Generator), value, name, "a torch.Generator or None")
    return value


def check_dtype(value: torch.dtype, name: str = "dtype") -> torch.dtype:
    """Single or double precision."""
    known = isinstance(value, torch.dtype) and value in FLOATS
    require(known, value, name, "torch.float32 or torch.float64")
    return value


def check_device(value: torch.device | str, name: str = "device") -> torch.device:
    """A device of torch, or its name."""
    with contextlib.suppress(RuntimeError):
        if isinstance(value, str | torch.device):
            return torch.device(value)
    raise InputError(f"{name}: expected a torch.device or its name, such as 'cpu', got {shown(value)}")


def check_path(value: Any, name: str = "path") -> Path:
    """The path of a file or a directory."""
    fits = isinstance(value, str | os.PathLike) and str(value) and "\0" not in str(value)
    require(fits, value, name, "a path")
    return Path(value)


def overridden(instance: Any, base: type, *names: str) -> list[str]:
    """Those of the methods ``names`` that ``instance`` does not take from ``base``, in the order of the names."""
    own = vars(instance) if hasattr(instance, "__dict__") else {}
    return [name for name in names if name in own or getattr(type(instance), name, None) is not getattr(base, name)]


def most_derived(instance: Any, *names: str) -> str:
    """The attribute among ``names`` that is defined furthest down among the classes; the first of equals."""
    own = vars(instance) if hasattr(instance, "__dict__") else {}
    for members in (own, *(vars(cls) for cls in type(instance).__mro__)):
        if found := [name for name in names if name in members]:
            return found[0]
    return names[0]
