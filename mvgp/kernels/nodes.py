"""Node numbers as kernel inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError


def node_numbers(inputs: Tensor, count: int) -> Tensor:
    """(..., n) int64 node numbers from kernel inputs (..., n, 1), which gpytorch may hold as floats."""
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
