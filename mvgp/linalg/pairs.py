"""Cells of a matrix: sparse patterns, whole rows, symmetric matrices and operators, and lists of cells in any order.

torch's CSR products run up to three times faster on a few dozen columns at a time than on thousands, and faster with
32-bit than with 64-bit positions (``python -m benchmarks.book --chapters parts``). So wide products are cut into
blocks, and positions are 32-bit wherever they fit.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import check_device, check_memory
from ..errors import InputError
from ..tensor_checks import check_float_tensor, check_positions, check_shape

BLOCK = 64  # columns of a dense factor handled at once, so that a block of it stays in cache
NARROW = 32  # the same for many passes over one block


class Pattern:
    """Positions of T entries of a matrix, row-major sorted and free of duplicates. Immutable.

    :param rows: (T,) row of each entry, ascending.
    :param cols: (T,) column of each entry, ascending within a row.
    :param shape: (M, N).
    """

    def __init__(self, rows: Tensor, cols: Tensor, shape: tuple[int, int]) -> None:
        self.rows, self.cols, self.shape = rows, cols, shape
        self.crow = _row_pointer(rows, shape[0])  # (M + 1,)
        # order[t] is the place, in this pattern, of entry t of the transposed pattern
        self.order = torch.argsort(cols, stable=True)  # (T,)
        self._crow_t = _row_pointer(cols[self.order], shape[1])  # (N + 1,)
        self._col_t = rows[self.order]

    def __len__(self) -> int:
        return int(self.rows.numel())

    @property
    def is_complete(self) -> bool:
        """Whether every entry of the matrix is in the pattern."""
        return len(self) == self.shape[0] * self.shape[1]

    def matrix(self, values: Tensor) -> Tensor:
        """CSR tensor (M, N) with ``values`` (T,) at the pattern's positions."""
        return csr_tensor(self.crow, self.cols, values, self.shape)

    def matrix_t(self, values: Tensor) -> Tensor:
        """The transpose of :meth:`matrix`, as a CSR tensor (N, M)."""
        return csr_tensor(self._crow_t, self._col_t, values[self.order], (self.shape[1], self.shape[0]))

    def sample(self, left: Tensor, right: Tensor) -> Tensor:
        """(T,): the entries of ``left @ right.T`` at the pattern's positions, from (M, R) and (N, R)."""
        out = self.matrix(left.new_zeros(len(self)))
        for start in range(0, left.shape[1], BLOCK):
            # mat2 must be a transposed row-major block: the inner products are then contiguous
            a = left[:, start : start + BLOCK].contiguous()
            b = right[:, start : start + BLOCK].contiguous()
            out = torch.sparse.sampled_addmm(out, a, b.T, beta=1.0)
        return out.values()

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Pattern:
        """The same pattern on another device (a dtype is for values, and ignored)."""
        if device is None or torch.device(device) == self.rows.device:
            return self
        return Pattern(self.rows.to(device), self.cols.to(device), self.shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> Pattern:
        return self  # immutable


class CompleteRows:
    """All A N entries of A rows of an M x N matrix, row by row; products are dense. Immutable.

    :param chosen: (A,) ascending.
    :param shape: (M, N).
    """

    def __init__(self, chosen: Tensor, shape: tuple[int, int]) -> None:
        self.chosen, self.shape = chosen, shape

    def __len__(self) -> int:
        return int(self.chosen.numel()) * self.shape[1]

    @property
    def is_complete(self) -> bool:
        """Whether every entry of the matrix is in the pattern."""
        return len(self) == self.shape[0] * self.shape[1]

    @cached_property
    def rows(self) -> Tensor:
        """(A N,) row of each entry."""
        return self.chosen.repeat_interleave(self.shape[1])

    @cached_property
    def cols(self) -> Tensor:
        """(A N,) column of each entry."""
        return torch.arange(self.shape[1], device=self.chosen.device).repeat(len(self.chosen))

    def sample(self, left: Tensor, right: Tensor) -> Tensor:
        """(A N,): the entries of ``left @ right.T``, from (M, R) and (N, R)."""
        return (left[self.chosen] @ right.mT).reshape(-1)

    def matrix(self, values: Tensor) -> RowBlock:
        """(M, N) with ``values`` (A N,) in the chosen rows and zero elsewhere."""
        return RowBlock(values.view(-1, self.shape[1]), self.chosen, self.shape, transposed=False)

    def matrix_t(self, values: Tensor) -> RowBlock:
        """The transpose of :meth:`matrix`."""
        return RowBlock(values.view(-1, self.shape[1]), self.chosen, self.shape[::-1], transposed=True)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> CompleteRows:
        """The same pattern on another device (a dtype is for values, and ignored)."""
        if device is None or torch.device(device) == self.chosen.device:
            return self
        return CompleteRows(self.chosen.to(device), self.shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompleteRows:
        return self  # immutable


@dataclass(frozen=True)
class RowBlock:
    """A matrix that is zero outside some rows (or columns, when transposed), known by its products."""

    block: Tensor  # (A, N)
    chosen: Tensor  # (A,)
    shape: tuple[int, int]
    transposed: bool  # whether the block holds columns of the matrix

    def to_dense(self) -> Tensor:
        """The matrix, dense."""
        return self @ torch.eye(self.shape[1], dtype=self.block.dtype, device=self.block.device)

    def __matmul__(self, dense: Tensor) -> Tensor:
        if self.transposed:
            return self.block.mT @ dense[self.chosen]
        out = dense.new_zeros(self.shape[0], dense.shape[1])
        out[self.chosen] = self.block @ dense
        return out


class SymmetricCSR:
    """A symmetric sparse matrix (N, N) that can be moved between dtypes and devices. Immutable."""

    def __init__(self, crow: Tensor, col: Tensor, values: Tensor) -> None:
        self.crow, self.col, self.values = crow, col, values
        self.size = int(crow.numel()) - 1
        self.tensor = csr_tensor(crow, col, values, (self.size, self.size))
        self.memory: dict[Any, Tensor] = {}  # what others derived from this matrix and want again

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.values.numel())

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.tensor @ dense

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> SymmetricCSR:
        """The same matrix in another dtype or on another device; itself when nothing changes."""
        values = self.values.to(dtype=dtype, device=device)
        if values is self.values:
            return self
        return SymmetricCSR(self.crow.to(device=device), self.col.to(device=device), values)

    def __deepcopy__(self, memo: dict[int, Any]) -> SymmetricCSR:
        return self  # immutable

    def __reduce__(self) -> tuple[Any, ...]:
        return SymmetricCSR, (self.crow, self.col, self.values)


class SymmetricLinearOperator(LinearOperator):
    """A symmetric operator (..., N, N), some of it constant, that knows its products with matrices."""

    @abstractmethod
    def _times(self, rhs: Tensor) -> Tensor:
        """(..., N, C) from ``rhs`` (..., N, C)."""

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self._times(rhs.unsqueeze(-1)).squeeze(-1) if rhs.dim() == 1 else self._times(rhs)

    def _transpose_nonbatch(self) -> Self:
        return self

    def type(self, dtype: torch.dtype) -> LinearOperator:
        """In another precision; ``double``, ``float`` and ``half`` call it. What is constant goes with it."""
        return self.to(dtype)


def csr_tensor(crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A torch CSR tensor from its parts, without torch's once-per-process beta warning."""
    if max(values.numel(), *shape) < 2**31:
        crow, col = crow.int(), col.int()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(crow, col, values, size=shape, check_invariants=False)


def _row_pointer(rows: Tensor, num_rows: int) -> Tensor:
    """(num_rows + 1,): where each row starts among the sorted ``rows`` (T,)."""
    crow = rows.new_zeros(num_rows + 1)
    crow[1:] = torch.bincount(rows, minlength=num_rows).cumsum(0)
    return crow


class PairIndex:
    """Q cells of an M x N grid. Immutable; order and repeats are allowed.

    Work is done on the *active* grid (M', N') of the rows and columns that occur at all.

    :param rows: (Q,) in [0, M).
    :param cols: (Q,) in [0, N).
    :param shape: (M, N).

    Example:
        >>> import torch
        >>> from mvgp.linalg import PairIndex
        >>> len(PairIndex(torch.tensor([0, 2]), torch.tensor([1, 1]), (3, 4))), len(PairIndex.complete((3, 4)))
        (2, 12)

    """

    def __init__(self, rows: Tensor, cols: Tensor, shape: tuple[int, int]) -> None:
        self.shape = check_shape(shape)
        self.rows = check_positions(rows, self.shape[0], "rows")
        self.cols = check_positions(cols, self.shape[1], "cols")
        if len(rows) != len(cols):
            raise InputError(f"rows and cols differ in length: {len(rows)} and {len(cols)}")

    @classmethod
    def complete(cls, shape: tuple[int, int], device: torch.device | None = None) -> PairIndex:
        """Every cell of the grid, row by row."""
        shape = check_shape(shape)
        check_memory(2.0 * shape[0] * shape[1], "shape", "a list of all cells")
        device = None if device is None else check_device(device)
        rows = torch.arange(shape[0], device=device).repeat_interleave(shape[1])
        cols = torch.arange(shape[1], device=device).repeat(shape[0])
        return cls(rows, cols, shape)

    def __len__(self) -> int:
        return int(self.rows.numel())

    @cached_property
    def _row_parts(self) -> tuple[Tensor, Tensor]:
        return torch.unique(self.rows, return_inverse=True)

    @cached_property
    def _col_parts(self) -> tuple[Tensor, Tensor]:
        return torch.unique(self.cols, return_inverse=True)

    @property
    def active_rows(self) -> Tensor:
        """(M',) the rows that occur, ascending."""
        return self._row_parts[0]

    @property
    def active_cols(self) -> Tensor:
        """(N',) the columns that occur, ascending."""
        return self._col_parts[0]

    @property
    def local_rows(self) -> Tensor:
        """(Q,) position of each pair's row among the active ones."""
        return self._row_parts[1]

    @property
    def local_cols(self) -> Tensor:
        """(Q,) position of each pair's column among the active ones."""
        return self._col_parts[1]

    @property
    def active_shape(self) -> tuple[int, int]:
        """(M', N')"""
        return len(self.active_rows), len(self.active_cols)

    @cached_property
    def cells(self) -> Tensor:
        """(Q,) row-major number of each pair's cell on the active grid."""
        return self.local_rows * self.active_shape[1] + self.local_cols

    @cached_property
    def _ascending(self) -> bool:
        """Whether the pairs are sorted and distinct, as observed ones are."""
        return bool((self.cells[1:] > self.cells[:-1]).all())

    @property
    def fills(self) -> bool:
        """Whether the pairs are the whole active grid, row by row."""
        return self._ascending and len(self) == self.active_shape[0] * self.active_shape[1]

    @cached_property
    def _distinct(self) -> tuple[Pattern, Tensor]:
        """The pattern (M', N') of the distinct pairs, and (Q,) the position of each pair in it."""
        if self._ascending:
            position = torch.arange(len(self), device=self.rows.device)
            return Pattern(self.local_rows, self.local_cols, self.active_shape), position
        cells, position = torch.unique(self.cells, return_inverse=True)
        width = self.active_shape[1]
        return Pattern(cells // width, cells % width, self.active_shape), position

    @property
    def pattern(self) -> Pattern:
        """The distinct pairs on the active grid, in CSR form."""
        return self._distinct[0]

    def to_pattern(self, values: Tensor) -> Tensor:
        """(D,) values on the distinct pairs from (Q,) values on all, repeats added up."""
        check_float_tensor(values, "values", (len(self),), finite=True)
        if self._ascending:
            return values
        pattern, position = self._distinct
        return values.new_zeros(len(pattern)).index_add_(0, position, values)

    def from_pattern(self, values: Tensor) -> Tensor:
        """(Q,) values on all pairs from (D,) values on the distinct ones."""
        check_float_tensor(values, "values", (len(self._distinct[0]),), finite=True)
        return values if self._ascending else values[self._distinct[1]]

    def scatter(self, values: Tensor) -> Tensor:
        """(C, M', N') grids from (Q, C) values, repeats added up."""
        check_float_tensor(values, "values", (len(self), None))
        if self.fills:
            return values.mT.unflatten(1, self.active_shape)
        grid = values.new_zeros(values.shape[1], self.active_shape[0] * self.active_shape[1])
        if self._ascending:
            grid[:, self.cells] = values.mT
        else:
            grid.index_add_(1, self.cells, values.mT)
        return grid.unflatten(1, self.active_shape)

    def gather(self, grid: Tensor) -> Tensor:
        """(Q, C) values at the pairs from (C, M', N') grids."""
        check_float_tensor(grid, "grid", (None, *self.active_shape))
        flat = grid.flatten(1)
        return flat.mT if self.fills else flat[:, self.cells].mT

    @cached_property
    def swapped(self) -> PairIndex:
        """The same pairs with rows and columns exchanged."""
        return PairIndex(self.cols, self.rows, (self.shape[1], self.shape[0]))

    def __getitem__(self, which: Any) -> PairIndex:
        return PairIndex(self.rows[which], self.cols[which], self.shape)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> PairIndex:
        """The same pairs on another device (a dtype is for values, and ignored)."""
        if device is None or check_device(device) == self.rows.device:
            return self
        return PairIndex(self.rows.to(device), self.cols.to(device), self.shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> PairIndex:
        return self  # immutable

    def __reduce__(self) -> tuple[Any, ...]:
        return PairIndex, (self.rows, self.cols, self.shape)


def sort_cells(rows: Tensor, cols: Tensor, num_cols: int) -> tuple[Tensor, Tensor, Tensor]:
    """(T,) each: rows and columns, row-major sorted, and where each stood before; a repeated cell is an error."""
    key, order = torch.sort(rows * num_cols + cols, stable=True)
    same = key[1:] == key[:-1]
    if same.any():
        # of all repeated entries, name the one that comes first in the user's own order
        later = order[1:][same]
        pick = int(later.argmin())
        at = int(same.nonzero()[pick])
        pair = (int(key[at]) // num_cols, int(key[at]) % num_cols)
        first, second = sorted((int(order[at]), int(order[at + 1])))
        raise InputError(f"duplicate pair {pair}: entry {second} repeats entry {first}; observe each pair once")
    return rows[order], cols[order], order


def cell_slots(rows: Tensor, cols: Tensor, among_rows: Tensor, among_cols: Tensor, num_cols: int) -> Tensor:
    """(Q,): where each cell is among row-major sorted cells (T,), -1 for one that is not there."""
    key, among = rows * num_cols + cols, among_rows * num_cols + among_cols
    if len(among) == 0:
        return torch.full_like(key, -1)
    at = torch.searchsorted(among, key).clamp_max(len(among) - 1)
    return torch.where(among[at] == key, at, -1)
