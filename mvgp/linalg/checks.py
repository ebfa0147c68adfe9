"""Checks of operators and of what they are applied to."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import check_memory, check_whole_number, plain_tensor, shown
from ..errors import InputError


def check_operator(given: Any, name: str, *, square: bool = False) -> Any:
    """A matrix (..., A, B) of real numbers, as a tensor or a LinearOperator."""
    if not isinstance(given, Tensor | LinearOperator):
        raise InputError(f"{name}: expected a tensor or a LinearOperator, got {shown(given)}")
    if isinstance(given, Tensor):
        plain_tensor(given, name)
    if not given.dtype.is_floating_point:
        raise InputError(f"{name}: expected floating-point numbers, got {given.dtype}")
    if given.dim() < 2 or 0 in given.shape[-2:] or (square and given.shape[-1] != given.shape[-2]):
        wanted = "a square matrix" if square else "a matrix"
        raise InputError(f"{name}: expected {wanted}, got shape {tuple(given.shape)}")
    return given


def check_right(given: Any, size: int, dtype: torch.dtype, name: str = "other") -> Any:
    """What an operator is multiplied with: (size,) or (..., size, C), as a tensor or a LinearOperator."""
    if not isinstance(given, Tensor | LinearOperator):
        raise InputError(f"{name}: expected a tensor or a LinearOperator, got {shown(given)}")
    if isinstance(given, Tensor):
        plain_tensor(given, name)
    if given.dim() == 0 or given.shape[-2 if given.dim() > 1 else -1] != size:
        raise InputError(f"{name}: expected shape ({size},) or (..., {size}, C), got {tuple(given.shape)}")
    if given.dtype != dtype:
        raise InputError(f"{name}: expected {dtype} as in the operator, got {given.dtype}")
    return given


def check_samples(given: Any, size: int, name: str = "num_samples") -> int:
    """How many samples of ``size`` numbers each."""
    count = check_whole_number(given, name)
    check_memory(float(count) * size, name, f"{count} samples of {size} numbers each")
    return count


def check_positions(given: Any, size: int, name: str) -> Tensor:
    """(Q,) int64 positions in [0, size), as they are: a tensor."""
    if not isinstance(given, Tensor) or given.dtype != torch.int64 or given.dim() != 1:
        raise InputError(f"{name}: expected a vector of positions, a tensor of torch.int64, got {shown(given)}")
    plain_tensor(given, name)
    if given.numel() and (int(given.min()) < 0 or int(given.max()) >= size):
        at = int(((given < 0) | (given >= size)).nonzero()[0])
        raise InputError(f"{name}[{at}]: expected a position in [0, {size}), got {int(given[at])}")
    return given
