"""Where the entries of a matrix are: sparse patterns, whole rows, and symmetric sparse matrices.

torch's CSR products run up to three times faster on a few dozen columns at a time than on thousands, and faster with
32-bit than with 64-bit positions (``python -m benchmarks.book --chapters parts``). So wide products are cut into
blocks, and positions are 32-bit wherever they fit.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

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
        """(T,): the entries of ``left @ right.T`` at the pattern's positions.

        :param left: (M, R).
        :param right: (N, R).
        """
        out = self.matrix(left.new_zeros(len(self)))
        for start in range(0, left.shape[1], BLOCK):
            # mat2 must be a transposed row-major block: the inner products are then contiguous
            a = left[:, start : start + BLOCK].contiguous()
            b = right[:, start : start + BLOCK].contiguous()
            out = torch.sparse.sampled_addmm(out, a, b.T, beta=1.0)
        return out.values()

    def to(self, device: torch.device | str | None = None, **_: Any) -> Pattern:
        """The same pattern on another device (a dtype, if given, is for values and ignored)."""
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

    def to(self, device: torch.device | str | None = None, **_: Any) -> CompleteRows:
        """The same pattern on another device."""
        if device is None or torch.device(device) == self.chosen.device:
            return self
        return CompleteRows(self.chosen.to(device), self.shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompleteRows:
        return self  # immutable


@dataclass(frozen=True)
class RowBlock:
    """A matrix that is zero outside some rows (or columns, when transposed), known by its products.

    :param block: (A, N).
    :param chosen: (A,).
    :param shape: of the matrix.
    :param transposed: whether the block holds columns of the matrix.
    """

    block: Tensor
    chosen: Tensor
    shape: tuple[int, int]
    transposed: bool

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
