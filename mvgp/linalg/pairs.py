"""PairIndex: a list of cells (m, n) of a grid, in any order, and how to move between list and grid."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..checks import check_device, check_memory
from ..errors import InputError
from ..tensor_checks import check_float_tensor, check_positions, check_shape
from .patterns import Pattern


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

    def to(self, device: torch.device | str | None = None, **_: Any) -> PairIndex:
        """The same pairs on another device (a dtype, if given, is for values and ignored)."""
        if device is None or check_device(device) == self.rows.device:
            return self
        return PairIndex(self.rows.to(device), self.cols.to(device), self.shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> PairIndex:
        return self  # immutable

    def __reduce__(self) -> tuple[Any, ...]:
        return PairIndex, (self.rows, self.cols, self.shape)
