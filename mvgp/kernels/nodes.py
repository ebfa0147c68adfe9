"""Node numbers as kernel inputs."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import Interval
from torch import Tensor

from ..checks import as_tensor, check_flag, check_float_tensor, check_instance, check_list, check_whole_number
from ..errors import InputError


def check_options(batch_shape: Any, active_dims: Any, **constraints: Any) -> None:
    """What gpytorch's kernels are made with: sizes, numbers of input columns, and constraints; each may be None."""
    for name, given in (("batch_shape", batch_shape), ("active_dims", active_dims)):
        for size in [] if given is None else check_list(given, name, "whole numbers"):
            check_whole_number(size, name, 0)
    for name, given in constraints.items():
        if given is not None:
            check_instance(given, name, Interval, "a constraint of gpytorch")


def check_eigenvalues(given: Any) -> Tensor:
    """(n,) eigenvalues of a Laplacian: a tensor of float32 or float64."""
    check_instance(given, "eigenvalues", Tensor, "a tensor")
    return check_float_tensor(given, "eigenvalues", (None,) * given.dim(), finite=True)


def both_node_numbers(x1: Any, x2: Any, count: int, diag: Any) -> tuple[Tensor, Tensor]:
    """The nodes of both arguments of a kernel, whose batches fit together, and whose lengths do on the diagonal."""
    first, second = node_numbers(x1, count, "x1"), node_numbers(x2, count, "x2")
    if check_flag(diag, "diag") and first.shape[-1] != second.shape[-1]:
        raise InputError(f"x2: expected {first.shape[-1]} nodes as in x1, for the diagonal, got {second.shape[-1]}")
    try:
        torch.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    except RuntimeError:
        shapes = f"{tuple(first.shape[:-1])} and {tuple(second.shape[:-1])}"
        raise InputError(f"x1, x2: expected batches that fit together, got {shapes}") from None
    return first, second


def node_numbers(inputs: Any, count: int, name: str = "inputs") -> Tensor:
    """(..., n) int64 node numbers from kernel inputs (..., n, 1), which gpytorch may hold as floats."""
    if not isinstance(inputs, Tensor):
        raise InputError(f"{name}: expected a tensor of node numbers, got {type(inputs).__name__}")
    inputs = as_tensor(inputs, name)
    if inputs.dim() < 2 or inputs.dtype == torch.bool:
        came = f"{inputs.dtype} of shape {tuple(inputs.shape)}"
        raise InputError(f"{name}: expected node numbers of shape (..., n, 1), got {came}")
    if inputs.shape[-1] != 1:
        raise InputError(f"a kernel on nodes takes one input column, the node's number, got {inputs.shape[-1]}")
    numbers = inputs.squeeze(-1)
    found = numbers.round().long() if numbers.is_floating_point() else numbers.long()
    bad = (found != numbers) | (found < 0) | (found >= count)
    if bad.any():
        raise InputError(f"expected node numbers in [0, {count}), got {numbers[bad][0].item()}")
    return found


def is_everything(numbers: Tensor, count: int) -> bool:
    """Whether the node numbers are 0, ..., count - 1 in order."""
    everything = torch.arange(count, device=numbers.device)
    return numbers.dim() == 1 and len(numbers) == count and torch.equal(numbers, everything)
