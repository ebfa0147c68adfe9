"""What the structure of an operator gives: eigenpairs, bounds of its spectrum, a root, dense pieces, its cost."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from linear_operator import LinearOperator
from linear_operator.operators import (
    ConstantMulLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    InterpolatedLinearOperator,
    KroneckerProductLinearOperator,
    RootLinearOperator,
    SumLinearOperator,
    TriangularLinearOperator,
)
from torch import Tensor

from ..checks import check_instance, shown
from ..errors import InputError, NotPositiveSemidefiniteError, SizeError
from ..tensor_checks import check_float_tensor, check_positions
from . import chebyshev, cost
from .chebyshev import ChebyshevLinearOperator
from .pairs import SymmetricLinearOperator
from .stacked import GramLinearOperator, StackedLinearOperator

Operators = tuple[LinearOperator, LinearOperator]  # K_M (M, M) and K_N (N, N)
Terms = tuple[Operators, ...]  # of a sum of Kronecker terms


def as_terms(ops: Operators | Terms) -> Terms:
    """One pair (K_M, K_N) for each term, from such a tuple or from a single pair."""
    if isinstance(ops[0], LinearOperator):
        return (ops,)  # type: ignore[return-value]
    return ops


class SpectralLinearOperator(SymmetricLinearOperator):
    r""":math:`U \operatorname{diag}(s) U^T` with U (N, R) and s (..., R).

    One U serves every batch entry. Its diagonal and blocks are closed form, and scaling stays in the family.

    :param vectors: (N, R).
    :param spectrum: (..., R).

    Example:
        >>> import torch
        >>> from mvgp.linalg.spectra import SpectralLinearOperator
        >>> SpectralLinearOperator(torch.tensor([1.0, 3.0]), torch.eye(2)).to_dense()
        tensor([[1., 0.],
                [0., 3.]])

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

    def _times(self, rhs: Tensor) -> Tensor:
        return self.vectors @ (self.spectrum.unsqueeze(-1) * (self.vectors.mT @ rhs))

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
        for positions, name in ((rows, "rows"), (cols, "cols")):
            if not isinstance(positions, slice):
                check_positions(positions, size, name)
        return (self.vectors[rows] * self.spectrum.unsqueeze(-2)) @ self.vectors[cols].mT

    def root(self) -> LinearOperator:
        r"""The root :math:`U \operatorname{diag}(s)^{1/2}`, (..., N, R); the spectrum must not be negative."""
        return DenseLinearOperator(self.vectors * self.spectrum.sqrt().unsqueeze(-2))


