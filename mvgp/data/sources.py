"""Observed entries out of dense arrays, masks, scipy matrices and pandas frames.

Each function returns ``(rows, cols, values, shape)``; :class:`~mvgp.ObservedMatrix` checks the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from .checks import as_tensor

Entries = tuple[Tensor, Tensor, Tensor, tuple[int, int]]


def dense_entries(matrix: Any) -> Entries:
    """The entries of a dense matrix (M, N) that are not NaN."""
    given = _dense(matrix, "matrix")
    rows, cols = (~torch.isnan(given)).nonzero(as_tuple=True)
    values = given[rows, cols]
    _check_cells(rows, cols, values)
    return rows, cols, values, (given.shape[0], given.shape[1])


def masked_entries(matrix: Any, mask: Any) -> Entries:
    """The entries of a dense matrix (M, N) where ``mask`` (M, N) is true."""
    given, chosen = _dense(matrix, "matrix"), as_tensor(mask, "mask")
    if chosen.dtype != torch.bool:
        raise InputError(f"mask: expected booleans, got {chosen.dtype}")
    if chosen.shape != given.shape:
        raise InputError(f"mask: expected the matrix's shape {tuple(given.shape)}, got {tuple(chosen.shape)}")
    rows, cols = chosen.nonzero(as_tuple=True)
    values = given[rows, cols]
    _check_cells(rows, cols, values)
    return rows, cols, values, (given.shape[0], given.shape[1])


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
    given = {"row": row, "col": col, "value": value}
    missing = [name for name, column in given.items() if column is None]
    if len(missing) == 3:
        try:
            numbers = frame.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise InputError(f"frame: expected numbers in every cell of a wide frame ({error})") from None
        return dense_entries(numbers), [str(name) for name in frame.index], [str(name) for name in frame.columns]
    if missing:
        raise InputError(f"a long frame needs row, col and value; missing: {', '.join(missing)}")
    for name, column in given.items():
        if column not in frame.columns:
            raise InputError(f"{name}={column!r}: the frame's columns are {[str(c) for c in frame.columns]}")
    rows, row_names = _numbered(frame[row], "row")
    cols, col_names = _numbered(frame[col], "col")
    try:
        values = frame[value].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InputError(f"value={value!r}: expected numbers ({error})") from None
    shape = (max(len(row_names), 1), max(len(col_names), 1))
    return (rows, cols, as_tensor(values, "value"), shape), row_names, col_names


def _dense(matrix: Any, name: str) -> Tensor:
    given = as_tensor(matrix, name, keep_gradient=True)
    if given.dim() != 2:
        raise InputError(f"{name}: expected two dimensions (M, N), got shape {tuple(given.shape)}")
    if given.is_complex():
        raise InputError(f"{name}: expected real numbers, got {given.dtype}")
    return given if given.is_floating_point() else given.double()


def _check_cells(rows: Tensor, cols: Tensor, values: Tensor) -> None:
    bad = ~torch.isfinite(values)
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"matrix[{rows[at]}, {cols[at]}]: expected a finite number, got {values[at].item()}")


def _numbered(column: Any, name: str) -> tuple[Tensor, list[str]]:
    """Positions of the names in a pandas column, numbered in order of appearance."""
    blank = column.isna().to_numpy()
    if blank.any():
        raise InputError(f"{name}: entry {int(blank.argmax())} of the frame has no name")
    codes, names = column.astype(str).factorize()
    return torch.from_numpy(np.asarray(codes, dtype=np.int64)), [str(entry) for entry in names]
