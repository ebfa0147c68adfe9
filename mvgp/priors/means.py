r"""Prior means :math:`b_{mn}` of a matrix. Each is a sum of a row part and a column part."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from torch import Tensor

from ..errors import InputError


class MatrixMean(gpytorch.Module):
    r""":math:`b_{mn} = a_m + c_n`: the interface of a prior mean.

    A subclass overrides one or both parts, which are 0 here. Positions are ``None`` when they are not
    numbered rows or columns of the prior but new inputs.
    """

    zero: Tensor

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros((), dtype=dtype), persistent=False)

    def row_part(self, rows: Tensor | None) -> Tensor:
        """(Q,) or (): :math:`a_m` at ``rows`` (Q,)."""
        return self.zero

    def col_part(self, cols: Tensor | None) -> Tensor:
        """(Q,) or (): :math:`c_n` at ``cols`` (Q,)."""
        return self.zero

    def forward(self, rows: Tensor, cols: Tensor) -> Tensor:
        """(Q,): the mean at pairs (``rows``, ``cols``), each (Q,)."""
        return (self.row_part(rows) + self.col_part(cols)).expand(len(rows))


class ZeroMean(MatrixMean):
    """b = 0."""


class ConstantMean(MatrixMean):
    """b = constant, a parameter ``raw_constant``.

    :param constant: where it starts.
    """

    def __init__(self, constant: float = 0.0, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(dtype)
        self.register_parameter("raw_constant", torch.nn.Parameter(torch.tensor(float(constant), dtype=dtype)))

    @property
    def constant(self) -> Tensor:
        """()"""
        found: Tensor = self.raw_constant
        return found

    def row_part(self, rows: Tensor | None) -> Tensor:
        """Constant"""
        return self.constant


class RowBiasMean(MatrixMean):
    """b_mn = bias_m, a parameter ``raw_bias`` for each row.

    :param bias: (M,) where it starts, or M for zeros.
    """

    def __init__(self, bias: Any, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(dtype)
        start = torch.zeros(bias, dtype=dtype) if isinstance(bias, int) else torch.as_tensor(bias, dtype=dtype)
        if start.dim() != 1 or start.numel() == 0 or not torch.isfinite(start).all():
            raise InputError(f"bias: expected one finite number for each row, got shape {tuple(start.shape)}")
        self.register_parameter("raw_bias", torch.nn.Parameter(start.clone()))

    @property
    def bias(self) -> Tensor:
        """(M,)"""
        found: Tensor = self.raw_bias
        return found

    def row_part(self, rows: Tensor | None) -> Tensor:
        """bias_m"""
        if rows is None:
            raise InputError("a row-bias mean has no bias for new row inputs; put those rows into the prior")
        return self.bias[rows]
