"""ObservedMatrix: observed entries, out of lists, dense arrays, masks, scipy matrices and pandas frames."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import real, shown
from ..errors import InputError
from ..linalg.pairs import Pattern, sort_cells
from ..tensor_checks import (
    EXACT,
    as_reals,
    as_tensor,
    check_cells,
    check_name,
    check_names,
    check_shape,
    check_values,
    check_weights,
)

Entries = tuple[Tensor, Tensor, Tensor, tuple[int, int]]  # rows, columns and values, (T,) each, and the shape


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ObservedMatrix:
    r"""T observed entries :math:`r_{mn}` of an M x N matrix; each pair at most once.

    The entries are checked, sorted row by row, and never change afterwards. A weight ``w`` says that an entry was
    measured with noise variance :math:`\sigma^2 / w`. Values and weights may require gradients, which the marginal
    likelihoods of :mod:`mvgp.hyperparameters` carry. A fit, whose posterior is constant, refuses such data; give it
    :meth:`detach`.

    :param rows: (T,) row of each entry, in [0, M).
    :param cols: (T,) column of each entry, in [0, N).
    :param values: (T,) finite numbers. Whole numbers become float64.
    :param shape: (M, N).
    :param weights: (T,) positive numbers; all 1 when left out.
    :param row_names: M distinct names, optional.
    :param col_names: N distinct names, optional.

    Example:
        >>> import mvgp
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 0], [0.5, -1.0], shape=(3, 2))
        >>> len(data), data.shape
        (2, (3, 2))

    """

    rows: Tensor
    cols: Tensor
    values: Tensor
    weights: Tensor | None
    shape: tuple[int, int]
    row_names: tuple[str, ...] | None
    col_names: tuple[str, ...] | None

    def __init__(
        self,
        rows: Any,
        cols: Any,
        values: Any,
        shape: tuple[int, int],
        *,
        weights: Any = None,
        row_names: Any = None,
        col_names: Any = None,
    ) -> None:
        shape = check_shape(shape)
        row, col = check_cells(rows, cols, shape)  # (T,) each
        if len(row) == 0:
            raise InputError(f"no observations: expected at least one entry of the {shape[0]} x {shape[1]} matrix")
        number = check_values(values, len(row), "values", keep_gradient=True)
        weight = None if weights is None else check_weights(weights, len(row), number.dtype, keep_gradient=True)
        row, col, order = sort_cells(row, col, shape[1])
        self.__dict__.update(  # it is frozen from here on
            rows=row,
            cols=col,
            values=number[order],
            weights=None if weight is None else weight[order],
            shape=shape,
            row_names=check_names(row_names, shape[0], "row_names"),
            col_names=check_names(col_names, shape[1], "col_names"),
            _reordered=bool((order.diff() < 0).any()),  # whether the entries came in another order
        )

    @classmethod
    def from_dense(cls, matrix: Any, **options: Any) -> ObservedMatrix:
        """The entries of a dense (M, N) array or tensor that are neither NaN nor masked by numpy."""
        dense, missing = _dense(matrix)
        return cls(*_entries(dense, ~(torch.isnan(dense) | missing)), **options)

    @classmethod
    def from_mask(cls, matrix: Any, mask: Any, **options: Any) -> ObservedMatrix:
        """The entries of a dense (M, N) matrix where the boolean ``mask`` (M, N) is true."""
        (dense, missing), chosen = _dense(matrix), as_tensor(mask, "mask")
        if chosen.dtype != torch.bool:
            raise InputError(f"mask: expected booleans, got {chosen.dtype}")
        if chosen.shape != dense.shape:
            raise InputError(f"mask: expected the matrix's shape {tuple(dense.shape)}, got {tuple(chosen.shape)}")
        return cls(*_entries(dense, chosen.to(dense.device) & ~missing), **options)

    @classmethod
    def from_scipy(cls, matrix: Any, **options: Any) -> ObservedMatrix:
        """The stored entries of a scipy sparse matrix (stored zeros count as observed)."""
        from scipy import sparse

        if not sparse.issparse(matrix):
            raise InputError(f"matrix: expected a scipy sparse matrix, got {type(matrix).__name__}")
        array: Any = matrix
        if array.ndim != 2:
            raise InputError(f"matrix: expected two dimensions, got shape {array.shape}")
        coo = array.tocoo()
        rows, cols = (torch.from_numpy(part.astype(np.int64)) for part in (coo.row, coo.col))
        return cls(rows, cols, as_tensor(coo.data, "matrix"), tuple(coo.shape), **options)

    @classmethod
    def from_frame(
        cls, frame: Any, *, row: str | None = None, col: str | None = None, value: str | None = None, **options: Any
    ) -> ObservedMatrix:
        """A pandas frame: wide (index and columns are the names, NaN is missing), or long.

        A long frame has one line for each entry; ``row``, ``col`` and ``value`` say which columns hold the row name,
        the column name and the number. Names are numbered in order of appearance.
        """
        if not all(hasattr(frame, part) for part in ("to_numpy", "columns", "index", "dtypes")):
            raise InputError(f"frame: expected a pandas DataFrame, got {shown(frame)}")
        chosen = {"row": row, "col": col, "value": value}
        missing = [name for name, column in chosen.items() if column is None]
        if len(missing) == 3:
            columns = [_numbers(frame.iloc[:, at], f"frame column {name!r}") for at, name in enumerate(frame.columns)]
            dense = np.stack(columns, axis=1) if columns else np.zeros((len(frame), 0))
            row_names = [check_name(name, f"frame.index[{at}]") for at, name in enumerate(frame.index)]
            col_names = [check_name(name, f"frame.columns[{at}]") for at, name in enumerate(frame.columns)]
            return cls.from_dense(dense, row_names=row_names, col_names=col_names, **options)
        if missing:
            raise InputError(f"a long frame needs row, col and value; missing: {', '.join(missing)}")
        known = [str(column) for column in frame.columns]
        for name, column in chosen.items():
            if not isinstance(column, str | int) or isinstance(column, bool) or column not in frame.columns:
                raise InputError(f"{name}={shown(column)}: the frame's columns are {known}")
            if list(frame.columns).count(column) > 1:
                raise InputError(f"{name}={column!r}: the frame has several columns of this name, {known}")
        rows, row_names = _numbered(frame[row], "row")
        cols, col_names = _numbered(frame[col], "col")
        values = as_tensor(_numbers(frame[value], f"value={value!r}"), "value")
        shape = (max(len(row_names), 1), max(len(col_names), 1))
        return cls(rows, cols, values, shape, row_names=row_names, col_names=col_names, **options)

    @property
    def requires_grad(self) -> bool:
        """Whether values or weights require a gradient."""
        return bool(self.values.requires_grad or (self.weights is not None and self.weights.requires_grad))

    def detach(self) -> ObservedMatrix:
        """The same entries as constants."""
        constant = copy.copy(self)
        weights = None if self.weights is None else self.weights.detach()
        constant.__dict__.update(values=self.values.detach(), weights=weights)
        return constant

    @cached_property
    def pattern(self) -> Pattern:
        """Where the entries are, in CSR form with its transpose, ready for ``sampled_addmm``."""
        return Pattern(self.rows, self.cols, self.shape)

    @property
    def is_complete(self) -> bool:
        """Whether every entry of the matrix is observed."""
        return len(self) == self.shape[0] * self.shape[1]

    def to_dense(self) -> Tensor:
        """(M, N) with NaN where nothing was observed; for small matrices."""
        dense = torch.full(self.shape, torch.nan, dtype=self.values.dtype, device=self.values.device)
        dense[self.rows, self.cols] = self.values
        return dense

    def with_values(self, values: Any) -> ObservedMatrix:
        """The same entries with other ``values`` (T,), given in this object's sorted order."""
        names = {"row_names": self.row_names, "col_names": self.col_names}
        return ObservedMatrix(self.rows, self.cols, values, self.shape, weights=self.weights, **names)

    def __len__(self) -> int:
        return int(self.rows.numel())

    def __repr__(self) -> str:
        share = len(self) / (self.shape[0] * self.shape[1])
        weighted = ", weighted" if self.weights is not None else ""
        return f"ObservedMatrix({self.shape[0]} x {self.shape[1]}, {len(self)} observed ({share:.1%}){weighted})"


