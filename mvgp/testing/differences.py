"""Slopes by central differences: what gradients are compared with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def slopes(function: Callable[[Tensor], Tensor], at: Tensor, step: float = 1e-6) -> Tensor:
    """The gradient of ``function`` () by central differences, in the shape of ``at``."""
    found = torch.empty(at.numel(), dtype=torch.float64)
    for place in range(at.numel()):
        away = torch.zeros_like(at).flatten()
        away[place] = step
        away = away.reshape(at.shape)
        with torch.no_grad():
            found[place] = (function(at + away) - function(at - away)) / (2 * step)
    return found.reshape(at.shape)
