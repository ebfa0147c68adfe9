"""Checks of operators and of what they are applied to."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import check_memory, check_whole_number, plain_tensor, refuse_where, shown
from ..errors import InputError


def check_operator(value: Any, name: str, *, square: bool = False) -> Any:
    """A matrix (..., A, B) of real numbers, as a tensor or a LinearOperator."""
    if not isinstance(value, Tensor | LinearOperator):
        raise InputError(f"{name}: expected a tensor or a LinearOperator, got {shown(value)}")
    if isinstance(value, Tensor):
        plain_tensor(value, name)
    if not value.dtype.is_floating_point:
        raise InputError(f"{name}: expected floating-point numbers, got {value.dtype}")
    if value.dim() < 2 or 0 in value.shape[-2:] or (square and value.shape[-1] != value.shape[-2]):
        expected = "a square matrix" if square else "a matrix"
        raise InputError(f"{name}: expected {expected}, got shape {tuple(value.shape)}")
    return value


def check_right(value: Any, size: int, dtype: torch.dtype, name: str = "other") -> Any:
    """What an operator is multiplied with: (size,) or (..., size, C), as a tensor or a LinearOperator."""
    if not isinstance(value, Tensor | LinearOperator):
        raise InputError(f"{name}: expected a tensor or a LinearOperator, got {shown(value)}")
    if isinstance(value, Tensor):
        plain_tensor(value, name)
    if value.dim() == 0 or value.shape[-2 if value.dim() > 1 else -1] != size:
        raise InputError(f"{name}: expected shape ({size},) or (..., {size}, C), got {tuple(value.shape)}")
    if value.dtype != dtype:
        raise InputError(f"{name}: expected {dtype} as in the operator, got {value.dtype}")
    return value


def check_samples(value: Any, size: int, name: str = "num_samples") -> int:
    """How many samples of ``size`` numbers each."""
    count = check_whole_number(value, name)
    check_memory(float(count) * size, name, f"{count} samples of {size} numbers each")
    return count


def check_positions(value: Any, size: int, name: str) -> Tensor:
    """(Q,) int64 positions in [0, size), as they are: a tensor."""
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.dim() != 1:
        raise InputError(f"{name}: expected a vector of positions, a tensor of torch.int64, got {shown(value)}")
    plain_tensor(value, name)
    if value.numel() and (int(value.min()) < 0 or int(value.max()) >= size):
        refuse_where((value < 0) | (value >= size), value, name, f"a position in [0, {size})")
    return value
