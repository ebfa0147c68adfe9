r"""Sums of Kronecker terms, :math:`\sum_q K_{Mq} \otimes K_{Nq}`: operators, bounds, and eigenvectors they may share.

Covariances of one axis share their eigenvectors when all of them are functions of one matrix: kernels of one graph, the
identity, multiples of one dense kernel, sums of those. If that holds on both axes, the sum is diagonal in the Kronecker
product of the eigenvectors, with eigenvalues :math:`\sum_q \lambda_{qi} \omega_{qj}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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

from ..errors import InputError, NotPositiveSemidefiniteError
from . import chebyshev, cost
from .chebyshev import ChebyshevLinearOperator
from .pair_operator import CovarianceSumLinearOperator, KroneckerLinearOperator, PairLinearOperator
from .pairs import PairIndex, SymmetricCSR
from .solvers import (
    GRAM_SECONDS,
    MAX_RANK,
    PAIR_BATCH,
    PLAIN_CONDITION,
    ROUNDED,
    CholeskySolver,
    ConjugateGradientSolver,
    Eigenpairs,
    Method,
    Solver,
    SpectralSolver,
    compressed,
    factor_eigenpairs,
    make_solver,
)
from .spectra import SpectralLinearOperator, Terms, spectral_bounds
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


# Solvers ----------------------------------------------------------------------------------------


def make_sum_solver(
    terms: Terms,
    pairs: PairIndex,
    noise: Tensor,
    *,
    method: Method = "auto",
    max_iterations: int = 1000,
    limits: cost.Limits = cost.DEFAULT_LIMITS,
) -> Solver:
    r"""The solver of :math:`K_{TT} + D` that fits its size and structure.

    :param terms: K_M (M, M) and K_N (N, N) of each term.
    :param pairs: the T observed cells, all distinct.
    :param noise: () equal noise, or (T,) the diagonal of D; positive.
    :param limits: up to which sizes direct methods are used.
    """
    if len(terms) == 1:
        return make_solver(*terms[0], pairs, noise, method=method, max_iterations=max_iterations, limits=limits)
    covariance, each = pair_covariance(terms, pairs), noise.expand(len(pairs))
    complete = noise.dim() == 0 and len(pairs) == pairs.shape[0] * pairs.shape[1]
    if method == "spectral" and not complete:
        raise InputError("method='spectral' needs every cell observed, with equal weights")
    grid = shared_grid(terms, limits.eigenpairs) if complete and method in ("auto", "spectral") else None
    if grid is not None:
        return SumSpectralSolver(covariance, grid, noise)
    if method == "spectral":
        raise InputError(
            "method='spectral' needs terms that share their eigenvectors on both axes (kernels of one graph, say), and "
            f"at most {limits.eigenpairs} rows and columns, got {pairs.shape}"
        )
    if method == "cholesky" or (method == "auto" and len(pairs) <= limits.cholesky):
        return CholeskySolver(covariance, each)
    low, high = sum_bounds(terms)
    if (high + float(each.max())) / (low + float(each.min())) <= PLAIN_CONDITION:
        return ConjugateGradientSolver(covariance, each, None, max_iterations)
    factors = [factor_eigenpairs(part, limits) for part in pair_terms(covariance)]
    preconditioner = StackedPreconditioner(factors, covariance.diagonal(), pairs, each)
    parts = [compressed(part, *both, limits) for part, both in zip(pair_terms(covariance), factors, strict=True)]
    return ConjugateGradientSolver(type(covariance)(*parts), each, preconditioner, max_iterations)


class SumSpectralSolver(SpectralSolver):
    r"""The closed form on a complete grid with equal noise, for terms that share their eigenvectors.

    :param covariance: K over all cells, row by row, as a sum over terms.
    :param grid: the eigenvectors (M, M) and (N, N), and the eigenvalues of each term.
    :param noise: ().
    """

    def __init__(self, covariance: LinearOperator, grid: SharedGrid, noise: Tensor) -> None:
        self.op, self.noise, self.pairs = covariance, noise, pair_terms(covariance)[0].left
        self.row_vectors, self.col_vectors = grid.rows.vectors, grid.cols.vectors
        self.products = grid.eigenvalues().detach().clamp_min(0)  # (M, N)

    @cached_property
    def _double(self) -> SumSpectralSolver:
        """The same in double precision; the eigenvectors are made orthonormal there."""
        wide = [(part.row_op.to(torch.float64), part.col_op.to(torch.float64)) for part in pair_terms(self.op)]
        grid = shared_grid(tuple(wide), max(self.pairs.shape))
        assert grid is not None  # as in single precision
        return SumSpectralSolver(pair_covariance(tuple(wide), self.pairs), grid, self.noise.double())


class StackedPreconditioner:
    r"""A preconditioner for the sum from the leading eigenpairs of all terms.

    With the largest products of eigenvalues of all terms, :math:`K_{TT} \approx F F^T + R`, where F (T, k) has the
    observed entries of :math:`\sqrt{\lambda_{qi} \omega_{qj}}\, u_{qi} v_{qj}^T` for the chosen (q, i, j) side by
    side, and the rest counts by its diagonal R. Then Woodbury's identity inverts :math:`F F^T + R + D`. The terms'
    eigenvectors need not be orthogonal to one another. Directions are taken until the next one is no larger than the
    rest is on average (a kernel with a shift has such a rest), or than half the noise.

    :param factors: eigenpairs of both kernels of each term, on the active rows and columns.
    :param diagonal: (T,) of K_TT.
    :param pairs: the T observed cells.
    :param noise: (T,) diagonal of D, positive.
    :param cutoff: products of eigenvalues below this times the noise are left out.
    :param rest_cutoff: products below this times the mean diagonal of the rest are left out.
    """

    def __init__(
        self,
        factors: Sequence[tuple[Eigenpairs, Eigenpairs]],
        diagonal: Tensor,
        pairs: PairIndex,
        noise: Tensor,
        *,
        cutoff: float = 0.5,
        rest_cutoff: float = 1.5,
    ) -> None:
        self.pairs = pairs
        products = [row[0].unsqueeze(1) * col[0] for row, col in factors]  # (R_q, S_q)
        offsets = torch.tensor([0, *(part.numel() for part in products)]).cumsum(0).tolist()
        affordable = max(1, int((GRAM_SECONDS * cost.GEMM / len(pairs)) ** 0.5))
        values, order = torch.cat([part.flatten() for part in products]).topk(min(MAX_RANK, offsets[-1], affordable))
        cells = pairs.active_shape[0] * pairs.active_shape[1]
        before = torch.cat([values.new_zeros(1), values.cumsum(0)[:-1]])
        rest = (float(diagonal.mean()) - before / cells).clamp_min(0)  # mean diagonal without the directions before
        useful = (values > cutoff * noise.min()) & (values > rest_cutoff * rest)
        order = order[: int(useful.long().cumprod(0).sum())]
        self._blocks: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []  # U (M', R'), V (N', S'), i (k_q,), j (k_q,)
        known = torch.zeros_like(diagonal)
        for q, ((row_values, row_vectors), (col_values, col_vectors)) in enumerate(factors):
            own = order[(order >= offsets[q]) & (order < offsets[q + 1])] - offsets[q]
            if len(own) == 0:
                continue
            i, j = own // len(col_values), own % len(col_values)
            used = int(i.max()) + 1, int(j.max()) + 1
            u = row_vectors[:, : used[0]] * row_values[: used[0]].sqrt()
            v = col_vectors[:, : used[1]] * col_values[: used[1]].sqrt()
            chosen = u.new_zeros(used).index_put_((i, j), u.new_ones(()))
            known += pairs.gather((u.square() @ chosen @ v.square().mT).unsqueeze(0)).squeeze(1)
            self._blocks.append((u, v, i, j))
        self.rank = sum(len(i) for _, _, i, _ in self._blocks)
        least = ROUNDED * torch.finfo(noise.dtype).eps * values[0]  # as in WoodburyPreconditioner
        self.noise = (noise + (diagonal - known).clamp_min(0)).clamp_min(least).unsqueeze(1)  # (T, 1): R + D
        gram = self._gram()
        gram.diagonal().add_(1)
        self.chol, info = torch.linalg.cholesky_ex(gram)
        if info > 0:
            raise NotPositiveSemidefiniteError(
                f"the preconditioner I + F^T F / noise is not positive definite in {gram.dtype} (pivot {int(info)} of "
                f"{self.rank}); the smallest noise variance is {noise.min().item():.3g}: raise it, or use float64"
            )

    def _gram(self) -> Tensor:
        """(k, k): F^T (R + D)^-1 F."""
        gram = self.noise.new_zeros(self.rank, self.rank)
        for start in range(0, len(self.pairs) if self.rank else 0, PAIR_BATCH):
            part = slice(start, start + PAIR_BATCH)
            rows, cols = self.pairs.local_rows[part], self.pairs.local_cols[part]
            stacked = torch.cat([u[rows][:, i] * v[cols][:, j] for u, v, i, j in self._blocks], dim=1)
            stacked /= self.noise[part].sqrt()
            gram.addmm_(stacked.mT, stacked)
        return gram

    def _down(self, dense: Tensor) -> Tensor:
        """(k, C): F^T times (T, C)."""
        grid = self.pairs.scatter(dense)  # (C, M', N')
        return torch.cat([(u.mT @ grid @ v)[:, i, j] for u, v, i, j in self._blocks], dim=1).mT

    def up(self, small: Tensor) -> Tensor:
        """(T, C): F times (k, C)."""
        out, start = small.new_zeros(len(self.pairs), small.shape[1]), 0
        for u, v, i, j in self._blocks:
            inner = small.new_zeros(small.shape[1], u.shape[1], v.shape[1])
            inner[:, i, j] = small[start : start + len(i)].mT
            out += self.pairs.gather(u @ inner @ v.mT)
            start += len(i)
        return out

    def __call__(self, dense: Tensor) -> Tensor:
        """(T, C) to an approximation of (K_TT + D)^-1 times it."""
        scaled = dense / self.noise
        if self.rank == 0:
            return scaled
        return scaled - self.up(torch.cholesky_solve(self._down(scaled), self.chol)) / self.noise
