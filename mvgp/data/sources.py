"""Observed entries out of dense arrays, masks, scipy matrices and pandas frames.

Each function returns ``(rows, cols, values, shape)``; :class:`~mvgp.ObservedMatrix` checks the rest.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import EXACT, as_reals, as_tensor, check_name, real, shown
from ..errors import InputError

Entries = tuple[Tensor, Tensor, Tensor, tuple[int, int]]


def dense_entries(matrix: Any) -> Entries:
    """The entries of a dense matrix (M, N) that are neither NaN nor masked."""
    given, missing = _dense(matrix, "matrix")
    return _entries(given, ~(torch.isnan(given) | missing))


def masked_entries(matrix: Any, mask: Any) -> Entries:
    """The entries of a dense matrix (M, N) where ``mask`` (M, N) is true; what numpy has masked is missing anyway."""
    (given, missing), chosen = _dense(matrix, "matrix"), as_tensor(mask, "mask")
    if chosen.dtype != torch.bool:
        raise InputError(f"mask: expected booleans, got {chosen.dtype}")
    if chosen.shape != given.shape:
        raise InputError(f"mask: expected the matrix's shape {tuple(given.shape)}, got {tuple(chosen.shape)}")
    return _entries(given, chosen.to(given.device) & ~missing)


def scipy_entries(matrix: Any) -> Entries:
    """The stored entries of a scipy sparse matrix."""
    from scipy import sparse

    if not sparse.issparse(matrix):
        raise InputError(f"matrix: expected a scipy sparse matrix, got {type(matrix).__name__}")
    given: Any = matrix
    if given.ndim != 2:
        raise InputError(f"matrix: expected two dimensions, got shape {given.shape}")
    coo = given.tocoo()
    rows = torch.from_numpy(coo.row.astype(np.int64))
    cols = torch.from_numpy(coo.col.astype(np.int64))
    return rows, cols, as_tensor(coo.data, "matrix"), tuple(coo.shape)


def frame_entries(
    frame: Any, row: str | None, col: str | None, value: str | None
) -> tuple[Entries, list[str], list[str]]:
    """A wide frame (all of row, col, value None) or a long one (none of them None), with the names."""
    if not all(hasattr(frame, part) for part in ("to_numpy", "columns", "index", "dtypes")):
        raise InputError(f"frame: expected a pandas DataFrame, got {shown(frame)}")
    given = {"row": row, "col": col, "value": value}
    missing = [name for name, column in given.items() if column is None]
    if len(missing) == 3:
        numbers = [_numbers(frame.iloc[:, at], f"frame column {frame.columns[at]!r}") for at in range(frame.shape[1])]
        dense = np.stack(numbers, axis=1) if numbers else np.zeros((len(frame), 0))
        names = [
            [check_name(name, f"{side}[{at}]") for at, name in enumerate(labels)]
            for side, labels in (("frame.index", frame.index), ("frame.columns", frame.columns))
        ]
        return dense_entries(dense), names[0], names[1]
    if missing:
        raise InputError(f"a long frame needs row, col and value; missing: {', '.join(missing)}")
    for name, column in given.items():
        known = [str(c) for c in frame.columns]
        if not isinstance(column, str | int) or isinstance(column, bool) or column not in frame.columns:
            raise InputError(f"{name}={shown(column)}: the frame's columns are {known}")
        if list(frame.columns).count(column) > 1:
            raise InputError(f"{name}={column!r}: the frame has several columns of this name, {known}")
    rows, row_names = _numbered(frame[row], "row")
    cols, col_names = _numbered(frame[col], "col")
    values = _numbers(frame[value], f"value={value!r}")
    shape = (max(len(row_names), 1), max(len(col_names), 1))
    return (rows, cols, as_tensor(values, "value"), shape), row_names, col_names


def _dense(matrix: Any, name: str) -> tuple[Tensor, Tensor]:
    """(M, N) the numbers, NaN included, and (M, N) where numpy has masked them; a mask says that they are missing."""
    missing = None
    if isinstance(matrix, np.ma.MaskedArray):
        missing = torch.from_numpy(np.ma.getmaskarray(matrix).copy())
        matrix = matrix.data
    given = as_tensor(matrix, name, keep_gradient=True)
    if given.dim() != 2:
        raise InputError(f"{name}: expected two dimensions (M, N), got shape {tuple(given.shape)}")
    given = given if given.is_floating_point() else as_reals(given, name, keep_gradient=True)
    return given, torch.zeros(given.shape, dtype=torch.bool, device=given.device) if missing is None else missing


def _entries(given: Tensor, chosen: Tensor) -> Entries:
    """The entries of ``given`` (M, N) where ``chosen`` (M, N) is true, all finite."""
    rows, cols = chosen.nonzero(as_tuple=True)
    values = given[rows, cols]
    bad = ~torch.isfinite(values)
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"matrix[{rows[at]}, {cols[at]}]: expected a finite number, got {values[at].item()}")
    return rows, cols, values, (given.shape[0], given.shape[1])


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
    found: np.ndarray = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return found


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
