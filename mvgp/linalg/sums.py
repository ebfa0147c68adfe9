r"""Sums of Kronecker terms, :math:`\sum_q K_{Mq} \otimes K_{Nq}`: operators, bounds, and eigenvectors they may share.

Covariances of one axis share their eigenvectors when all of them are functions of one matrix: kernels of one graph, the
identity, multiples of one dense kernel, sums of those. If that holds on both axes, the sum is diagonal in the Kronecker
product of the eigenvectors, with eigenvalues :math:`\sum_q \lambda_{qi} \omega_{qj}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from linear_operator import LinearOperator
from linear_operator.operators import (
    ConstantMulLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    SumLinearOperator,
)
from torch import Tensor

from ..errors import InputError
from . import chebyshev
from .chebyshev import ChebyshevLinearOperator
from .kronecker import CovarianceSumLinearOperator, KroneckerLinearOperator
from .pair_operator import PairLinearOperator, Terms
from .pairs import PairIndex, SymmetricCSR
from .spectra import SpectralLinearOperator, spectral_bounds
from .stacked import GramLinearOperator


def pair_covariance(terms: Terms, left: PairIndex, right: PairIndex | None = None) -> LinearOperator:
    """(Q, T): the covariance between two lists of cells, lazy; a sum for several terms.

    :param terms: K_M and K_N of each term.
    """
    parts = [PairLinearOperator(row, col, left, right) for row, col in terms]
    return parts[0] if len(parts) == 1 else CovarianceSumLinearOperator(*parts)


def grid_covariance(terms: Terms) -> LinearOperator:
    """(M N, M N): the covariance of all cells, row by row, lazy."""
    parts = [KroneckerLinearOperator(row, col) for row, col in terms]
    return parts[0] if len(parts) == 1 else CovarianceSumLinearOperator(*parts)


def is_pair_covariance(covariance: Any) -> bool:
    """Whether it is the covariance of a list of cells, under one term or several."""
    parts = covariance.linear_ops if isinstance(covariance, SumLinearOperator) else (covariance,)
    return all(isinstance(part, PairLinearOperator) for part in parts)


def pair_terms(covariance: Any) -> tuple[PairLinearOperator, ...]:
    """The terms of the covariance of a list of cells, all on the same cells; an error for anything else."""
    if not is_pair_covariance(covariance):
        raise InputError(
            f"covariance: expected a PairLinearOperator or a sum of those, got {type(covariance).__name__}"
        )
    return tuple(covariance.linear_ops) if isinstance(covariance, SumLinearOperator) else (covariance,)


def operators(covariance: LinearOperator) -> Terms:
    """K_M and K_N of each term of the covariance of a list of cells."""
    return tuple((part.row_op, part.col_op) for part in pair_terms(covariance))


def product_seconds(covariance: LinearOperator) -> float:
    """Estimated time of one product with the covariance of a list of cells."""
    return sum(part.product.plan.seconds for part in pair_terms(covariance))


def sum_bounds(terms: Terms) -> tuple[float, float]:
    """(low, high): bounds of the eigenvalues of the sum, and of every principal submatrix of it."""
    bounds = [(spectral_bounds(row), spectral_bounds(col)) for row, col in terms]
    return sum(row[0] * col[0] for row, col in bounds), sum(row[1] * col[1] for row, col in bounds)


# Eigenvectors in common --------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedBasis:
    """Eigenvectors that covariances of one axis have in common.

    :param vectors: (N, N), all of them.
    :param values: (N,) eigenvalues of each covariance.
    """

    vectors: Tensor
    values: tuple[Tensor, ...]


def shared_basis(ops: Sequence[LinearOperator], most: int) -> SharedBasis | None:
    """The eigenvectors of covariances (N, N) that are functions of one matrix; None if they are not known to be.

    The eigenvalues carry the gradients of the covariances, with the eigenvectors as constants; rounding may leave them
    just below 0.

    :param most: N up to which they are computed.
    """
    source = shared_source(ops)
    if source is None or ops[0].shape[-1] > most:
        return None
    vectors = source.eigenvectors(ops[0])
    return SharedBasis(vectors, tuple(_eigenvalues(op, vectors) for op in ops))


@dataclass(frozen=True)
class Source:
    """What covariances are functions of.

    :param kind: "vectors" of a spectral operator, a sparse "matrix", a "dense" covariance, "features", any "operator",
        or "identity".
    :param value: that.
    """

    kind: str
    value: Any = None

    def equals(self, other: Source) -> bool:
        """Whether it is the same, or has the same entries."""
        if self.kind != other.kind:
            return False
        if self.value is other.value:
            return True
        if isinstance(self.value, Tensor):
            same_shape = self.value.shape == other.value.shape and self.value.dtype == other.value.dtype
            return same_shape and torch.equal(self.value, other.value)
        if isinstance(self.value, SymmetricCSR):
            pairs = ((getattr(self.value, name), getattr(other.value, name)) for name in ("crow", "col", "values"))
            return all(a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)
        return False

    @torch.no_grad()
    def eigenvectors(self, like: LinearOperator) -> Tensor:
        """(N, N): orthonormal; those of a sparse matrix are kept with it."""
        size = like.shape[-1]
        if self.kind == "identity":
            return torch.eye(size, dtype=like.dtype, device=like.device)
        if self.kind == "vectors":
            own: Tensor = self.value.detach()
            if own.shape[1] == size:
                return own
            return torch.cat([own, torch.linalg.qr(own, mode="complete").Q[:, own.shape[1] :]], dim=1)
        if self.kind == "matrix":
            memory = self.value.memory
            if "eigenvectors" not in memory:
                memory["eigenvectors"] = torch.linalg.eigh(self.value.tensor.to_dense()).eigenvectors
            return memory["eigenvectors"]
        if self.kind == "features":
            eye = torch.eye(size, dtype=like.dtype, device=like.device)
            return torch.linalg.eigh(self.value.times(self.value.transposed_times(eye))).eigenvectors
        dense = self.value if self.kind == "dense" else self.value.to_dense()
        return torch.linalg.eigh(dense.detach()).eigenvectors


def shared_source(ops: Sequence[LinearOperator]) -> Source | None:
    """The one matrix that all covariances are functions of; None if there is none known."""
    found = [source for op in ops for source in _sources(op)]
    if not found:
        return Source("identity")
    return found[0] if all(source.equals(found[0]) for source in found[1:]) else None


def _sources(op: LinearOperator) -> list[Source]:
    """What an operator is a function of; nothing for a multiple of the identity."""
    if isinstance(op, SpectralLinearOperator):
        return [Source("vectors", op.vectors)]
    if isinstance(op, ChebyshevLinearOperator):
        return [Source("matrix", op.matrix)]
    if isinstance(op, GramLinearOperator):
        return [Source("features", op.features)]
    if isinstance(op, DiagLinearOperator):
        diagonal = op._diagonal().detach()
        return [] if bool((diagonal == diagonal[0]).all()) else [Source("operator", op)]
    if isinstance(op, ConstantMulLinearOperator) and op.expanded_constant.numel() == 1:
        return _sources(op.base_linear_op)
    if isinstance(op, SumLinearOperator):
        return [source for part in op.linear_ops for source in _sources(part)]
    if isinstance(op, DenseLinearOperator):
        return [Source("dense", op.tensor)]
    return [Source("operator", op)]


def _eigenvalues(op: LinearOperator, vectors: Tensor) -> Tensor:
    """(N,): of a covariance whose eigenvectors are ``vectors`` (N, N); differentiable."""
    if isinstance(op, SpectralLinearOperator):
        return torch.nn.functional.pad(op.spectrum, (0, vectors.shape[1] - op.spectrum.shape[-1]))
    if isinstance(op, ChebyshevLinearOperator):
        at = (vectors * (op.matrix @ vectors)).sum(0).clamp(-1, 1)  # (N,) eigenvalues of the sparse matrix
        return chebyshev.evaluate(chebyshev.coefficients(op.values), at)
    if isinstance(op, ConstantMulLinearOperator) and op.expanded_constant.numel() == 1:
        return op.expanded_constant.reshape(()) * _eigenvalues(op.base_linear_op, vectors)
    if isinstance(op, SumLinearOperator):
        return torch.stack([_eigenvalues(part, vectors) for part in op.linear_ops]).sum(0)
    if isinstance(op, DiagLinearOperator):
        return op._diagonal()
    return (vectors * (op @ vectors)).sum(0)


@dataclass(frozen=True)
class SharedGrid:
    """A sum of Kronecker terms that is diagonal in known eigenvectors.

    :param rows: of the rows' covariances.
    :param cols: of the columns' covariances.
    """

    rows: SharedBasis
    cols: SharedBasis

    def eigenvalues(self) -> Tensor:
        """(M, N): of the sum; differentiable."""
        return torch.stack(self.rows.values).mT @ torch.stack(self.cols.values)


def shared_grid(terms: Terms, most: int) -> SharedGrid | None:
    """The eigenvectors of a sum of terms; None if the terms are not known to share them on both axes.

    :param most: rows and columns up to which they are computed.
    """
    if shared_source([row for row, _ in terms]) is None or shared_source([col for _, col in terms]) is None:
        return None
    rows, cols = shared_basis([row for row, _ in terms], most), shared_basis([col for _, col in terms], most)
    return None if rows is None or cols is None else SharedGrid(rows, cols)
