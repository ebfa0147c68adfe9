"""Checks of arguments: one meaning each. They name the argument and say what was expected and what came.

Each takes what was given and the name of the argument, and returns the value in the form the library works with: a
``float``, an ``int``, a tensor. Nothing is guessed: booleans and strings are no numbers, 0.5 is no whole number,
complex numbers are not real, and what is masked or missing is no value.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

from .errors import InputError, SizeError

P = ParamSpec("P")
R = TypeVar("R")
EXACT = 2**53  # whole numbers up to here have a double of their own
LARGEST = 2**63 - 1  # of 64-bit positions, counts and seeds
LONGEST = 120  # characters of a value shown in a message
FLOATS = (torch.float32, torch.float64)
SMALL_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32)


def shown(given: Any) -> str:
    """What came, in few words: short values as they are, arrays by their type and shape, the rest by its type."""
    if isinstance(given, Tensor):
        return f"a tensor of {given.dtype} with shape {tuple(given.shape)}" if given.dim() else _short(given)
    if isinstance(given, np.ndarray):
        return f"an array of {given.dtype} with shape {given.shape}" if given.ndim else _short(given)
    if given is None or isinstance(given, numbers.Number | str | bytes | list | tuple | set | torch.dtype):
        return _short(given)
    return f"a {type(given).__name__}" if not isinstance(given, type) else f"the class {given.__name__}"


def _short(given: Any) -> str:
    if isinstance(given, int) and given.bit_length() > 1024:
        return f"a whole number of {given.bit_length()} bits"
    text = repr(given)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


# Gradients ----------------------------------------------------------------------------------------


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


# Numbers ------------------------------------------------------------------------------------------


def check_number(given: Any, name: str) -> float:
    """A finite real number."""
    return _number(given, name, "a finite number", -math.inf)


def check_positive(given: Any, name: str) -> float:
    """A finite number above 0."""
    return _number(given, name, "a positive finite number", 0.0)


def check_not_negative(given: Any, name: str) -> float:
    """A finite number of at least 0."""
    return _number(given, name, "a finite number that is not negative", 0.0, with_low=True)


def check_share(given: Any, name: str) -> float:
    """A number from 0 to 1."""
    return _number(given, name, "a number from 0 to 1", 0.0, 1.0, with_low=True, with_high=True)


def check_part(given: Any, name: str) -> float:
    """A number above 0 and at most 1."""
    return _number(given, name, "a number above 0 and at most 1", 0.0, 1.0, with_high=True)


def check_between(given: Any, name: str, low: float = 0.0, high: float = 1.0) -> float:
    """A number strictly between two others."""
    return _number(given, name, f"a number between {low:g} and {high:g}", low, high)


def check_tolerance(given: Any, name: str = "tolerance") -> float:
    """A positive number; infinity would ask for nothing."""
    return check_positive(given, name)


def real(given: Any) -> float | None:
    """The number, or None for what is none: a boolean, a string, a complex number, an array of several."""
    if isinstance(given, Tensor | np.ndarray) and not isinstance(given, np.ma.MaskedArray):
        plain = not isinstance(given, Tensor) or (given.layout == torch.strided and not given.is_meta)
        given = given.item() if plain and tuple(given.shape) == () else None
    if isinstance(given, bool | np.bool_) or not isinstance(given, numbers.Real):
        return None
    try:
        return float(given)
    except OverflowError:
        huge: Any = given  # beyond all doubles
        return math.inf if huge > 0 else -math.inf


def _number(
    given: Any,
    name: str,
    wanted: str,
    low: float,
    high: float = math.inf,
    *,
    with_low: bool = False,
    with_high: bool = False,
) -> float:
    refuse_gradient(given, name)
    found = real(given)
    inside = found is not None and (low < found or (with_low and found == low))
    if found is None or not inside or not (found < high or (with_high and found == high)):
        raise InputError(f"{name}: expected {wanted}, got {shown(given)}")
    return found


# Whole numbers ------------------------------------------------------------------------------------


def check_whole_number(given: Any, name: str, least: int = 1, most: int = LARGEST) -> int:
    """A whole number from ``least`` to ``most``, from Python, numpy or torch."""
    found = whole(given)
    if found is None or not least <= found <= most:
        raise InputError(f"{name}: expected {_wanted_whole(least, most)}, got {shown(given)}")
    return found


def check_iterations(given: Any, name: str = "max_iterations") -> int:
    """A limit on iterations: a positive whole number."""
    return check_whole_number(given, name)


def check_seed(given: Any, name: str = "seed", most: int = LARGEST) -> int:
    """A seed of random numbers: a whole number of at least 0."""
    return check_whole_number(given, name, 0, most)


def whole(given: Any) -> int | None:
    """The whole number, or None for what is none: a boolean, 0.5, 2.0, a string, an array of several."""
    if isinstance(given, Tensor):
        plain = given.dim() == 0 and given.layout == torch.strided and not given.is_meta
        given = given.item() if plain else None
    elif isinstance(given, np.ndarray) and not isinstance(given, np.ma.MaskedArray):
        given = given.item() if given.ndim == 0 else None
    if isinstance(given, bool | np.bool_) or not isinstance(given, numbers.Integral):
        return None
    return int(given)


def _wanted_whole(least: int, most: int) -> str:
    if most < LARGEST:
        return f"a whole number from {least} to {most}"
    return "a positive whole number" if least == 1 else f"a whole number of at least {least}"


def check_memory(entries: float, name: str, what: str, most: float = 2.0**31) -> None:
    """Refuse an answer with more numbers than fit into a machine's memory."""
    if entries > most:
        raise SizeError(f"{name}: {what} needs {entries:.3g} numbers, the limit is {most:.3g}")


