"""Prior means: none, a constant, a bias of each row, given entries, popularity."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from torch import Tensor

from ..checks import check_dtype, check_instance, check_number, check_whole_number, whole
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..tensor_checks import (
    check_float_tensor,
    check_index,
    check_matrix,
    check_shape,
    check_values,
    check_vector,
    refuse_where,
)


class MatrixMean(gpytorch.Module):
    r""":math:`b_{mn} = a_m + c_n`: the interface of a prior mean.

    A subclass overrides one or both parts, which are 0 here. Positions are ``None`` when they are not numbered rows or
    columns of the prior but new inputs.
    """

    zero: Tensor

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros((), dtype=check_dtype(dtype)), persistent=False)

    def check_shape(self, shape: tuple[int, int]) -> None:
        """Refuse a prior of a shape (M, N) that this is no mean of; every shape will do here."""
        check_shape(shape)

    def row_part(self, rows: Tensor | None) -> Tensor:
        """(Q,) or (): :math:`a_m` at ``rows`` (Q,)."""
        _positions(rows, "rows")
        return self.zero

    def col_part(self, cols: Tensor | None) -> Tensor:
        """(Q,) or (): :math:`c_n` at ``cols`` (Q,)."""
        _positions(cols, "cols")
        return self.zero

    def block(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """(R, C), or broadcastable to it: the mean at all of ``rows`` (R,) x ``cols`` (C,)."""
        return self.row_part(rows).unsqueeze(-1) + self.col_part(cols)

    def at(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """(Q,) or (): the mean at pairs, each (Q,), or None for new inputs."""
        _check_pairs(rows, cols)
        return self.row_part(rows) + self.col_part(cols)

    def forward(self, rows: Tensor, cols: Tensor) -> Tensor:
        """(Q,): the mean at pairs (``rows``, ``cols``), each (Q,)."""
        check_instance(rows, "rows", Tensor, "a tensor of positions")
        check_instance(cols, "cols", Tensor, "a tensor of positions")
        return self.at(rows, cols).expand(len(rows))

    def _add_number(self, name: str, start: float) -> None:
        """Register a parameter ``raw_<name>`` () at a checked start."""
        checked = check_values([check_number(start, name)], 1, name, self.zero.dtype)[0].clone()
        self.register_parameter(f"raw_{name}", torch.nn.Parameter(checked))


def _positions(value: Any, name: str, size: int | None = None) -> Tensor | None:
    """(Q,) positions as they are, in [0, size) where a size is given; None for new inputs."""
    if value is None:
        return None
    check_instance(value, name, Tensor, "a tensor of positions or None")
    if value.dtype != torch.int64:
        raise InputError(f"{name}: expected positions of torch.int64, got {value.dtype}")
    vector = check_vector(value, name, "a vector of positions")
    return vector if size is None else check_index(vector, size, name)


def _known(value: Any, name: str, size: int, advice: str) -> Tensor:
    """(Q,) positions in [0, size); for new inputs an error with the advice."""
    positions = _positions(value, name, size)
    if positions is None:
        raise InputError(advice)
    return positions


def _check_pairs(rows: Any, cols: Any) -> None:
    """As many rows as columns, unless one of the two is new."""
    first, second = _positions(rows, "rows"), _positions(cols, "cols")
    if first is not None and second is not None and len(first) != len(second):
        raise InputError(f"rows and cols differ in length: {len(first)} and {len(second)}")


class ZeroMean(MatrixMean):
    """No prior mean: :math:`b_{mn} = 0`."""


class ConstantMean(MatrixMean):
    """The same mean everywhere, :math:`b_{mn} = c`, a parameter ``raw_constant``.

    :param constant: c, where it starts.
    """

    def __init__(self, constant: float = 0.0, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(dtype)
        self._add_number("constant", constant)

    @property
    def constant(self) -> Tensor:
        """()"""
        constant: Tensor = self.raw_constant
        return constant

    def row_part(self, rows: Tensor | None) -> Tensor:
        """Constant"""
        _positions(rows, "rows")
        return self.constant


class RowBiasMean(MatrixMean):
    """A level of each row: :math:`b_{mn} = a_m`, a parameter ``raw_bias``.

    :param bias: (M,) where it starts, or M for zeros.
    """

    def __init__(self, bias: Any, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(dtype)
        if whole(bias) is not None:
            start = torch.zeros(check_whole_number(bias, "bias", maximum=2**31 - 1), dtype=dtype)
        else:
            start = check_values(bias, None, "bias", dtype)
        if start.numel() == 0:
            raise InputError("bias: expected one finite number for each row, got none")
        self.register_parameter("raw_bias", torch.nn.Parameter(start.clone()))

    @property
    def bias(self) -> Tensor:
        """(M,)"""
        bias: Tensor = self.raw_bias
        return bias

    def check_shape(self, shape: tuple[int, int]) -> None:
        """Refuse a prior with another number of rows."""
        if len(self.bias) != check_shape(shape)[0]:
            raise InputError(f"mean: expected a bias for each of {shape[0]} rows, got {len(self.bias)}")

    def row_part(self, rows: Tensor | None) -> Tensor:
        """bias_m"""
        advice = "a row-bias mean has no bias for new row inputs; put those rows into the prior"
        return self.bias[_known(rows, "rows", len(self.bias), advice)]


class GivenMean(MatrixMean):
    """:math:`b_{mn}` are entries of a given matrix (M, N): data, not a parameter.

    :param matrix: (M, N), finite.
    """

    matrix: Tensor

    def __init__(self, matrix: Any, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(dtype)
        self.register_buffer("matrix", check_matrix(matrix, "matrix", dtype), persistent=False)

    def check_shape(self, shape: tuple[int, int]) -> None:
        """Refuse a prior of another shape."""
        if tuple(self.matrix.shape) != check_shape(shape):
            raise InputError(f"mean: expected a matrix of shape {tuple(shape)}, got {tuple(self.matrix.shape)}")

    def block(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """(R, C): the entries at ``rows`` x ``cols``."""
        known_rows, known_cols = self._both(rows, cols)
        return self.matrix[known_rows][:, known_cols]

    def at(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """(Q,): the entries at pairs."""
        _check_pairs(rows, cols)
        return self.matrix[self._both(rows, cols)]

    def _both(self, rows: Tensor | None, cols: Tensor | None) -> tuple[Tensor, Tensor]:
        advice = "a given mean has no entries for new inputs; put those rows and columns into the prior"
        m, n = self.matrix.shape
        return _known(rows, "rows", m, advice), _known(cols, "cols", n, advice)


class BiasedMean(MatrixMean):
    r"""Another mean plus a bias of each row and column, :math:`b_{mn} + a_m + c_n`, as a fit has found them.

    :param base: the mean they are added to.
    :param row_bias: (M,); a new row has none.
    :param col_bias: (N,); a new column has none.
    """

    row_bias: Tensor
    col_bias: Tensor

    def __init__(self, base: MatrixMean, row_bias: Tensor, col_bias: Tensor) -> None:
        check_instance(base, "base", MatrixMean, "a mean of mvgp.priors")
        check_float_tensor(row_bias, "row_bias", (None,))
        check_float_tensor(col_bias, "col_bias", (None,), like=row_bias)
        super().__init__(row_bias.dtype)
        self.base = base
        self.register_buffer("row_bias", row_bias)
        self.register_buffer("col_bias", col_bias)

    def _biases(self, rows: Tensor | None, cols: Tensor | None) -> tuple[Tensor, Tensor]:
        row, col = _positions(rows, "rows", len(self.row_bias)), _positions(cols, "cols", len(self.col_bias))
        return self.zero if row is None else self.row_bias[row], self.zero if col is None else self.col_bias[col]

    def block(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """See :class:`MatrixMean`."""
        row, col = self._biases(rows, cols)
        return self.base.block(rows, cols) + row.unsqueeze(-1) + col

    def at(self, rows: Tensor | None, cols: Tensor | None) -> Tensor:
        """See :class:`MatrixMean`."""
        row, col = self._biases(rows, cols)
        return self.base.at(rows, cols) + row + col


class PopularityMean(MatrixMean):
    r""":math:`b_{mn} = s \log(1 + c_n)` with c_n the number of known links of column n; s is ``raw_scale``, learned.

    A ranking with low rank that is fitted to few links puts what it knows nothing about in an arbitrary order; this
    puts it in the order of popularity. Count training links only: a count that has seen the test links flatters.

    :param counts: (N,) numbers that are not negative, or ``PositiveUnlabelled`` links to be counted.
    :param scale: s, where it starts; small against the margin of a ranking (0.01 has served with a margin of 1).

    Example:
        >>> import mvgp, torch
        >>> from mvgp.priors import PopularityMean
        >>> links = mvgp.PositiveUnlabelled([0, 1, 1], [2, 2, 0], shape=(2, 3))
        >>> PopularityMean(links, scale=1.0).block(torch.tensor([0]), torch.arange(3)).exp().round().tolist()
        [2.0, 1.0, 3.0]

    """

    counts: Tensor

    def __init__(self, counts: Any, scale: float = 0.01, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(dtype)
        if isinstance(counts, PositiveUnlabelled):
            counts = torch.bincount(counts.cols, minlength=counts.shape[1])
        checked = check_values(counts, None, "counts", dtype)
        if checked.numel() == 0:
            raise InputError("counts: expected a finite number that is not negative for each column, got none")
        refuse_where(checked < 0, checked, "counts", "a finite number that is not negative")
        self.register_buffer("counts", checked.clone(), persistent=False)
        self._add_number("scale", scale)

    @property
    def scale(self) -> Tensor:
        """() s."""
        scale: Tensor = self.raw_scale
        return scale

    def check_shape(self, shape: tuple[int, int]) -> None:
        """Refuse a prior with another number of columns."""
        if len(self.counts) != check_shape(shape)[1]:
            raise InputError(f"mean: expected a count for each of {shape[1]} columns, got {len(self.counts)}")

    def col_part(self, cols: Tensor | None) -> Tensor:
        """(Q,): s log(1 + c_n)."""
        advice = "a popularity mean has no count for new column inputs; put those columns into the prior"
        return self.scale * self.counts[_known(cols, "cols", len(self.counts), advice)].log1p()
