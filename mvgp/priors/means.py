"""Prior means: none, a constant, a bias of each row, given entries, popularity, functions of the inputs."""

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
    columns of the prior but new inputs. A mean that is a function of those sets ``uses_inputs``; its :meth:`at` and
    :meth:`block` are then given them, as :class:`InputMean` shows, and :meth:`bind` tells it the prior's own.

    Example:
        >>> import torch
        >>> from mvgp.priors import MatrixMean
        >>> class Trend(MatrixMean):
        ...     def col_part(self, cols):
        ...         return self.zero if cols is None else 0.5 * cols
        >>> Trend()(torch.tensor([0, 0]), torch.tensor([1, 4]))
        tensor([0.5000, 2.0000])

    """

    zero: Tensor
    uses_inputs = False

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros((), dtype=check_dtype(dtype)), persistent=False)

    def check_shape(self, shape: tuple[int, int]) -> None:
        """Refuse a prior of a shape (M, N) that this is no mean of; every shape will do here."""
        check_shape(shape)

    def bind(self, row_axis: Any, col_axis: Any) -> None:
        """Become the mean of a prior with these axes (``axis.inputs`` (n, d)); nothing to be done here."""

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
    """No prior mean: :math:`b_{mn} = 0`.

    Example:
        >>> import torch
        >>> from mvgp.priors import ZeroMean
        >>> ZeroMean()(torch.tensor([0, 1]), torch.tensor([2, 2]))
        tensor([0., 0.], dtype=torch.float64)

    """


class ConstantMean(MatrixMean):
    """The same mean everywhere, :math:`b_{mn} = c`, a parameter ``raw_constant``.

    :param constant: c, where it starts.

    Example:
        >>> import torch
        >>> from mvgp.priors import ConstantMean
        >>> ConstantMean(1.5)(torch.tensor([0, 1]), torch.tensor([2, 2])).detach()
        tensor([1.5000, 1.5000], dtype=torch.float64)

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

    Example:
        >>> import torch
        >>> from mvgp.priors import RowBiasMean
        >>> RowBiasMean([1.0, -1.0])(torch.tensor([0, 1]), torch.tensor([4, 4])).detach()
        tensor([ 1., -1.], dtype=torch.float64)

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

    Example:
        >>> import torch
        >>> from mvgp.priors import GivenMean
        >>> GivenMean([[1.0, 2.0], [3.0, 4.0]])(torch.tensor([0, 1]), torch.tensor([1, 0]))
        tensor([2., 3.], dtype=torch.float64)

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

    Example:
        >>> import torch
        >>> from mvgp.priors import BiasedMean, ConstantMean
        >>> row_bias, col_bias = torch.tensor([0.0, 1.0]).double(), torch.tensor([0.0, 10.0]).double()
        >>> BiasedMean(ConstantMean(5.0), row_bias, col_bias)(torch.tensor([1]), torch.tensor([1])).detach()
        tensor([16.], dtype=torch.float64)

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

    @property
    def uses_inputs(self) -> bool:  # type: ignore[override]
        """Whether the mean inside does."""
        return self.base.uses_inputs

    def bind(self, row_axis: Any, col_axis: Any) -> None:
        """See :class:`MatrixMean`."""
        self.base.bind(row_axis, col_axis)

    def block(self, rows: Tensor | None, cols: Tensor | None, **inputs: Any) -> Tensor:
        """See :class:`MatrixMean`."""
        row, col = self._biases(rows, cols)
        return self.base.block(rows, cols, **inputs) + row.unsqueeze(-1) + col

    def at(self, rows: Tensor | None, cols: Tensor | None, **inputs: Any) -> Tensor:
        """See :class:`MatrixMean`."""
        row, col = self._biases(rows, cols)
        return self.base.at(rows, cols, **inputs) + row + col