# Kinds of things ----------------------------------------------------------------------------------


def check_flag(given: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(given, bool | np.bool_):
        raise InputError(f"{name}: expected True or False, got {shown(given)}")
    return bool(given)


def check_choice(given: Any, name: str, choices: Collection[str]) -> Any:
    """One of several words."""
    if not isinstance(given, str) or given not in choices:
        words = [repr(choice) for choice in choices]
        wanted = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
        raise InputError(f"{name}: expected {wanted}, got {shown(given)}")
    return given


def check_text(given: Any, name: str) -> str:
    """A string that is not empty."""
    if not isinstance(given, str) or not given:
        raise InputError(f"{name}: expected a string that is not empty, got {shown(given)}")
    return given


def check_instance(given: Any, name: str, kinds: type | tuple[type, ...], wanted: str) -> Any:
    """An object of a class; ``wanted`` is the class's name for the message."""
    if not isinstance(given, kinds):
        came = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise InputError(f"{name}: expected {wanted}, got {came}")
    return given


def check_callable(given: Any, name: str, wanted: str = "a function") -> Any:
    """Something that can be called."""
    if not callable(given):
        raise InputError(f"{name}: expected {wanted}, got {shown(given)}")
    return given


def check_generator(given: Any, name: str = "generator") -> torch.Generator | None:
    """Torch's source of random numbers, or None for its global one."""
    if given is not None and not isinstance(given, torch.Generator):
        raise InputError(f"{name}: expected a torch.Generator or None, got {shown(given)}")
    return given


def check_dtype(given: Any, name: str = "dtype") -> torch.dtype:
    """Single or double precision."""
    if not isinstance(given, torch.dtype) or given not in FLOATS:
        raise InputError(f"{name}: expected torch.float32 or torch.float64, got {shown(given)}")
    return given


def check_device(given: Any, name: str = "device") -> torch.device:
    """A place that tensors can be in."""
    if isinstance(given, torch.device):
        return given
    try:
        if isinstance(given, str):
            return torch.device(given)
    except RuntimeError:
        pass
    raise InputError(f"{name}: expected a torch.device or its name, such as 'cpu', got {shown(given)}")


def check_path(given: Any, name: str = "path") -> Path:
    """The path of a file or a directory."""
    if isinstance(given, bytes) or not isinstance(given, str | os.PathLike) or not str(given) or "\0" in str(given):
        raise InputError(f"{name}: expected a path, got {shown(given)}")
    return Path(given)


def check_list(given: Any, name: str, wanted: str) -> list[Any]:
    """The entries of a list, a tuple or another iterable; a string is none."""
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        raise InputError(f"{name}: expected {wanted}, got {shown(given)}")
    if isinstance(given, Tensor):
        given = plain_tensor(given.detach(), name).tolist()
    elif isinstance(given, np.ndarray):
        _refuse_masked(given, name)
        given = given.tolist()
    try:
        found = list(given)
    except (TypeError, NotImplementedError):  # a number in an array, or a matrix of scipy
        raise InputError(f"{name}: expected {wanted}, got {shown(given)}") from None
    return found


# Arrays -------------------------------------------------------------------------------------------


def as_tensor(given: Any, name: str, wanted: str = "real numbers", *, keep_gradient: bool = False) -> Tensor:
    """A dense tensor of real numbers or booleans, from a tensor, an array, a pandas column or a list of numbers.

    :param keep_gradient: whether the caller carries a gradient on; if not, a tensor that requires one is refused.
    """
    if keep_gradient and isinstance(given, Tensor):
        return plain_tensor(given, name)
    refuse_gradient(given, name)
    if isinstance(given, Tensor):
        return plain_tensor(given.detach(), name)
    _refuse_masked(given, name)
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError) as error:
        raise InputError(f"{name}: expected {wanted} ({error})") from None
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        what = "objects" if array.dtype == object else str(array.dtype)
        raise InputError(f"{name}: expected {wanted}, got {what}{_first_stranger(array)}")
    if array.dtype.kind == "u":
        array = _signed(array, name)
    native = array.dtype.newbyteorder("=")
    usable = array.dtype == native and array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if usable else np.array(array, dtype=native, order="C"))


