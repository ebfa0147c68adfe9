"""CompleteRows: every entry of some rows of a matrix, with the interface of a sparse pattern."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


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
