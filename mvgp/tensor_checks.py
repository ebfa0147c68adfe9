"""Checks of arrays and operators: tensors of numbers, positions, names and sizes.

They return tensors, or tuples of names or sizes. A masked or missing entry is not a value, and a mask must not get lost
on the way to a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from linear_operator import LinearOperator
from torch import Tensor

from .checks import FLOATS, LARGEST, check_memory, check_whole_number, real, refuse_gradient, require, shown, whole
from .errors import InputError

EXACT = 2**53  # whole numbers up to here have a double of their own
SMALL_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32)


def as_tensor(value: Any, name: str, expected: str = "real numbers", *, keep_gradient: bool = False) -> Tensor:
    """A dense tensor of real numbers or booleans, from a tensor, an array, a pandas column or a list of numbers.

    Without ``keep_gradient``, a tensor that requires one is refused.
    """
    if keep_gradient and isinstance(value, Tensor):
        return plain_tensor(value, name)
    refuse_gradient(value, name)
    if isinstance(value, Tensor):
        return plain_tensor(value.detach(), name)
    _refuse_masked(value, name)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError) as error:
        raise InputError(f"{name}: expected {expected} ({error})") from None
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        what = "objects" if array.dtype == object else str(array.dtype)
        raise InputError(f"{name}: expected {expected}, got {what}{_first_non_number(array)}")
    if array.dtype.kind == "u":
        array = _signed(array, name)
    native = array.dtype.newbyteorder("=")
    usable = array.dtype == native and array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if usable else np.array(array, dtype=native, order="C"))


def plain_tensor(value: Tensor, name: str) -> Tensor:
    """A dense tensor of real numbers or booleans, gradients included; the rarer whole numbers become int64."""
    if value.is_nested or value.layout != torch.strided:
        layout = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        raise InputError(f"{name}: expected a dense tensor, got a {layout} one")
    if value.is_quantized or value.is_meta:
        raise InputError(f"{name}: expected a tensor of numbers, got a {'meta' if value.is_meta else 'quantised'} one")
    require(not value.is_complex(), value, name, "real numbers", value.dtype)
    if value.is_floating_point():
        return value if value.dtype.itemsize > 1 else value.double()
    if value.dtype in (torch.uint16, torch.uint32):
        return value.to(torch.int64)
    if value.dtype == torch.uint64:
        return torch.from_numpy(_signed(value.cpu().numpy(), name)).to(value.device)
    require(value.dtype in (torch.bool, torch.int64, *SMALL_WHOLE), value, name, "numbers", value.dtype)
    return value


def _signed(array: np.ndarray, name: str) -> np.ndarray:
    """The same whole numbers as int64, which torch reckons with."""
    if array.dtype.itemsize == 8 and array.size and int(array.max()) > LARGEST:
        at = np.unravel_index(int(array.argmax()), array.shape)
        raise InputError(f"{_entry_name(name, at)}: expected a whole number below 2**63, got {array.max()}")
    return array if array.dtype == np.uint8 else array.astype(np.int64)


def _refuse_masked(value: Any, name: str, depth: int = 0) -> None:
    """Refuse masked entries: they are missing, and a mask must not get lost."""
    if isinstance(value, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(value)
        if mask.any():
            at = np.unravel_index(int(mask.argmax()), mask.shape)
            raise InputError(f"{_entry_name(name, at)}: expected a number, got a masked entry")
    elif isinstance(value, list | tuple) and depth < 3:
        for entry in value:
            if isinstance(entry, np.ma.MaskedArray | list | tuple):
                _refuse_masked(entry, name, depth + 1)


def _first_non_number(array: np.ndarray) -> str:
    """Which entry of an array of objects is not a number, for the message."""
    if array.dtype != object:
        return ""
    if array.ndim == 0:
        return f" ({type(array.item()).__name__})"
    strange = (f" (at {list(at)} {shown(entry)})" for at, entry in np.ndenumerate(array) if real(entry) is None)
    return next(strange, " (numbers, some beyond 64 bits)")


def _entry_name(name: str, at: Iterable[Any]) -> str:
    """The name with a position, as it would be written in Python."""
    where = ", ".join(str(int(i)) for i in at)
    return f"{name}[{where}]" if where else name


def refuse_where(bad: Tensor, value: Tensor, name: str, expected: str) -> None:
    """Name the first entry of ``value`` where ``bad`` is true; both of the same shape."""
    if bad.any():
        at = tuple(int(i) for i in bad.nonzero()[0])
        raise InputError(f"{_entry_name(name, at)}: expected {expected}, got {value[at].item()}")


def as_reals(
    value: Any, name: str, dtype: torch.dtype | None = None, *, booleans: bool = False, keep_gradient: bool = False
) -> Tensor:
    """Finite floating-point numbers of any shape, also after the change to ``dtype``, if one is given.

    Whole numbers and half precision become float64, booleans if they may 0 and 1.
    """
    tensor = as_tensor(value, name, keep_gradient=keep_gradient)
    fits = booleans or tensor.dtype != torch.bool or not tensor.numel()
    require(fits, value, name, "numbers", "booleans")
    if tensor.dtype == torch.int64:
        refuse_where((tensor > EXACT) | (tensor < -EXACT), tensor, name, "a number of at most 2**53, as in a double")
    refuse_where(~torch.isfinite(tensor), tensor, name, "a finite number")
    result = tensor.to(dtype or (tensor.dtype if tensor.dtype in FLOATS else torch.float64))
    if dtype == torch.float32 and tensor.dtype != dtype:
        refuse_where(~torch.isfinite(result), tensor, name, f"a number within the range of {dtype}")
    return result


def check_values(
    value: Any,
    length: int | None,
    name: str,
    dtype: torch.dtype | None = None,
    each: str = "of rows",
    *,
    keep_gradient: bool = False,
) -> Tensor:
    """(T,) finite floating-point numbers; whole numbers become float64. ``each`` says what there are T of."""
    tensor = check_vector(as_tensor(value, name, keep_gradient=keep_gradient), name)
    fits = length is None or tensor.numel() == length
    require(fits, value, name, f"{length} numbers, one for each {each}", tensor.numel())
    return as_reals(tensor, name, dtype, keep_gradient=keep_gradient)


def check_weights(
    value: Any, length: int, dtype: torch.dtype = torch.float64, name: str = "weights", **options: Any
) -> Tensor:
    """(T,) finite positive weights; ``options`` are those of :func:`check_values`."""
    tensor = check_values(value, length, name, dtype, **options)
    refuse_where(tensor <= 0, tensor, name, "a positive finite number")
    return tensor


def check_vector(value: Tensor, name: str, expected: str = "a vector") -> Tensor:
    """(T,)"""
    require(value.dim() == 1, value, name, expected, f"shape {tuple(value.shape)}")
    return value


def check_matrix(
    value: Any, name: str, dtype: torch.dtype | None = None, *, booleans: bool = False, shape: str = "(M, N)"
) -> Tensor:
    """(M, N) finite numbers, at least one of them; ``shape`` is how the message calls their shape."""
    tensor = as_tensor(value, name)
    fits = tensor.dim() == 2 and 0 not in tensor.shape
    require(fits, value, name, f"a matrix of shape {shape}", tuple(tensor.shape))
    return as_reals(tensor, name, dtype, booleans=booleans)


def check_float_tensor(
    value: Any,
    name: str,
    shape: tuple[int | None, ...],
    like: Tensor | None = None,
    *,
    finite: bool = False,
    half: bool = False,
) -> Tensor:
    """A dense tensor of float32 or float64 with a shape; None stands for any size, gradients may flow.

    :param like: the dtype and the device it must have, where they matter.
    :param finite: whether to look for NaN and infinity, which costs a pass over the numbers.
    :param half: whether half precision will do.
    """
    expected = f"({', '.join('any' if size is None else str(size) for size in shape)}{',' * (len(shape) == 1)})"
    require(isinstance(value, Tensor), value, name, f"a tensor of shape {expected}")
    plain_tensor(value, name)
    known = value.dtype in FLOATS or (half and value.is_floating_point())
    require(known, value, name, "torch.float32 or torch.float64", value.dtype)
    sizes = zip(shape, value.shape, strict=False)
    fits = value.dim() == len(shape) and all(size in (None, came) for size, came in sizes)
    require(fits, value, name, f"a tensor of shape {expected}", f"shape {tuple(value.shape)}")
    if like is not None and (value.dtype != like.dtype or value.device != like.device):
        raise InputError(f"{name}: expected {like.dtype} on {like.device}, got {value.dtype} on {value.device}")
    if finite:
        refuse_where(~torch.isfinite(value.detach()), value.detach(), name, "a finite number")
    return cast(Tensor, value)


# Positions, names and sizes -----------------------------------------------------------------------


def check_list(value: Any, name: str, expected: str) -> list[Any]:
    """The entries of a list, a tuple or another iterable; a string is none."""
    iterable = isinstance(value, Iterable) and not isinstance(value, str | bytes | dict)
    require(iterable, value, name, expected)
    if isinstance(value, Tensor):
        value = plain_tensor(value.detach(), name)
    _refuse_masked(value, name, depth=3)
    try:
        return list(value.tolist() if isinstance(value, Tensor | np.ndarray) else value)
    except (TypeError, NotImplementedError):  # a number in an array, or a matrix of scipy
        raise InputError(f"{name}: expected {expected}, got {shown(value)}") from None


def check_shape(shape: Any, name: str = "shape") -> tuple[int, int]:
    """A pair of positive sizes (M, N) with fewer than 2**63 cells."""
    value = as_tensor(shape, name).tolist() if isinstance(shape, Tensor | np.ndarray) else shape
    sizes = [whole(size) for size in value] if isinstance(value, list | tuple) else []
    positive = len(sizes) == 2 and all(size is not None and size > 0 for size in sizes)
    require(positive, shape, name, "two positive whole numbers (M, N)")
    rows, cols = (int(size or 0) for size in sizes)
    require(rows * cols <= LARGEST, shape, name, "fewer than 2**63 cells", f"{rows} x {cols}")
    return rows, cols


def check_sizes(value: Any, name: str) -> tuple[int, ...]:
    """The sizes of a batch or a sample: whole numbers of at least 0, any number of them."""
    entries = check_list(value, name, "a tuple of whole numbers")
    sizes = tuple(check_whole_number(size, f"{name}[{at}]", 0) for at, size in enumerate(entries))
    check_memory(math.prod(max(size, 1) for size in sizes), name, "an answer of this size")
    return sizes


def check_index(index: Any, size: int, name: str) -> Tensor:
    """(T,) int64 positions in [0, size)."""
    tensor = as_tensor(index, name)
    tensor = tensor.long() if tensor.numel() == 0 else tensor
    tensor = tensor.unsqueeze(0) if tensor.dim() == 0 else tensor  # one position
    check_vector(tensor, name, "a vector of positions")
    got = "booleans (for a mask use ObservedMatrix.from_mask)"
    require(tensor.dtype != torch.bool, index, name, "whole numbers", got)
    return _inside(check_whole(tensor, name), size, name)


def check_positions(value: Any, size: int, name: str) -> Tensor:
    """(Q,) int64 positions in [0, size), as they are: a tensor."""
    vector = isinstance(value, Tensor) and value.dtype == torch.int64 and value.dim() == 1
    require(vector, value, name, "a vector of positions, a tensor of torch.int64")
    return _inside(plain_tensor(value, name), size, name)


def _inside(positions: Tensor, size: int, name: str) -> Tensor:
    if positions.numel() and (int(positions.min()) < 0 or int(positions.max()) >= size):
        refuse_where((positions < 0) | (positions >= size), positions, name, f"a position in [0, {size})")
    return positions


def check_cells(rows: Any, cols: Any, shape: tuple[int, int], name: str = "") -> tuple[Tensor, Tensor]:
    """(T,) and (T,): rows and columns of cells of an (M, N) matrix; ``name`` is whose they are, for messages."""
    row = check_index(rows, shape[0], f"{name} rows".strip())
    col = check_index(cols, shape[1], f"{name} cols".strip())
    if len(row) != len(col):
        prefix = f"{name}: " if name else ""
        raise InputError(f"{prefix}rows and cols differ in length: {len(row)} and {len(col)}")
    return row, col


def check_one_index(index: Any, size: int, name: str) -> int:
    """A single position in [0, size)."""
    positions = check_index(index, size, name)
    require(len(positions) == 1, index, name, f"one position in [0, {size})", f"{len(positions)} of them")
    return int(positions[0])


def check_whole(value: Any, name: str) -> Tensor:
    """(...) int64, from any numbers that are whole and that 64 bits can hold."""
    tensor = as_tensor(value, name)
    require(tensor.dtype != torch.bool or not tensor.numel(), value, name, "whole numbers", "booleans")
    if tensor.is_floating_point():
        refuse_where(tensor != tensor.floor(), tensor, name, "a whole number")  # NaN differs from itself
        refuse_where(tensor.abs() > EXACT, tensor, name, "a whole number of at most 2**53")
    return tensor.long()


def check_samples(value: Any, size: int, name: str = "num_samples") -> int:
    """How many samples of ``size`` numbers each."""
    count = check_whole_number(value, name)
    check_memory(float(count) * size, name, f"{count} samples of {size} numbers each")
    return count


def check_names(names: Any, size: int, name: str) -> tuple[str, ...] | None:
    """As many distinct names as positions, or None. Whole numbers will do as names; what is missing will not."""
    if names is None:
        return None
    entries = check_list(names, name, f"{size} names")
    require(len(entries) == size, names, name, f"{size} names", len(entries))
    texts = tuple(check_name(entry, f"{name}[{at}]") for at, entry in enumerate(entries))
    seen: set[str] = set()
    for at, text in enumerate(texts):
        if text in seen:
            raise InputError(f"{name}[{at}]: the name {text!r} appears twice; names must differ")
        seen.add(text)
    return texts


def check_name(value: Any, name: str) -> str:
    """A name as a string, out of a string, a number or a date; missing values, booleans and containers are none."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Tensor) or value is np.ma.masked:
        value = whole(value) if isinstance(value, Tensor) else None
    missing = value is None or isinstance(value, bool | np.bool_ | bytes | complex | list | dict | set | np.ndarray)
    try:
        missing = missing or bool(value != value)  # NaN and NaT differ from themselves, pandas' NA cannot say
    except (TypeError, ValueError):
        missing = True
    nameless = all(getattr(type(value), part) is getattr(object, part) for part in ("__str__", "__repr__"))
    require(not missing and not nameless, value, name, "a name")
    return str(value)