def plain_tensor(given: Tensor, name: str) -> Tensor:
    """A dense tensor of real numbers or booleans, gradients included; the rarer whole numbers become int64."""
    if given.is_nested or given.layout != torch.strided:
        layout = "nested" if given.is_nested else str(given.layout).removeprefix("torch.")
        raise InputError(f"{name}: expected a dense tensor, got a {layout} one")
    if given.is_quantized or given.is_meta:
        raise InputError(f"{name}: expected a tensor of numbers, got a {'meta' if given.is_meta else 'quantised'} one")
    if given.is_complex():
        raise InputError(f"{name}: expected real numbers, got {given.dtype}")
    if given.is_floating_point():
        return given if given.dtype.itemsize > 1 else given.double()
    if given.dtype in (torch.uint16, torch.uint32):
        return given.to(torch.int64)
    if given.dtype == torch.uint64:
        return torch.from_numpy(_signed(given.cpu().numpy(), name)).to(given.device)
    if given.dtype not in (torch.bool, torch.int64, *SMALL_WHOLE):
        raise InputError(f"{name}: expected numbers, got {given.dtype}")
    return given


def _signed(array: np.ndarray, name: str) -> np.ndarray:
    """The same whole numbers as int64, which torch reckons with."""
    if array.dtype.itemsize == 8 and array.size and int(array.max()) > LARGEST:
        at = np.unravel_index(int(array.argmax()), array.shape)
        raise InputError(f"{place(name, at)}: expected a whole number below 2**63, got {array.max()}")
    return array if array.dtype == np.uint8 else array.astype(np.int64)


