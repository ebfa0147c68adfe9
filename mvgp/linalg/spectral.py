"""SpectralLinearOperator: a symmetric matrix given by its eigenpairs, or by some rows of them."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from ..checks import check_float_tensor, shown
from ..errors import InputError
from .checks import check_positions


class SpectralLinearOperator(LinearOperator):
    r""":math:`U \operatorname{diag}(s) U^T` with U (N, R) and s (..., R).

    One U serves every batch entry. Its diagonal and blocks are closed form, and scaling stays in the
    family, so that no structure is lost.

    :param vectors: (N, R).
    :param spectrum: (..., R).
    """

    def __init__(self, spectrum: Tensor, vectors: Tensor) -> None:
        check_float_tensor(vectors, "vectors", (None, None), half=True)
        if not isinstance(spectrum, Tensor) or spectrum.dim() == 0 or spectrum.shape[-1] != vectors.shape[1]:
            raise InputError(f"spectrum: expected a tensor (..., {vectors.shape[1]}), got {shown(spectrum)}")
        check_float_tensor(spectrum, "spectrum", (None,) * spectrum.dim(), like=vectors, half=True)
        super().__init__(spectrum, vectors=vectors)
        self.spectrum, self.vectors = spectrum, vectors

    def _size(self) -> torch.Size:
        count = self.vectors.shape[0]
        return torch.Size((*self.spectrum.shape[:-1], count, count))

    def _transpose_nonbatch(self) -> SpectralLinearOperator:
        return self

    def _matmul(self, rhs: Tensor) -> Tensor:
        is_vector = rhs.dim() == 1
        rhs = rhs.unsqueeze(-1) if is_vector else rhs
        out = self.vectors @ (self.spectrum.unsqueeze(-1) * (self.vectors.mT @ rhs))
        return out.squeeze(-1) if is_vector else out

    def _diagonal(self) -> Tensor:
        return self.spectrum @ self.vectors.square().mT

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        spectrum = self.spectrum[batch_indices] if batch_indices else self.spectrum
        return (self.vectors[row_index] * spectrum * self.vectors[col_index]).sum(-1)

    def _expand_batch(self, batch_shape: Any) -> SpectralLinearOperator:
        return SpectralLinearOperator(self.spectrum.expand(*batch_shape, self.spectrum.shape[-1]), self.vectors)

    def _mul_constant(self, other: Any) -> LinearOperator:
        factor = torch.as_tensor(other, dtype=self.dtype, device=self.device)
        return SpectralLinearOperator(self.spectrum * factor.unsqueeze(-1), self.vectors)

    def block(self, rows: Tensor | slice, cols: Tensor | slice) -> Tensor:
        """(..., Q, P): the dense entries at ``rows`` x ``cols``."""
        size = self.vectors.shape[0]
        for given, name in ((rows, "rows"), (cols, "cols")):
            if not isinstance(given, slice):
                check_positions(given, size, name)
        return (self.vectors[rows] * self.spectrum.unsqueeze(-2)) @ self.vectors[cols].mT

    def root(self) -> LinearOperator:
        r"""The root :math:`U \operatorname{diag}(s)^{1/2}`, (..., N, R); the spectrum must not be negative."""
        return DenseLinearOperator(self.vectors * self.spectrum.sqrt().unsqueeze(-2))
