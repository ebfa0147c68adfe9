"""A kernel that is a given matrix."""

from __future__ import annotations

import copy
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import check_matrix
from ..linalg.spectra import check_covariance
from .graph_kernels import both_node_numbers, check_options, is_everything


class PrecomputedKernel(Kernel):
    r"""The kernel on items 0, ..., N - 1 whose matrix is known: :math:`k(i, j) = K_{ij}`.

    The matrix is checked to be finite, symmetric and positive semi-definite. It is data, not a
    parameter: it moves with ``.to()``, but is not in the ``state_dict`` and is not learned (wrap the
    kernel in gpytorch's ``ScaleKernel`` to learn a factor).

    :param matrix: (N, N), an array or a tensor; whole numbers become float64.
    """

    def __init__(
        self,
        matrix: Any,
        *,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        check_options(batch_shape, active_dims)
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        checked = check_matrix(matrix, "matrix").clone()
        check_covariance(checked, "matrix")
        checked = (checked + checked.mT) / 2  # takes out the rounding that the check lets through
        self.register_buffer("matrix", checked.expand(*self.batch_shape, *checked.shape), persistent=False)

    @property
    def num_nodes(self) -> int:
        """N: valid inputs are 0, ..., N - 1."""
        return int(self.matrix.shape[-1])

    @property
    def dtype(self) -> torch.dtype:
        """Of the matrix; gpytorch would guess it from parameters, of which there are none."""
        dtypes = {self.matrix.dtype, *(p.dtype for p in self.parameters())}
        if len(dtypes) > 1:
            raise RuntimeError(f"The kernel's parameters have multiple dtypes: {dtypes}.")
        return dtypes.pop()

    @property
    def device(self) -> torch.device:
        """Of the matrix."""
        device: torch.device = self.matrix.device
        return device

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor | LinearOperator:
        """The entries at items ``x1`` (..., n, 1) and ``x2`` (..., m, 1)."""
        first, second = both_node_numbers(x1, x2, self.num_nodes, diag, params)
        if not diag and is_everything(first, self.num_nodes) and is_everything(second, self.num_nodes):
            return self.matrix
        rows, cols = (first, second) if diag else (first.unsqueeze(-1), second.unsqueeze(-2))
        if not self.batch_shape:
            return self.matrix[rows, cols]
        batch = torch.broadcast_shapes(self.batch_shape, first.shape[:-1], second.shape[:-1])
        matrix = self.matrix.expand(*batch, *self.matrix.shape[-2:])
        places = []  # a position for each batch dimension, broadcast against the dimensions of the entries
        for at, size in enumerate(batch):
            shape = [1] * (len(batch) + (1 if diag else 2))
            shape[at] = size
            places.append(torch.arange(size, device=rows.device).reshape(shape))
        return matrix[(*places, rows, cols)]

    def __deepcopy__(self, memo: dict[int, Any]) -> PrecomputedKernel:
        memo[id(self.matrix)] = self.matrix.detach()  # constant and possibly large: copies share its memory
        fresh = type(self).__new__(type(self))
        memo[id(self)] = fresh
        fresh.__dict__.update({key: copy.deepcopy(value, memo) for key, value in self.__dict__.items()})
        return fresh