def _dense(matrix: Any) -> tuple[Tensor, Tensor]:
    """(M, N) the numbers, NaN included, and (M, N) where numpy has masked them; a mask says that they are missing."""
    missing = None
    if isinstance(matrix, np.ma.MaskedArray):
        missing = torch.from_numpy(np.ma.getmaskarray(matrix).copy())
        matrix = matrix.data
    dense = as_tensor(matrix, "matrix", keep_gradient=True)
    if dense.dim() != 2:
        raise InputError(f"matrix: expected two dimensions (M, N), got shape {tuple(dense.shape)}")
    dense = dense if dense.is_floating_point() else as_reals(dense, "matrix", keep_gradient=True)
    return dense, torch.zeros(dense.shape, dtype=torch.bool, device=dense.device) if missing is None else missing


def _entries(dense: Tensor, chosen: Tensor) -> Entries:
    """The entries of ``dense`` (M, N) where ``chosen`` (M, N) is true, all finite."""
    rows, cols = chosen.nonzero(as_tuple=True)
    values = dense[rows, cols]
    bad = ~torch.isfinite(values)
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"matrix[{rows[at]}, {cols[at]}]: expected a finite number, got {values[at].item()}")
    return rows, cols, values, (dense.shape[0], dense.shape[1])


def _numbers(column: Any, name: str) -> np.ndarray:
    """(T,) float64 from a pandas column of numbers, NaN where one is missing; strings, booleans, dates are none."""
    kind = getattr(column.dtype, "kind", "O")
    blank = column.isna().to_numpy()
    if kind not in "iufO":
        raise InputError(f"{name}: expected numbers in every cell, got {column.dtype}")
    if kind != "f":  # whole numbers or objects: one by one
        for at, entry in enumerate(column):
            if blank[at]:
                continue
            if real(entry) is None:
                raise InputError(f"{name}: expected numbers in every cell, got {shown(entry)} in line {at}")
            if isinstance(entry, Integral) and abs(int(entry)) > EXACT:
                raise InputError(f"{name}: expected numbers of at most 2**53, got {entry} in line {at}")
    numbers: np.ndarray = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers


def _numbered(column: Any, name: str) -> tuple[Tensor, list[str]]:
    """Positions of the names in a pandas column, numbered in order of appearance."""
    blank = column.isna().to_numpy()
    if blank.any():
        raise InputError(f"{name}: entry {int(blank.argmax())} of the frame has no name")
    names = [check_name(entry, f"{name}: entry {at} of the frame") for at, entry in enumerate(column)]
    number: dict[str, int] = {}
    first: dict[str, Any] = {}
    for entry, text in zip(column, names, strict=True):
        number.setdefault(text, len(number))
        if type(first.setdefault(text, entry)) is not type(entry):
            raise InputError(f"{name}: expected different names, got {first[text]!r} and {entry!r}, both {text!r}")
    return torch.tensor([number[text] for text in names], dtype=torch.int64), list(number)
