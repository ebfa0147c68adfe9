r"""Prior means :math:`b_{mn}` of a matrix."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from torch import Tensor

from ..checks import as_tensor
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

    def check_shape(self, shape: tuple[int, int]) -> None:
        """Refuse a prior of a shape (M, N) that this is no mean of; every shape will do here."""

    def row_part(self, rows: Tensor | None) -> Tensor:
        """(Q,) or (): :math:`a_m` at ``rows`` (Q,)."""
        return self.zero

    def col_part(self, cols: Tensor | None) -> Tensor:
        """(Q,) or (): :math:`c_n` at ``cols`` (Q,)."""
        return self.zero

    def block(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """(R, C), or broadcastable to it: the mean at all of ``rows`` (R,) x ``cols`` (C,)."""
        return self.row_part(rows).unsqueeze(-1) + self.col_part(cols)

    def at(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """(Q,) or (): the mean at pairs, each (Q,), or None for new inputs."""
        return self.row_part(rows) + self.col_part(cols)

    def forward(self, rows: Tensor, cols: Tensor) -> Tensor:
        """(Q,): the mean at pairs (``rows``, ``cols``), each (Q,)."""
        return self.at(rows, cols).expand(len(rows))


class ZeroMean(MatrixMean):
    """No prior mean: :math:`b_{mn} = 0`."""


class ConstantMean(MatrixMean):
    """The same mean everywhere, :math:`b_{mn} = c`, a parameter ``raw_constant``.

    :param constant: c, where it starts.
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
    """A level of each row: :math:`b_{mn} = a_m`, a parameter ``raw_bias``.

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

    def check_shape(self, shape: tuple[int, int]) -> None:
        """Refuse a prior with another number of rows."""
        if len(self.bias) != shape[0]:
            raise InputError(f"mean: expected a bias for each of {shape[0]} rows, got {len(self.bias)}")

    def row_part(self, rows: Tensor | None) -> Tensor:
        """bias_m"""
        if rows is None:
            raise InputError("a row-bias mean has no bias for new row inputs; put those rows into the prior")
        return self.bias[rows]


class GivenMean(MatrixMean):
    """:math:`b_{mn}` are entries of a given matrix (M, N): data, not a parameter.

    :param matrix: (M, N), finite.
    """

    matrix: Tensor

    def __init__(self, matrix: Any, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(dtype)
        given = as_tensor(matrix, "matrix").to(dtype)
        if given.dim() != 2 or not torch.isfinite(given).all():
            raise InputError(f"matrix: expected finite numbers of shape (M, N), got shape {tuple(given.shape)}")
        self.register_buffer("matrix", given, persistent=False)

    def check_shape(self, shape: tuple[int, int]) -> None:
        """Refuse a prior of another shape."""
        if tuple(self.matrix.shape) != tuple(shape):
            raise InputError(f"mean: expected a matrix of shape {tuple(shape)}, got {tuple(self.matrix.shape)}")

    def block(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """(R, C): the entries at ``rows`` x ``cols``."""
        rows, cols = self._known(rows, cols)
        return self.matrix[rows][:, cols]

    def at(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """(Q,): the entries at pairs."""
        return self.matrix[self._known(rows, cols)]

    @staticmethod
    def _known(rows: Tensor | None, cols: Tensor | None) -> tuple[Tensor, Tensor]:
        if rows is None or cols is None:
            raise InputError("a given mean has no entries for new inputs; put those rows and columns into the prior")
        return rows, cols


class BiasedMean(MatrixMean):
    r"""Another mean plus a bias of each row and column, :math:`b_{mn} + a_m + c_n`, as a fit has found them.

    :param base: the mean they are added to.
    :param row_bias: (M,); a new row has none.
    :param col_bias: (N,); a new column has none.
    """

    row_bias: Tensor
    col_bias: Tensor

    def __init__(self, base: MatrixMean, row_bias: Tensor, col_bias: Tensor) -> None:
        super().__init__(row_bias.dtype)
        self.base = base
        self.register_buffer("row_bias", row_bias)
        self.register_buffer("col_bias", col_bias)

    def _row(self, rows: Tensor | None) -> Tensor:
        return self.zero if rows is None else self.row_bias[rows]

    def _col(self, cols: Tensor | None) -> Tensor:
        return self.zero if cols is None else self.col_bias[cols]

    def block(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """See :class:`MatrixMean`."""
        return self.base.block(rows, cols) + self._row(rows).unsqueeze(-1) + self._col(cols)

    def at(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """See :class:`MatrixMean`."""
        return self.base.at(rows, cols) + self._row(rows) + self._col(cols)