def eigenpairs(matrix: Tensor, name: str, rounded: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Eigenvalues (R,), descending and positive, and eigenvectors (N, R) of a covariance (N, N).

    Eigenvalues that are zero up to rounding are left out; a negative one is an error. ``rounded`` is the matrix as it
    was before it was taken to double precision.
    """
    values, vectors = torch.linalg.eigh(matrix)
    largest = values[-1].clamp_min(0)
    if values[0] < -tolerance(matrix if rounded is None else rounded) * largest.clamp_min(
        torch.finfo(matrix.dtype).tiny
    ):
        raise NotPositiveSemidefiniteError(
            f"{name}: expected a positive semi-definite matrix, its smallest eigenvalue is {values[0].item():.6g}"
        )
    kept = values > torch.finfo(matrix.dtype).eps * largest
    return values[kept].flip(0), vectors[:, kept].flip(1)


def spectral_bounds(op: LinearOperator) -> tuple[float, float]:
    """(low, high): bounds of the eigenvalues of a covariance (N, N), and of every principal submatrix of it."""
    op = op.detach()
    if isinstance(op, ChebyshevLinearOperator):
        grid = torch.cos(torch.linspace(0, torch.pi, 513, dtype=op.dtype, device=op.device))
        values = chebyshev.evaluate(chebyshev.coefficients(op.values), grid)
        return max(float(values.min()), 0.0), float(values.max())
    if isinstance(op, SpectralLinearOperator):
        complete = op.vectors.shape[0] == op.vectors.shape[1]
        return (max(float(op.spectrum.min()), 0.0) if complete else 0.0), float(op.spectrum.max())
    if isinstance(op, GramLinearOperator) and not op.batch_shape:
        return 0.0, float(op.scale) * op.features.largest_square()
    if isinstance(op, DiagLinearOperator):
        diagonal = op.diagonal()
        return max(float(diagonal.min()), 0.0), float(diagonal.max())
    if isinstance(op, ConstantMulLinearOperator) and op.expanded_constant.numel() == 1:
        low, high = spectral_bounds(op.base_linear_op)
        factor = float(op.expanded_constant)
        return low * factor, high * factor
    if isinstance(op, SumLinearOperator):
        parts = [spectral_bounds(term) for term in op.linear_ops]
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    return 0.0, float(op.to_dense().abs().sum(-1).max())  # Gershgorin


def check_covariance(matrix: Tensor, name: str) -> None:
    """Raise unless ``matrix`` (..., N, N) is square, finite, symmetric and positive semi-definite."""
    if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise InputError(f"{name}: expected a square matrix, got shape {tuple(matrix.shape)}")
    bad = ~torch.isfinite(matrix)
    if bad.any():
        at = tuple(int(i) for i in bad.nonzero()[0])
        raise InputError(f"{name}{list(at)}: expected a finite number, got {matrix[at].item()}")
    scale = matrix.abs().amax()
    skew = (matrix - matrix.mT).abs()
    if skew.amax() > tolerance(matrix) * scale:
        at = tuple(int(i) for i in torch.unravel_index(skew.argmax(), skew.shape))
        pair = (matrix[at].item(), matrix.mT[at].item())
        raise InputError(f"{name}{list(at)}: expected a symmetric matrix, got {pair[0]} against {pair[1]}")
    # Cholesky of the matrix, lifted by what rounding may have taken, succeeds just when it is PSD.
    lift = float(tolerance(matrix) * scale) or torch.finfo(matrix.dtype).tiny
    lifted = matrix + lift * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    _, info = torch.linalg.cholesky_ex(lifted)
    if (info > 0).any():
        lowest = torch.linalg.eigvalsh(matrix)[..., 0].min().item()
        raise NotPositiveSemidefiniteError(
            f"{name}: expected a positive semi-definite matrix, its smallest eigenvalue is {lowest:.6g}; "
            f"if that is rounding in how it was computed, add {-2 * lowest:.3g} to its diagonal"
        )


def tolerance(matrix: Tensor) -> float:
    """How far below zero rounding alone can push an eigenvalue, relative to the largest."""
    return 10 * matrix.shape[-1] * torch.finfo(matrix.dtype).eps


def root(op: LinearOperator, *, max_size: int = 8192) -> LinearOperator:
    """G (N, D) with G G^T = ``op`` (N, N). D may be larger or smaller than N.

    A graph kernel gives the Chebyshev series of its square root; a sum gives the roots of its terms side by side; an
    operator without structure gives its eigenpairs, if it is small enough.

    :param op: (N, N), symmetric and positive semi-definite.
    :param max_size: largest N of an operator without structure, whose dense eigenpairs are computed.

    Example:
        >>> import torch
        >>> from linear_operator import to_linear_operator
        >>> from mvgp.linalg import root
        >>> half = root(to_linear_operator(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))).to_dense()
        >>> (half @ half.T).round(decimals=4).tolist()
        [[2.0, 1.0], [1.0, 2.0]]

    """
    check_instance(op, "op", LinearOperator, "a LinearOperator")
    if isinstance(op, ChebyshevLinearOperator | SpectralLinearOperator):
        return op.root()
    if isinstance(op, GramLinearOperator):
        return op.root(max_size**2)
    if isinstance(op, DiagLinearOperator):
        return op.sqrt()
    if isinstance(op, RootLinearOperator):
        return op.root
    if isinstance(op, ConstantMulLinearOperator) and op.expanded_constant.numel() == 1:
        return root(op.base_linear_op, max_size=max_size) * op.expanded_constant.sqrt().reshape(())
    if isinstance(op, KroneckerProductLinearOperator) and not isinstance(op, TriangularLinearOperator):
        return KroneckerProductLinearOperator(*[root(factor, max_size=max_size) for factor in op.linear_ops])
    if isinstance(op, SumLinearOperator):
        return StackedLinearOperator(*[root(term, max_size=max_size) for term in op.linear_ops])
    if op.shape[-1] > max_size:
        raise SizeError(
            f"the root of a {type(op).__name__} of size {op.shape[-1]} needs dense eigenpairs, which are computed up "
            f"to size {max_size}; use a graph kernel, a low-rank kernel, or fewer inputs"
        )
    dense = op.to_dense()
    values, vectors = eigenpairs(dense.detach(), "kernel matrix")
    if torch.is_grad_enabled() and dense.requires_grad:  # eigenvectors have no derivative where eigenvalues meet
        return DenseLinearOperator(_SymmetricRoot.apply(dense, values, vectors))
    return DenseLinearOperator(vectors * values.sqrt())


class _SymmetricRoot(torch.autograd.Function):
    r"""The symmetric root :math:`G = K^{1/2}` of K (N, N) from its eigenpairs, those of zero left out.

    From :math:`dG\, G + G\, dG = dK`: in the eigenvectors entry (i, j) of dK is divided by
    :math:`\lambda_i^{1/2} + \lambda_j^{1/2}`. Where both are zero nothing is assumed to change.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
        ctx.save_for_backward(values.sqrt(), vectors)
        return (vectors * values.sqrt()) @ vectors.mT

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        halves, vectors = ctx.saved_tensors
        both = (upstream[0] + upstream[0].mT) / 2
        seen = vectors.mT @ both  # (R, N)
        inner = (seen @ vectors) / (halves.unsqueeze(1) + halves)  # (R, R)
        mixed = (seen - (seen @ vectors) @ vectors.mT) / halves.unsqueeze(1)  # (R, N): one eigenvalue of the two zero
        half = vectors @ mixed
        return vectors @ inner @ vectors.mT + half + half.mT, None, None


