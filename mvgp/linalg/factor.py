"""Factor: one side of a Kronecker product, restricted to the rows and columns in use."""

from __future__ import annotations

from functools import cached_property

import torch
from linear_operator import LinearOperator
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from . import cost
from .blocks import block
from .spectral import SpectralLinearOperator


class Factor:
    """The block of ``op`` at ``out`` (A,) x ``into`` (B,), applied densely or lazily.

    :param op: (R, C).
    :param out: (A,) rows kept.
    :param into: (B,) columns kept.
    """

    def __init__(self, op: LinearOperator, out: Tensor, into: Tensor) -> None:
        self.out_size, self.into_size = len(out), len(into)
        self._symmetric = out is into  # factors are covariances
        if isinstance(op, SpectralLinearOperator) and out is into and len(out) < op.shape[-1]:
            op = SpectralLinearOperator(op.spectrum, op.vectors[out])
            self._out: Tensor | None = None
            self._into: Tensor | None = None
        else:
            self._out = None if len(out) == op.shape[-2] else out
            self._into = None if len(into) == op.shape[-1] else into
        self._op, self._rows, self._cols = op, out, into

    @cached_property
    def dense(self) -> Tensor:
        """(A, B), kept once computed."""
        if self._out is None and self._into is None:
            return self._op.to_dense()
        return block(self._op, self._rows, self._cols)

    @cached_property
    def dense_t(self) -> Tensor:
        """(B, A): its transpose, row-major; the block itself when that is symmetric."""
        return self.dense if self._symmetric and not self.dense.requires_grad else self.dense.mT.contiguous()

    @property
    def dense_fits(self) -> bool:
        """Whether the dense block stays within the memory meant for one operator."""
        return self.out_size * self.into_size * cost.itemsize(self._op) <= cost.MEMORY

    @property
    def setup_seconds(self) -> float:
        """Estimated time to compute the dense block."""
        if "dense" in self.__dict__:
            return 0.0
        if isinstance(self._op, DenseLinearOperator):
            return self.out_size * self.into_size / cost.MOVE
        return cost.product_seconds(self._op, min(self.out_size, self.into_size))

    def dense_seconds(self, columns: int) -> float:
        """Estimated time of a product by the dense block, its set-up spread over many products."""
        if not self.dense_fits:
            return float("inf")
        rate = cost.GEMM if columns > 8 else cost.GEMV
        return self.out_size * self.into_size * columns / rate + self.setup_seconds / cost.REUSE

    def lazy_seconds(self, columns: int) -> float:
        """Estimated time of a product by the operator itself."""
        if isinstance(self._op, DenseLinearOperator):
            return float("inf")
        return cost.product_seconds(self._op, columns)

    def cheapest_seconds(self, columns: int) -> float:
        """Estimated time of a product by the better of the two."""
        return min(self.dense_seconds(columns), self.lazy_seconds(columns))

    @property
    def dtype(self) -> torch.dtype:
        """Of the entries."""
        found: torch.dtype = self._op.dtype
        return found

    @property
    def device(self) -> torch.device:
        """Of the entries."""
        found: torch.device = self._op.device
        return found

    def apply(self, rhs: Tensor, lazily: bool) -> Tensor:
        """(A, C): the block times ``rhs`` (B, C)."""
        if not lazily:
            return self.dense @ rhs
        if self._into is not None:
            padded = rhs.new_zeros(self._op.shape[-1], rhs.shape[1])
            padded[self._into] = rhs
            rhs = padded
        out = self._op._matmul(rhs)
        return out if self._out is None else out[self._out]