def _refuse_masked(given: Any, name: str, depth: int = 0) -> None:
    """Masked entries are missing, and most arguments have no place for that; a mask must not get lost."""
    if isinstance(given, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(given)
        if mask.any():
            at = np.unravel_index(int(mask.argmax()), mask.shape)
            raise InputError(f"{place(name, at)}: expected a number, got a masked entry")
    elif isinstance(given, list | tuple) and depth < 3:
        for entry in given:
            if isinstance(entry, np.ma.MaskedArray | list | tuple):
                _refuse_masked(entry, name, depth + 1)


def _first_stranger(array: np.ndarray) -> str:
    """Which entry of an array of objects is no number, for the message."""
    if array.dtype != object or array.ndim == 0:
        return f" ({type(array.item()).__name__})" if array.ndim == 0 and array.dtype == object else ""
    for at, entry in np.ndenumerate(array):
        if real(entry) is None:
            return f" (at {list(at)} {shown(entry)})"
    return " (numbers, some beyond 64 bits)"


def place(name: str, at: Iterable[Any]) -> str:
    """The name with a position, as it would be written in Python."""
    where = ", ".join(str(int(i)) for i in at)
    return f"{name}[{where}]" if where else name


def refuse_where(bad: Tensor, given: Tensor, name: str, wanted: str) -> None:
    """Name the first entry of ``given`` where ``bad`` is true; both of the same shape."""
    if bad.any():
        at = tuple(int(i) for i in bad.nonzero()[0])
        raise InputError(f"{place(name, at)}: expected {wanted}, got {given[at].item()}")


def as_reals(
    given: Any,
    name: str,
    dtype: torch.dtype | None = None,
    *,
    booleans: bool = False,
    keep_gradient: bool = False,
) -> Tensor:
    """Finite floating-point numbers of any shape; whole numbers and half precision become float64.

    :param dtype: that the numbers are brought to, in which they have to be finite too; their own when left out.
    :param booleans: whether True and False stand for 1 and 0 here.
    :param keep_gradient: see :func:`as_tensor`.
    """
    found = as_tensor(given, name, keep_gradient=keep_gradient)
    if found.dtype == torch.bool and found.numel() and not booleans:
        raise InputError(f"{name}: expected numbers, got booleans")
    if not found.is_floating_point() and found.dtype == torch.int64:
        refuse_where((found > EXACT) | (found < -EXACT), found, name, "a number of at most 2**53, as in a double")
    wanted = dtype or (found.dtype if found.dtype in FLOATS else torch.float64)
    refuse_where(~torch.isfinite(found), found, name, "a finite number")
    result = found.to(wanted)
    if dtype == torch.float32 and found.dtype != dtype:
        refuse_where(~torch.isfinite(result), found, name, f"a number within the range of {dtype}")
    return result


def check_values(
    given: Any,
    length: int | None,
    name: str,
    dtype: torch.dtype | None = None,
    each: str = "of rows",
    *,
    keep_gradient: bool = False,
) -> Tensor:
    """(T,) finite floating-point numbers; whole numbers become float64. ``each`` says what there are T of."""
    found = check_vector(as_tensor(given, name, keep_gradient=keep_gradient), name)
    if length is not None and found.numel() != length:
        raise InputError(f"{name}: expected {length} numbers, one for each {each}, got {found.numel()}")
    return as_reals(found, name, dtype, keep_gradient=keep_gradient)


def check_weights(
    given: Any,
    length: int,
    dtype: torch.dtype = torch.float64,
    name: str = "weights",
    each: str = "of rows",
    *,
    keep_gradient: bool = False,
) -> Tensor:
    """(T,) finite positive weights."""
    found = check_values(given, length, name, dtype, each, keep_gradient=keep_gradient)
    refuse_where(found <= 0, found, name, "a positive finite number")
    return found


def check_vector(given: Tensor, name: str, wanted: str = "a vector") -> Tensor:
    """(T,)"""
    if given.dim() != 1:
        raise InputError(f"{name}: expected {wanted}, got shape {tuple(given.shape)}")
    return given


def check_matrix(
    given: Any, name: str, dtype: torch.dtype | None = None, *, booleans: bool = False, shape: str = "(M, N)"
) -> Tensor:
    """(M, N) finite numbers, at least one of them; ``shape`` is how the message calls their shape."""
    found = as_tensor(given, name)
    if found.dim() != 2 or 0 in found.shape:
        raise InputError(f"{name}: expected a matrix of shape {shape}, got {tuple(found.shape)}")
    return as_reals(found, name, dtype, booleans=booleans)


def check_float_tensor(
    given: Any,
    name: str,
    shape: tuple[int | None, ...],
    like: Tensor | None = None,
    *,
    finite: bool = False,
    half: bool = False,
) -> Tensor:
    """A dense tensor of float32 or float64 with a shape; None stands for any size, gradients may flow.

    :param like: the dtype and the place that it has to have, where they matter.
    :param finite: whether to look for NaN and infinity, which costs a pass over the numbers.
    :param half: whether half precision will do.
    """
    wanted = f"({', '.join('any' if size is None else str(size) for size in shape)}{',' * (len(shape) == 1)})"
    if not isinstance(given, Tensor):
        raise InputError(f"{name}: expected a tensor of shape {wanted}, got {shown(given)}")
    plain_tensor(given, name)
    if given.dtype not in FLOATS and not (half and given.is_floating_point()):
        raise InputError(f"{name}: expected torch.float32 or torch.float64, got {given.dtype}")
    if given.dim() != len(shape) or any(w not in (None, s) for w, s in zip(shape, given.shape, strict=True)):
        raise InputError(f"{name}: expected a tensor of shape {wanted}, got shape {tuple(given.shape)}")
    if like is not None and (given.dtype != like.dtype or given.device != like.device):
        raise InputError(f"{name}: expected {like.dtype} on {like.device}, got {given.dtype} on {given.device}")
    if finite:
        refuse_where(~torch.isfinite(given.detach()), given.detach(), name, "a finite number")
    return given


# Positions, names and sizes -----------------------------------------------------------------------


def check_shape(shape: Any, name: str = "shape") -> tuple[int, int]:
    """A pair of positive sizes (M, N) with fewer than 2**63 cells."""
    given = as_tensor(shape, name).tolist() if isinstance(shape, Tensor | np.ndarray) else shape
    sizes = [whole(size) for size in given] if isinstance(given, list | tuple) else []
    if len(sizes) != 2 or any(size is None or size < 1 for size in sizes):
        raise InputError(f"{name}: expected two positive whole numbers (M, N), got {shown(shape)}")
    rows, cols = (int(size or 0) for size in sizes)
    if rows * cols > LARGEST:
        raise InputError(f"{name}: expected fewer than 2**63 cells, got {rows} x {cols}")
    return rows, cols


def check_sizes(given: Any, name: str) -> tuple[int, ...]:
    """The sizes of a batch or a sample: whole numbers of at least 0, any number of them."""
    sizes = check_list(given, name, "a tuple of whole numbers")
    found = tuple(check_whole_number(size, f"{name}[{at}]", 0) for at, size in enumerate(sizes))
    check_memory(math.prod(max(size, 1) for size in found), name, "an answer of this size")
    return found


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
    refuse_where((found < 0) | (found >= size), found, name, f"a position in [0, {size})")
    return found


def check_one_index(index: Any, size: int, name: str) -> int:
    """A single position in [0, size)."""
    found = check_index(index, size, name)
    if len(found) != 1:
        raise InputError(f"{name}: expected one position in [0, {size}), got {len(found)} of them")
    return int(found[0])


def check_whole(given: Any, name: str) -> Tensor:
    """(...) int64, from any numbers that are whole and that 64 bits can hold."""
    found = as_tensor(given, name)
    if found.dtype == torch.bool and found.numel():
        raise InputError(f"{name}: expected whole numbers, got booleans")
    if found.is_floating_point():
        refuse_where(found != found.floor(), found, name, "a whole number")  # NaN differs from itself
        refuse_where(found.abs() > EXACT, found, name, "a whole number of at most 2**53")
    return found.long()


def check_names(names: Any, size: int, name: str) -> tuple[str, ...] | None:
    """As many distinct names as positions, or None. Whole numbers will do as names; what is missing will not."""
    if names is None:
        return None
    entries = check_list(names, name, f"{size} names")
    if len(entries) != size:
        raise InputError(f"{name}: expected {size} names, got {len(entries)}")
    found = tuple(check_name(entry, f"{name}[{at}]") for at, entry in enumerate(entries))
    if len(set(found)) != size:
        seen: set[str] = set()
        for at, entry in enumerate(found):
            if entry in seen:
                raise InputError(f"{name}[{at}]: the name {entry!r} appears twice; names must differ")
            seen.add(entry)
    return found


def check_name(given: Any, name: str) -> str:
    """A name as a string, out of a string, a number or a date; missing values, booleans and containers are none."""
    if isinstance(given, str):
        return str(given)
    if isinstance(given, Tensor) or given is np.ma.masked:
        given = whole(given) if isinstance(given, Tensor) else None
    missing = given is None or isinstance(given, bool | np.bool_ | bytes | complex | list | dict | set | np.ndarray)
    try:
        missing = missing or bool(given != given)  # NaN and NaT differ from themselves, pandas' NA cannot say
    except (TypeError, ValueError):
        missing = True
    nameless = all(getattr(type(given), part) is getattr(object, part) for part in ("__str__", "__repr__"))
    if missing or nameless:
        raise InputError(f"{name}: expected a name, got {shown(given)}")
    return str(given)