class InputMean(MatrixMean):
    r""":math:`b_{mn} = a(x_m) + c(y_n)`: gpytorch means of the inputs of the rows, of the columns, or of both.

    They are trained with the prior, have their values at new inputs too, and carry gradients to them. Inputs that are
    whole numbers are taken as real ones.

    :param row: a ``gpytorch.means.Mean`` of the row inputs (n, d); None for 0.
    :param col: the same for the columns.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> from mvgp.priors import InputMean
        >>> kernel, x = gpytorch.kernels.RBFKernel(), torch.rand(5, 2)
        >>> mean = InputMean(col=gpytorch.means.LinearMean(2))
        >>> prior = mvgp.MatrixGP(DiffusionKernel(Graph([(0, 1), (1, 2)], 3)), kernel, col_inputs=x, mean=mean)
        >>> prior.mean_matrix().shape, [name for name, _ in mean.named_parameters()]
        (torch.Size([3, 5]), ['col.weights', 'col.bias'])

    """

    uses_inputs = True
    _axes: tuple[Any, ...] = ()  # of the prior; in a tuple, which hides their parameters from this module

    def __init__(
        self,
        row: gpytorch.means.Mean | None = None,
        col: gpytorch.means.Mean | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(dtype)
        if row is None and col is None:
            raise InputError("row, col: expected a gpytorch mean for one of the axes at least, got none")
        for mean, name in ((row, "row"), (col, "col")):
            if mean is not None:
                check_instance(mean, name, gpytorch.means.Mean, "a gpytorch mean (gpytorch.means)")
        self.row, self.col = row, col
        self.to(dtype)

    def bind(self, row_axis: Any, col_axis: Any) -> None:
        """See :class:`MatrixMean`; the mean of one prior is not that of another one."""
        if self._axes and (self._axes[0] is not row_axis or self._axes[1] is not col_axis):
            raise InputError("mean: this InputMean belongs to another prior; make one of its own for each")
        self._axes = (row_axis, col_axis)

    def row_part(self, rows: Tensor | None, inputs: Tensor | None = None) -> Tensor:
        """(Q,): a(x) at rows (Q,) of the prior, or at new ``inputs`` (Q, d)."""
        return self._part(self.row, 0, _positions(rows, "rows"), inputs)

    def col_part(self, cols: Tensor | None, inputs: Tensor | None = None) -> Tensor:
        """(Q,): c(y) at columns (Q,) of the prior, or at new ``inputs`` (Q, d)."""
        return self._part(self.col, 1, _positions(cols, "cols"), inputs)

    def block(
        self,
        rows: Tensor | None,
        cols: Tensor | None,
        row_inputs: Tensor | None = None,
        col_inputs: Tensor | None = None,
    ) -> Tensor:
        """(R, C), or broadcastable to it: the mean at all of the rows and columns, known or new ones."""
        return self.row_part(rows, row_inputs).unsqueeze(-1) + self.col_part(cols, col_inputs)

    def at(
        self,
        rows: Tensor | None,
        cols: Tensor | None,
        row_inputs: Tensor | None = None,
        col_inputs: Tensor | None = None,
    ) -> Tensor:
        """(Q,): the mean at pairs of rows and columns, known or new ones."""
        _check_pairs(rows, cols)
        return self.row_part(rows, row_inputs) + self.col_part(cols, col_inputs)

    def _part(self, mean: Any, axis: int, positions: Tensor | None, inputs: Tensor | None) -> Tensor:
        if mean is None:
            return self.zero
        if positions is not None:
            if not self._axes:
                raise InputError("mean: an InputMean has values once it is the mean of a prior")
            distinct, back = torch.unique(positions, return_inverse=True)
            return self._values(mean, self._axes[axis].inputs[distinct])[back]
        if inputs is None:
            raise InputError("mean: an InputMean needs the new inputs, not their absence (None) alone")
        return self._values(mean, inputs)

    def _values(self, mean: Any, inputs: Tensor) -> Tensor:
        try:
            values: Tensor = mean(inputs.to(self.zero.dtype))
        except RuntimeError as error:  # LinearMean of another width, for instance
            raise InputError(
                f"mean: {type(mean).__name__} takes no inputs of shape {tuple(inputs.shape)}: {error}"
            ) from None
        if values.shape != inputs.shape[:1]:
            raise InputError(
                f"mean: expected one number for each of {len(inputs)} inputs of {type(mean).__name__}, got shape "
                f"{tuple(values.shape)}"
            )
        return values


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
