"""Gram matrices of features, and operators next to or below one another."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from linear_operator import LinearOperator
from linear_operator.operators import DenseLinearOperator
from scipy import sparse
from torch import Tensor

from ..checks import check_instance, check_whole_number
from ..errors import SizeError
from ..tensor_checks import check_float_tensor
from .chebyshev import batch_into_columns, columns_into_batch
from .pairs import BLOCK, SymmetricLinearOperator, csr_tensor


class GramLinearOperator(SymmetricLinearOperator):
    r""":math:`s F F^T`, (..., N, N), from constant features F (N, D); nothing N x N is stored.

    :param scale: (...,) s, not negative; gradients flow to it.
    :param features: F, constant.
    """

    def __init__(self, scale: Tensor, features: Features) -> None:
        check_instance(features, "features", Features, "mvgp.linalg.stacked.Features")
        check_instance(scale, "scale", Tensor, "a tensor")
        check_float_tensor(scale, "scale", (None,) * scale.dim(), half=True)
        super().__init__(scale, features=features)
        self.scale, self.features = scale, features

    def _size(self) -> torch.Size:
        return torch.Size((*self.scale.shape, self.features.shape[0], self.features.shape[0]))

    def _plain(self, rhs: Tensor) -> Tensor:
        """(..., N, C): F F^T rhs."""
        flat = batch_into_columns(rhs)
        product = self.features.times(self.features.transposed_times(flat))
        return columns_into_batch(product, rhs.shape[:-2], rhs.shape[-1])

    def _times(self, rhs: Tensor) -> Tensor:
        return self.scale[..., None, None] * self._plain(rhs)

    def _bilinear_derivative(self, left_vecs: Tensor, right_vecs: Tensor) -> tuple[Tensor | None, ...]:
        left = left_vecs.unsqueeze(-1) if left_vecs.dim() == 1 else left_vecs
        right = right_vecs.unsqueeze(-1) if right_vecs.dim() == 1 else right_vecs
        batch = torch.broadcast_shapes(self.batch_shape, left.shape[:-2], right.shape[:-2])
        inner = (left * self._plain(right)).sum((-2, -1)).expand(batch)
        return (inner.sum_to_size(self.scale.shape),)

    def _diagonal(self) -> Tensor:
        return self.scale.unsqueeze(-1) * self.features.squared_norms()

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        scale = self.scale[batch_indices] if batch_indices else self.scale
        rows, cols = torch.broadcast_tensors(row_index, col_index)
        flat_rows, flat_cols = rows.reshape(-1), cols.reshape(-1)
        entries = torch.empty(len(flat_rows), dtype=self.dtype, device=self.device)
        size = max(1, 2**24 // self.features.shape[1])  # entries whose features are held at a time
        for start in range(0, len(entries), size):
            part = slice(start, start + size)
            entries[part] = (self.features.rows(flat_rows[part]) * self.features.rows(flat_cols[part])).sum(-1)
        return scale * entries.reshape(rows.shape)

    def _expand_batch(self, batch_shape: Any) -> GramLinearOperator:
        return GramLinearOperator(self.scale.expand(torch.Size(batch_shape)), self.features)

    def _mul_constant(self, other: Any) -> LinearOperator:
        factor = torch.as_tensor(other, dtype=self.dtype, device=self.device)
        return GramLinearOperator(self.scale * factor, self.features)

    def root(self, most_cells: int) -> LinearOperator:
        r"""The root :math:`\sqrt{s} F`, (..., N, D), dense, of at most ``most_cells`` numbers."""
        cells = self.features.shape[0] * self.features.shape[1]
        if cells > check_whole_number(most_cells, "most_cells"):
            raise SizeError(
                f"the root of features {self.features.shape} is held densely: the limit is {most_cells} cells"
            )
        dense = self.features.rows(torch.arange(self.features.shape[0], device=self.device))
        return DenseLinearOperator(self.scale.sqrt()[..., None, None] * dense)


class Features:
    """F (N, D), sparse or dense, with products from both sides. Immutable.

    :param matrix: (N, D) tensor, or scipy sparse array.
    """

    def __init__(self, matrix: Any) -> None:
        self.source = matrix
        self.is_sparse = bool(sparse.issparse(matrix))
        self.shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        if self.is_sparse:
            self._forward, self._backward = _csr(matrix), _csr(matrix.T)
        else:
            self._forward, self._backward = matrix, matrix.mT

    @property
    def dtype(self) -> torch.dtype:
        """Of the entries."""
        return self._forward.dtype

    def times(self, right: Tensor) -> Tensor:
        """(N, C): F @ ``right`` (D, C)."""
        return self._product(self._forward, right)

    def transposed_times(self, right: Tensor) -> Tensor:
        """(D, C): F^T @ ``right`` (N, C)."""
        return self._product(self._backward, right)

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        if not self.is_sparse or right.shape[1] <= BLOCK:
            return left @ right
        return torch.cat([left @ part.contiguous() for part in right.split(BLOCK, dim=1)], dim=1)

    def rows(self, chosen: Tensor) -> Tensor:
        """(..., D): dense rows of F."""
        if not self.is_sparse:
            return self._forward[chosen]
        flat = self.source[chosen.reshape(-1).cpu().numpy()].toarray()
        dense = torch.from_numpy(flat).to(self._forward)
        return dense.reshape(*chosen.shape, self.shape[1])

    def squared_norms(self) -> Tensor:
        """(N,): the squared length of each row."""
        if not self.is_sparse:
            return self._forward.square().sum(-1)
        total = np.asarray(self.source.multiply(self.source).sum(axis=1)).ravel()
        return torch.from_numpy(total).to(self._forward)

    def largest_square(self) -> float:
        r"""A bound on the largest eigenvalue of F F^T: its trace, or :math:`\|F\|_1 \|F\|_\infty` where smaller."""
        if self.is_sparse:
            size = abs(self.source)
            sums = [float(np.max(np.asarray(size.sum(axis=axis)), initial=0.0)) for axis in (0, 1)]
        else:
            sums = [float(self._forward.abs().sum(axis).amax()) if self._forward.numel() else 0.0 for axis in (0, 1)]
        return min(sums[0] * sums[1], float(self.squared_norms().sum()))

    def to(self, dtype: torch.dtype, device: torch.device) -> Features:
        """The same features in another dtype or on another device; itself when nothing changes."""
        if dtype == self.dtype and device == self._forward.device:
            return self
        if not self.is_sparse:
            return Features(self._forward.to(dtype=dtype, device=device))
        converted = Features(self.source.astype(np.float32 if dtype == torch.float32 else np.float64))
        converted._forward, converted._backward = converted._forward.to(device), converted._backward.to(device)
        return converted

    def __deepcopy__(self, memo: dict[int, Any]) -> Features:
        return self  # immutable

    def __reduce__(self) -> tuple[Any, ...]:
        return Features, (self.source,)


def _csr(matrix: Any) -> Tensor:
    csr = sparse.csr_array(matrix)
    csr.sort_indices()
    starts, ends = (torch.from_numpy(part.astype(np.int64)) for part in (csr.indptr, csr.indices))
    return csr_tensor(starts, ends, torch.from_numpy(csr.data.copy()), tuple(csr.shape))


class StackedLinearOperator(LinearOperator):
    """Operators of the same batch shape next to one another, (..., N, D_A + D_B + ...), or below one another.

    :param parts: at least one.
    :param axis: -1 for [A, B, ...], -2 for its transpose.
    """

    def __init__(self, *parts: LinearOperator, axis: int = -1) -> None:
        super().__init__(*parts, axis=axis)
        self.parts, self.axis = parts, axis

    def _size(self) -> torch.Size:
        size = list(self.parts[0].shape)
        size[self.axis] = sum(part.shape[self.axis] for part in self.parts)
        return torch.Size(size)

    def _transpose_nonbatch(self) -> StackedLinearOperator:
        return StackedLinearOperator(*(part._transpose_nonbatch() for part in self.parts), axis=-3 - self.axis)

    def _matmul(self, rhs: Tensor) -> Tensor:
        along = -1 if rhs.dim() == 1 else -2
        if self.axis == -2:
            return torch.cat([part._matmul(rhs) for part in self.parts], dim=along)
        pieces = rhs.split([part.shape[-1] for part in self.parts], dim=along)
        products = [part._matmul(piece) for part, piece in zip(self.parts, pieces, strict=True)]
        return torch.stack(torch.broadcast_tensors(*products)).sum(0)

    def _expand_batch(self, batch_shape: Any) -> StackedLinearOperator:
        return StackedLinearOperator(*(part._expand_batch(batch_shape) for part in self.parts), axis=self.axis)

    def to_dense(self) -> Tensor:
        """(..., N, D)"""
        return torch.cat([part.to_dense() for part in self.parts], dim=self.axis)