def columns(op: LinearOperator, which: Tensor) -> Tensor:
    """(R, Q): the columns ``which`` (Q,) of an operator (R, C)."""
    if isinstance(op, DenseLinearOperator):
        return op.tensor[:, which]
    if isinstance(op, SpectralLinearOperator):
        return op.block(slice(None), which)
    picked = torch.zeros(op.shape[-1], len(which), dtype=op.dtype, device=op.device).scatter_(
        0, which.unsqueeze(0), 1.0
    )
    return op._matmul(picked)


def block(op: LinearOperator, rows: Tensor, cols: Tensor) -> Tensor:
    """(Q, P): the entries of an operator at ``rows`` (Q,) x ``cols`` (P,)."""
    if isinstance(op, SpectralLinearOperator):
        return op.block(rows, cols)
    if len(rows) < len(cols) and not isinstance(op, DenseLinearOperator):
        return columns(op.mT, rows).mT[:, cols]
    return columns(op, cols)[rows]


def diagonal_at(op: LinearOperator, which: Tensor) -> Tensor:
    """(Q,): the diagonal entries of a square operator at ``which`` (Q,); repeats are computed once."""
    distinct, back = torch.unique(which, return_inverse=True)
    return op._get_indices(distinct, distinct)[back]


def product_seconds(op: LinearOperator, columns: int) -> float:
    """Time of one product of ``op`` with a dense matrix of so many columns."""
    rows, cols = op.shape[-2:]
    if isinstance(op, ChebyshevLinearOperator):
        passes = op.degree * (op.matrix.nnz / cost.SPARSE + 2 * rows / cost.MOVE / 8)
        return passes * columns + cost.CALL
    if isinstance(op, SpectralLinearOperator):
        return 2 * rows * op.vectors.shape[-1] * columns / cost.GEMM + cost.CALL
    if isinstance(op, DiagLinearOperator):
        return rows * columns / cost.MOVE + cost.CALL
    if isinstance(op, SumLinearOperator):
        return sum(product_seconds(term, columns) for term in op.linear_ops)
    if isinstance(op, ConstantMulLinearOperator):
        return product_seconds(op.base_linear_op, columns)
    if isinstance(op, InterpolatedLinearOperator):
        return product_seconds(op.base_linear_op, columns) + 2 * (rows + cols) * columns / cost.MOVE
    return rows * cols * columns / (cost.GEMM if columns > 8 else cost.GEMV) + cost.CALL


class Factor:
    """The block of ``op`` (R, C) at ``out`` (A,) x ``into`` (B,), applied densely or lazily."""

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
        self.op, self._rows, self._cols = op, out, into

    @cached_property
    def dense(self) -> Tensor:
        """(A, B), kept once computed."""
        if self._out is None and self._into is None:
            return self.op.to_dense()
        return block(self.op, self._rows, self._cols)

    @cached_property
    def dense_t(self) -> Tensor:
        """(B, A): its transpose, row-major; the block itself when that is symmetric."""
        return self.dense if self._symmetric and not self.dense.requires_grad else self.dense.mT.contiguous()

    @property
    def dense_fits(self) -> bool:
        """Whether the dense block stays within the memory meant for one operator."""
        return self.out_size * self.into_size * self.op.dtype.itemsize <= cost.MEMORY

    @property
    def setup_seconds(self) -> float:
        """Estimated time to compute the dense block."""
        if "dense" in self.__dict__:
            return 0.0
        if isinstance(self.op, DenseLinearOperator):
            return self.out_size * self.into_size / cost.MOVE
        return product_seconds(self.op, min(self.out_size, self.into_size))

    def dense_seconds(self, columns: int) -> float:
        """Estimated time of a product by the dense block, its set-up spread over many products."""
        if not self.dense_fits:
            return float("inf")
        rate = cost.GEMM if columns > 8 else cost.GEMV
        return self.out_size * self.into_size * columns / rate + self.setup_seconds / cost.REUSE

    def lazy_seconds(self, columns: int) -> float:
        """Estimated time of a product by the operator itself."""
        if isinstance(self.op, DenseLinearOperator):
            return float("inf")
        return product_seconds(self.op, columns)

    def apply(self, rhs: Tensor, lazily: bool) -> Tensor:
        """(A, C): the block times ``rhs`` (B, C)."""
        if not lazily:
            return self.dense @ rhs
        if self._into is not None:
            padded = rhs.new_zeros(self.op.shape[-1], rhs.shape[1])
            padded[self._into] = rhs
            rhs = padded
        out = self.op._matmul(rhs)
        return out if self._out is None else out[self._out]
