r"""A preconditioner for :math:`K_{TT} + D` from the leading eigenpairs of its Kronecker factors.

With :math:`K_M \approx U \Lambda U^T` and :math:`K_N \approx V \Omega V^T`, the k largest products
:math:`\lambda_i \omega_j` give :math:`K_{TT} \approx F F^T` with F (T, k) the observed entries of
:math:`\sqrt{\lambda_i \omega_j}\, u_i v_j^T`, and

.. math:: (F F^T + D)^{-1} = D^{-1} - D^{-1} F (I + F^T D^{-1} F)^{-1} F^T D^{-1}.

What is left out has norm at most :math:`\lambda_i \omega_j` of the first product dropped, so the
preconditioned condition number is at most one plus that over the smallest noise. F is never stored:
its products are small Kronecker products on the active grid.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import NotPositiveSemidefiniteError
from . import cost
from .pair_operator import Factor
from .pairs import PairIndex
from .spectra import eigenpairs

GRAM_SECONDS = 20.0  # at most this long for F^T D^-1 F
MAX_RANK = 4096  # columns of F
PAIR_BATCH = 8192  # observed pairs whose rows of F are formed at a time


def leading_eigenpairs(factor: Factor, name: str, limits: cost.Limits = cost.DEFAULT_LIMITS) -> tuple[Tensor, Tensor]:
    """Eigenvalues (R,), descending, and orthonormal vectors (N, R) of a square factor.

    Exact and complete (up to zeros) for sizes up to ``limits.eigenpairs``; beyond that the pairs of the best
    approximation in a random Krylov subspace, which is all that a preconditioner needs.
    """
    if factor.out_size <= limits.eigenpairs:
        return eigenpairs(factor.dense, name)
    lazily = not factor.dense_fits
    generator = torch.Generator().manual_seed(0)  # the same preconditioner every time
    start = torch.randn(factor.out_size, limits.sketch, generator=generator, dtype=torch.float64)
    basis = start.to(factor.dtype).to(factor.device)
    for _ in range(3):
        basis = torch.linalg.qr(factor.apply(basis, lazily)).Q
    small = basis.mT @ factor.apply(basis, lazily)
    values, vectors = eigenpairs((small + small.mT) / 2, name)
    return values, basis @ vectors


class WoodburyPreconditioner:
    """Applies :math:`(F F^T + D)^{-1}`.

    :param row_pairs: eigenvalues (R,) and vectors (M', R) of K_M on the active rows.
    :param col_pairs: eigenvalues (S,) and vectors (N', S) of K_N on the active columns.
    :param pairs: the T observed cells.
    :param noise: (T,) diagonal of D, positive.
    :param cutoff: products of eigenvalues below this times the noise are left out; they do not slow convergence.
    :param gram_entries: largest intermediate matrix on the way to F^T D^-1 F.
    """

    def __init__(
        self,
        row_pairs: tuple[Tensor, Tensor],
        col_pairs: tuple[Tensor, Tensor],
        pairs: PairIndex,
        noise: Tensor,
        *,
        cutoff: float = 0.1,
        gram_entries: int = 5 * 10**7,
    ) -> None:
        (row_values, row_vectors), (col_values, col_vectors) = row_pairs, col_pairs
        products = row_values.unsqueeze(1) * col_values  # (R, S)
        affordable = max(1, int((GRAM_SECONDS * cost.GEMM / len(pairs)) ** 0.5))
        values, order = products.flatten().topk(min(MAX_RANK, products.numel(), affordable))
        order = order[values > cutoff * noise.min()]
        self.i, self.j = order // len(col_values), order % len(col_values)  # (k,)
        used_rows, used_cols = int(self.i.max()) + 1 if len(order) else 1, int(self.j.max()) + 1 if len(order) else 1
        self.u = row_vectors[:, :used_rows] * row_values[:used_rows].sqrt()  # (M', R')
        self.v = col_vectors[:, :used_cols] * col_values[:used_cols].sqrt()  # (N', S')
        self.pairs, self.noise = pairs, noise.unsqueeze(1)
        self.rank = len(order)
        gram = self._gram(gram_entries)
        gram.diagonal().add_(1)
        self.chol, info = torch.linalg.cholesky_ex(gram)
        if info > 0:
            raise NotPositiveSemidefiniteError(
                f"the preconditioner I + F^T F / noise is not positive definite in {gram.dtype} (pivot {int(info)} of "
                f"{self.rank}); the smallest noise variance is {noise.min().item():.3g}: raise it, or use float64"
            )

    def _gram(self, entries: int) -> Tensor:
        r"""(k, k): F^T D^-1 F, by the cheaper of two ways.

        On the grid, with W the observed 1 / noise, entry ((i, j), (i', j')) is
        :math:`\sum_{mn} u_{mi} u_{mi'} W_{mn} v_{nj} v_{nj'}`: two products with the squares of U and V.
        """
        (height, r), (width, s) = self.u.shape, self.v.shape
        on_grid = height * s**2 * (width + r**2)
        largest = max(r**2 * s**2, height * r**2, (height + width) * s**2)  # of the matrices below
        if on_grid < len(self.pairs) * self.rank**2 and largest < entries:
            u_squares = (self.u.unsqueeze(2) * self.u.unsqueeze(1)).flatten(1)  # (M', r^2)
            v_squares = (self.v.unsqueeze(2) * self.v.unsqueeze(1)).flatten(1)  # (N', s^2)
            weight = self.pairs.scatter(1 / self.noise).squeeze(0)  # (M', N')
            gram = u_squares.mT @ (weight @ v_squares)  # (r^2, s^2)
            rows = self.i.unsqueeze(1) * r + self.i
            return gram[rows, self.j.unsqueeze(1) * s + self.j]
        gram = self.noise.new_zeros(self.rank, self.rank)
        for start in range(0, len(self.pairs), PAIR_BATCH):
            part = slice(start, start + PAIR_BATCH)
            rows = self.u[self.pairs.local_rows[part]][:, self.i] * self.v[self.pairs.local_cols[part]][:, self.j]
            rows /= self.noise[part].sqrt()
            gram.addmm_(rows.mT, rows)
        return gram

    def _down(self, dense: Tensor) -> Tensor:
        """(k, C): F^T times (T, C)."""
        grid = self.u.mT @ self.pairs.scatter(dense) @ self.v  # (C, R', S')
        return grid[:, self.i, self.j].mT

    def up(self, small: Tensor) -> Tensor:
        """(T, C): F times (k, C)."""
        grid = small.new_zeros(small.shape[1], self.u.shape[1], self.v.shape[1])
        grid[:, self.i, self.j] = small.mT
        return self.pairs.gather(self.u @ grid @ self.v.mT)

    def __call__(self, dense: Tensor) -> Tensor:
        """(T, C) to an approximation of (K_TT + D)^-1 times it."""
        scaled = dense / self.noise
        if self.rank == 0:
            return scaled
        inner = torch.cholesky_solve(self._down(scaled), self.chol)
        return scaled - self.up(inner) / self.noise