# Operators ----------------------------------------------------------------------------------------


def check_operator(value: Any, name: str, *, square: bool = False) -> Any:
    """A matrix (..., A, B) of real numbers, as a tensor or a LinearOperator."""
    _check_linear(value, name)
    require(value.dtype.is_floating_point, value, name, "floating-point numbers", value.dtype)
    fits = value.dim() >= 2 and 0 not in value.shape[-2:] and not (square and value.shape[-1] != value.shape[-2])
    require(fits, value, name, "a square matrix" if square else "a matrix", f"shape {tuple(value.shape)}")
    return value


def check_right(value: Any, size: int, dtype: torch.dtype, name: str = "other") -> Any:
    """What an operator is multiplied with: (size,) or (..., size, C), as a tensor or a LinearOperator."""
    _check_linear(value, name)
    fits = value.dim() > 0 and value.shape[-2 if value.dim() > 1 else -1] == size
    require(fits, value, name, f"shape ({size},) or (..., {size}, C)", tuple(value.shape))
    require(value.dtype == dtype, value, name, f"{dtype} as in the operator", value.dtype)
    return value


def _check_linear(value: Any, name: str) -> None:
    require(isinstance(value, Tensor | LinearOperator), value, name, "a tensor or a LinearOperator")
    if isinstance(value, Tensor):
        plain_tensor(value, name)
