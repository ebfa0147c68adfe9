"""SideBySideLinearOperator: operators next to one another, and stacked when transposed."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor


class SideBySideLinearOperator(LinearOperator):
    """[A, B, ...], (..., N, D_A + D_B + ...), from operators (..., N, D).

    :param parts: at least one, of the same batch shape and number of rows.
    """

    def __init__(self, *parts: LinearOperator) -> None:
        super().__init__(*parts)
        self.parts = parts

    def _size(self) -> torch.Size:
        first = self.parts[0].shape
        return torch.Size((*first[:-1], sum(part.shape[-1] for part in self.parts)))

    def _transpose_nonbatch(self) -> LinearOperator:
        return StackedLinearOperator(*(part._transpose_nonbatch() for part in self.parts))

    def _matmul(self, rhs: Tensor) -> Tensor:
        pieces = rhs.split([part.shape[-1] for part in self.parts], dim=-1 if rhs.dim() == 1 else -2)
        products = [part._matmul(piece) for part, piece in zip(self.parts, pieces, strict=True)]
        return torch.stack(torch.broadcast_tensors(*products)).sum(0)

    def _expand_batch(self, batch_shape: Any) -> SideBySideLinearOperator:
        return SideBySideLinearOperator(*(part._expand_batch(batch_shape) for part in self.parts))

    def to_dense(self) -> Tensor:
        """(..., N, D)"""
        return torch.cat([part.to_dense() for part in self.parts], dim=-1)


class StackedLinearOperator(LinearOperator):
    """The transpose: operators (..., D, N) below one another.

    :param parts: at least one, of the same batch shape and number of columns.
    """

    def __init__(self, *parts: LinearOperator) -> None:
        super().__init__(*parts)
        self.parts = parts

    def _size(self) -> torch.Size:
        first = self.parts[0].shape
        return torch.Size((*first[:-2], sum(part.shape[-2] for part in self.parts), first[-1]))

    def _transpose_nonbatch(self) -> LinearOperator:
        return SideBySideLinearOperator(*(part._transpose_nonbatch() for part in self.parts))

    def _matmul(self, rhs: Tensor) -> Tensor:
        return torch.cat([part._matmul(rhs) for part in self.parts], dim=-1 if rhs.dim() == 1 else -2)

    def _expand_batch(self, batch_shape: Any) -> StackedLinearOperator:
        return StackedLinearOperator(*(part._expand_batch(batch_shape) for part in self.parts))

    def to_dense(self) -> Tensor:
        """(..., D, N)"""
        return torch.cat([part.to_dense() for part in self.parts], dim=-2)
