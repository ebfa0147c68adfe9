"""Kronecker operators, row-major: entry (m N + n, m' N + n') is K_M[m, m'] K_N[n, n']."""

from __future__ import annotations

from typing import Any

import torch
from linear_operator import LinearOperator
from linear_operator.operators import KroneckerProductLinearOperator, SumLinearOperator
from torch import Tensor

from ..errors import InputError
from ..tensor_checks import check_float_tensor, check_operator, check_samples
from .pairs import SymmetricLinearOperator
from .spectra import root


class KroneckerLinearOperator(KroneckerProductLinearOperator):
    r""":math:`K_M \otimes K_N` that stays a Kronecker product under scaling.

    The stock operator turns into a generic one when multiplied by a number, clamps small eigenvalues in its log
    determinant, and samples by Lanczos on large grids; this one does not, and samples through roots of its factors.

    Example:
        >>> import torch
        >>> from mvgp.linalg import KroneckerLinearOperator
        >>> product = 2.0 * KroneckerLinearOperator(torch.eye(2), torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
        >>> type(product).__name__, product.shape
        ('KroneckerLinearOperator', torch.Size([4, 4]))

    """

    def __init__(self, *linear_ops: Tensor | LinearOperator) -> None:
        checked = [check_operator(op, f"linear_ops[{at}]") for at, op in enumerate(linear_ops)]
        for at, op in enumerate(checked):
            if op.dtype != checked[0].dtype:
                raise InputError(f"linear_ops[{at}]: expected {checked[0].dtype} as in the first, got {op.dtype}")
        super().__init__(*checked)

    def _mul_constant(self, other: Any) -> LinearOperator:
        first, *rest = self.linear_ops
        return KroneckerLinearOperator(first * other, *rest)

    def _transpose_nonbatch(self) -> KroneckerLinearOperator:
        return KroneckerLinearOperator(*[op.mT for op in self.linear_ops])

    def _logdet(self) -> Tensor:
        spectra = [torch.linalg.eigvalsh(op.to_dense()) for op in self.linear_ops]
        size = self.shape[-1]
        # ln |A (x) B| = n_B ln|A| + n_A ln|B|; a singular factor gives -inf, as it should
        return sum(s.clamp_min(0).log().sum(-1) * (size // s.shape[-1]) for s in spectra)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """(num_samples, M N) exact samples: G_M E G_N^T for a standard normal matrix E."""
        factor = root(self)
        count = check_samples(num_samples, factor.shape[-1])
        noise = torch.randn(factor.shape[-1], count, dtype=self.dtype, device=self.device)
        return factor._matmul(noise).mT


class SpectralKroneckerLinearOperator(SymmetricLinearOperator):
    r""":math:`(U \otimes V) \operatorname{diag}(\operatorname{vec} s) (U \otimes V)^T`: U (M, R), V (N, S), s (R, S).

    Any function of a Kronecker product of two covariances with known eigenpairs has this form.

    :param spectrum: (..., R, S).
    :param row_vectors: (M, R).
    :param col_vectors: (N, S).
    """

    def __init__(self, spectrum: Tensor, row_vectors: Tensor, col_vectors: Tensor) -> None:
        check_float_tensor(row_vectors, "row_vectors", (None, None), half=True)
        check_float_tensor(col_vectors, "col_vectors", (None, None), like=row_vectors, half=True)
        check_operator(spectrum, "spectrum")
        if tuple(spectrum.shape[-2:]) != (row_vectors.shape[1], col_vectors.shape[1]):
            shape = (row_vectors.shape[1], col_vectors.shape[1])
            raise InputError(f"spectrum: expected shape {shape} as in the vectors, got {tuple(spectrum.shape)}")
        super().__init__(spectrum, row_vectors=row_vectors, col_vectors=col_vectors)
        self.spectrum, self.row_vectors, self.col_vectors = spectrum, row_vectors, col_vectors

    def _size(self) -> torch.Size:
        count = self.row_vectors.shape[0] * self.col_vectors.shape[0]
        return torch.Size((*self.spectrum.shape[:-2], count, count))

    def _to_spectrum(self, dense: Tensor) -> Tensor:
        """(..., M N, C) to its coordinates (..., C, R, S)."""
        grid = dense.mT.unflatten(-1, (self.row_vectors.shape[0], self.col_vectors.shape[0]))
        return self.row_vectors.mT @ grid @ self.col_vectors

    def _times(self, rhs: Tensor) -> Tensor:
        inner = self.spectrum.unsqueeze(-3) * self._to_spectrum(rhs)  # (..., C, R, S)
        return (self.row_vectors @ inner @ self.col_vectors.mT).flatten(-2).mT

    def _diagonal(self) -> Tensor:
        return (self.row_vectors.square() @ self.spectrum @ self.col_vectors.square().mT).flatten(-2)

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> Tensor:
        width = self.col_vectors.shape[0]
        spectrum = self.spectrum[batch_indices] if batch_indices else self.spectrum
        rows = self.row_vectors[row_index // width] * self.row_vectors[col_index // width]  # (..., R)
        cols = self.col_vectors[row_index % width] * self.col_vectors[col_index % width]  # (..., S)
        return ((rows.unsqueeze(-2) @ spectrum).squeeze(-2) * cols).sum(-1)

    def _expand_batch(self, batch_shape: Any) -> SpectralKroneckerLinearOperator:
        spectrum = self.spectrum.expand(*batch_shape, *self.spectrum.shape[-2:])
        return SpectralKroneckerLinearOperator(spectrum, self.row_vectors, self.col_vectors)

    def _mul_constant(self, other: Any) -> LinearOperator:
        factor = torch.as_tensor(other, dtype=self.dtype, device=self.device)
        spectrum = self.spectrum * factor.unsqueeze(-1).unsqueeze(-1)
        return SpectralKroneckerLinearOperator(spectrum, self.row_vectors, self.col_vectors)

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """(num_samples, M N) exact samples; the spectrum must not be negative."""
        count = check_samples(num_samples, self.shape[-1])
        noise = torch.randn(count, *self.spectrum.shape[-2:], dtype=self.dtype, device=self.device)
        return (self.row_vectors @ (noise * self.spectrum.sqrt()) @ self.col_vectors.mT).flatten(-2)


class CovarianceSumLinearOperator(SumLinearOperator):
    """The covariance of a sum of independent terms, which samples each term by itself.

    The stock operator samples through a root of the whole, dense or by Lanczos; here the samples of the terms, which
    know their roots, are added up.
    """

    def zero_mean_mvn_samples(self, num_samples: int) -> Tensor:
        """(num_samples, ..., N): as exact as those of the terms."""
        samples: list[Tensor] = [term.zero_mean_mvn_samples(num_samples) for term in self.linear_ops]
        return torch.stack(samples).sum(0)
