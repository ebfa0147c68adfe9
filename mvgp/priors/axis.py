"""Axis: one side of the matrix, its kernel and its inputs."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator, to_linear_operator
from torch import Tensor

from ..checks import FLOATS, as_tensor, refuse_where
from ..errors import InputError


class Axis(gpytorch.Module):
    """The rows or the columns: a gpytorch kernel and the inputs at which it is evaluated.

    :param kernel: any gpytorch kernel.
    :param inputs: (n, d) or (n,), with their gradient; left out for kernels on nodes, which know their own.
    :param name: ``row`` or ``col``, for messages.
    """

    inputs: Tensor

    def __init__(self, kernel: Kernel, inputs: Any, name: str) -> None:
        super().__init__()
        if not isinstance(kernel, Kernel):
            raise InputError(f"{name}_kernel: expected a gpytorch kernel, got {type(kernel).__name__}")
        if kernel.batch_shape:
            raise InputError(
                f"{name}_kernel: expected a kernel without batch dimensions, got {tuple(kernel.batch_shape)}"
            )
        self.kernel, self.name = kernel, name
        own = _nodes_of(kernel, name)
        if inputs is None:
            if own is None:
                raise InputError(f"{name}_inputs: {type(kernel).__name__} needs inputs, shape (n, d); none were given")
            found = torch.arange(own).unsqueeze(1)
        else:
            found = checked_inputs(inputs, f"{name}_inputs")
        self.register_buffer("inputs", found, persistent=False)

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    def covariance(self) -> LinearOperator:
        """(n, n), lazy; differentiable in the kernel's parameters and the inputs."""
        return self._evaluate(self.inputs, None)

    def cross(self, inputs: Tensor) -> LinearOperator:
        """(q, n): between new ``inputs`` (q, d) and the axis."""
        return self._evaluate(inputs, self.inputs)

    def block(self, inputs: Tensor) -> LinearOperator:
        """(q, q): among new ``inputs`` (q, d)."""
        return self._evaluate(inputs, None)

    def new_inputs(self, inputs: Any) -> Tensor:
        """(q, d) checked new inputs, in this axis's dtype and place."""
        found = checked_inputs(inputs, f"{self.name}_inputs").to(self.inputs.device)
        if found.shape[1] != self.inputs.shape[1]:
            raise InputError(
                f"{self.name}_inputs: expected {self.inputs.shape[1]} columns as in the prior, got {found.shape[1]}"
            )
        converted = found.to(self.inputs.dtype)
        lost = ~torch.isfinite(converted) if converted.is_floating_point() else converted != found
        refuse_where(lost, found, f"{self.name}_inputs", f"a number that fits into {self.inputs.dtype} as in the prior")
        return converted

    def _evaluate(self, x1: Tensor, x2: Tensor | None) -> LinearOperator:
        found = self.kernel(x1, x2)
        op = to_linear_operator(found.evaluate_kernel())
        expected = (x1.shape[0], (x1 if x2 is None else x2).shape[0])
        if tuple(op.shape) != expected:
            raise InputError(
                f"{self.name}_kernel: expected a kernel matrix {expected} for the inputs, got {tuple(op.shape)}; "
                "kernels with several outputs per input do not fit a matrix-variate prior"
            )
        return op


def checked_inputs(inputs: Any, name: str) -> Tensor:
    """(n, d) finite inputs, with their gradient; whole numbers stay whole (they may be node numbers)."""
    given = as_tensor(inputs, name, keep_gradient=True)
    if given.dtype == torch.bool:
        raise InputError(f"{name}: expected numbers, got booleans")
    if given.is_floating_point() and given.dtype not in FLOATS:  # half precision fits into double
        given = given.double()
    found = given.unsqueeze(1) if given.dim() == 1 else given
    if found.dim() != 2 or found.shape[0] == 0 or found.shape[1] == 0:
        raise InputError(f"{name}: expected shape (n, d) with n and d at least 1, got {tuple(given.shape)}")
    refuse_where(~torch.isfinite(found), found, name, "a finite number")
    return found.contiguous()


def _nodes_of(kernel: Kernel, name: str) -> int | None:
    """Number of nodes of the kernels on nodes inside ``kernel``; they have to agree."""
    found = {int(k.num_nodes) for k in (kernel, *kernel.sub_kernels()) if hasattr(k, "num_nodes")}
    if len(found) > 1:
        raise InputError(f"{name}_kernel: its parts are on different numbers of nodes, {sorted(found)}")
    return found.pop() if found else None
