"""LowRank: a matrix B of low rank, in dual coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..linalg.bounds import spectral_bounds
from ..linalg.cg import conjugate_gradients
from ..linalg.psd import eigenpairs
from .problem import MeanProblem


@dataclass(frozen=True)
class LowRank:
    r""":math:`B = G_M^T C \operatorname{diag}(s) D^T G_N` with :math:`C^T K_M C = D^T K_N D = I`.

    Then s are its singular values.

    :param left: C (M, R).
    :param right: D (N, R).
    :param values: s (R,), descending, positive.
    :param left_image: K_M C (M, R).
    :param right_image: K_N D (N, R).
    """

    left: Tensor
    right: Tensor
    values: Tensor
    left_image: Tensor
    right_image: Tensor

    @property
    def rank(self) -> int:
        """R"""
        return int(self.values.numel())

    @classmethod
    def zero(cls, problem: MeanProblem) -> LowRank:
        """B = 0."""
        m, n = problem.shape
        empty = [torch.zeros(size, 0, dtype=problem.dtype, device=problem.device) for size in (m, n, m, n)]
        return cls(empty[0], empty[1], torch.zeros(0, dtype=problem.dtype, device=problem.device), empty[2], empty[3])

    def psi(self, problem: MeanProblem) -> Tensor:
        """(T,): psi at the observed pairs."""
        if self.rank == 0:
            return torch.zeros(len(problem.pattern), dtype=problem.dtype, device=problem.device)
        return problem.pattern.sample(self.left_image * self.values, self.right_image)

    def moved_to(self, problem: MeanProblem) -> LowRank:
        """The same matrix in another problem's precision, its images computed anew."""
        left, right, values = (x.to(problem.dtype) for x in (self.left, self.right, self.values))
        return LowRank(left, right, values, problem.rows_times(left), problem.cols_times(right))

    def dual_times(self, dense: Tensor) -> Tensor:
        """(M, b): C diag(s) D^T times (N, b)."""
        return self.left @ (self.values.unsqueeze(1) * (self.right.mT @ dense))

    def dual_times_t(self, dense: Tensor) -> Tensor:
        """(N, b): D diag(s) C^T times (M, b)."""
        return self.right @ (self.values.unsqueeze(1) * (self.left.mT @ dense))


def from_images(problem: MeanProblem, left_image: Tensor, right_image: Tensor, values: Tensor) -> LowRank:
    """From G_M U (M, R) and G_N V (N, R) with orthonormal U and V: the dual vectors solve K C = image."""
    left = _solve_kernel(problem.row_op, left_image, "row kernel")
    right = _solve_kernel(problem.col_op, right_image, "column kernel")
    return LowRank(left, right, values, left_image, right_image)


def _solve_kernel(op: LinearOperator, image: Tensor, name: str) -> Tensor:
    """C with K C = image, for images in the range of K."""
    low, high = spectral_bounds(op)
    if low > 1e-3 * high:
        tolerance = 1e-12 if image.dtype == torch.float64 else 1e-6
        return conjugate_gradients(op._matmul, image, tolerance=tolerance).checked().value
    values, vectors = eigenpairs(op.to_dense(), name)
    return vectors @ ((vectors.mT @ image) / values.unsqueeze(1))


def inner(a: LowRank, b: LowRank) -> float:
    r""":math:`\langle A, B \rangle_F` of two matrices in dual coordinates."""
    if a.rank == 0 or b.rank == 0:
        return 0.0
    of_left = (a.left * a.values).mT @ (b.left_image * b.values)
    return float((of_left.double() * (a.right.mT @ b.right_image).double()).sum())


def orthonormal(dual: Tensor, image: Tensor, lead: int = 0) -> tuple[Tensor, Tensor]:
    r"""A basis Q of the span of W with :math:`Q^T K Q = I`, for W (n, b) with K W = ``image`` (n, b); and K Q.

    The first ``lead`` columns are taken first and lose nothing to the others, which are made orthogonal to
    them and dropped where nothing of them is left.
    """
    if lead in (0, dual.shape[1]):
        return _orthonormal_block(dual, image)
    first, first_image = _orthonormal_block(dual[:, :lead], image[:, :lead])
    rest, rest_image = orthonormal_beside(first, first_image, dual[:, lead:], image[:, lead:])
    return torch.cat([first, rest], dim=1), torch.cat([first_image, rest_image], dim=1)


def orthonormal_beside(first: Tensor, first_image: Tensor, rest: Tensor, rest_image: Tensor) -> tuple[Tensor, Tensor]:
    """What ``rest`` (n, b) adds to the orthonormal basis ``first`` (n, a): orthonormal vectors and their images."""
    for _ in range(2):  # what is left of a column holds rounding errors: take it to full length and repeat
        before = _lengths(rest, rest_image)
        share = first_image.mT @ rest
        rest, rest_image = rest - first @ share, rest_image - first_image @ share
        kept = _lengths(rest, rest_image) > torch.finfo(first.dtype).eps ** 0.5 * before
        rest, rest_image = _orthonormal_block(rest[:, kept], rest_image[:, kept])
    return rest, rest_image


def _lengths(dual: Tensor, image: Tensor) -> Tensor:
    return (dual * image).sum(0).clamp_min(0).sqrt()


def _orthonormal_block(dual: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
    """By the Gram matrix, formed after scaling the columns to equal length and factored in double precision."""
    if dual.shape[1] == 0:
        return dual, image
    gram = scaled_gram(dual, image)
    norms = gram.diagonal().clamp_min(0).sqrt()
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    unit = gram / norms.unsqueeze(1) / norms
    chol, info = torch.linalg.cholesky_ex(unit)
    if info == 0 and float(chol.diagonal().min()) > 0.1:
        turn = torch.linalg.solve_triangular(chol, torch.diag(1 / norms), upper=False).mT
    else:
        values, vectors = torch.linalg.eigh(unit)
        kept = values > 100 * len(norms) * torch.finfo(dual.dtype).eps * values[-1].clamp_min(0)
        turn = vectors[:, kept] / values[kept].sqrt() / norms.unsqueeze(1)
    turn = turn.to(dual.dtype)
    return dual @ turn, image @ turn


def scaled_gram(dual: Tensor, image: Tensor) -> Tensor:
    """(b, b) in double precision: W^T K W, accurate entry by entry relative to the lengths of the columns."""
    norms = (dual * image).sum(0).clamp_min(0).sqrt()
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    unit = ((dual / norms).mT @ (image / norms)).double()
    unit = (unit + unit.mT) / 2
    wide = norms.double()
    return unit * wide.unsqueeze(1) * wide
