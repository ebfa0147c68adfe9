"""The problem that the solvers of the mean share, low-rank matrices in dual coordinates, and what a solver requires."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import check_instance, check_tolerance, check_whole_number, shown
from ..errors import InputError
from ..likelihoods.losses import Loss, SinglePrecisionLoss
from ..linalg.conjugate_gradients import conjugate_gradients
from ..linalg.pair_operator import Factor
from ..linalg.pairs import BLOCK, CompleteRows, Pattern, RowBlock
from ..linalg.spectra import eigenpairs, spectral_bounds
from ..tensor_checks import check_float_tensor, check_operator


class MeanProblem:
    r"""minimise :math:`f(\psi_T) + h(B)` over B, with :math:`\psi = G_M B G_N^T`.

    Solvers keep B in *dual coordinates*, :math:`B = G_M^T A G_N`: then :math:`\psi = K_M A K_N`, the gradient of
    the loss in B has the dual coordinates :math:`\Theta` (the sparse matrix of theta), and no root is needed.

    :param row_op: K_M (M, M).
    :param col_op: K_N (N, N).
    :param pattern: where the T observed pairs are.
    :param loss: f.
    """

    def __init__(
        self, row_op: LinearOperator, col_op: LinearOperator, pattern: Pattern | CompleteRows, loss: Loss
    ) -> None:
        check_instance(row_op, "row_op", LinearOperator, "a LinearOperator")
        check_instance(col_op, "col_op", LinearOperator, "a LinearOperator")
        check_instance(pattern, "pattern", (Pattern, CompleteRows), "a Pattern or CompleteRows")
        for op, name, size in ((row_op, "row_op", pattern.shape[0]), (col_op, "col_op", pattern.shape[1])):
            if tuple(check_operator(op, name).shape) != (size, size):
                raise InputError(f"{name}: expected shape {(size, size)} as in the pattern, got {tuple(op.shape)}")
        if isinstance(loss, type) or not callable(loss):
            raise InputError(f"loss: expected a Loss, a function of psi, got {shown(loss)}")
        self.row_op, self.col_op, self.pattern, self.loss = row_op, col_op, pattern, loss
        self.dtype: torch.dtype = row_op.dtype
        self.device: torch.device = row_op.device
        everything = [torch.arange(size, device=self.device) for size in pattern.shape]
        self._rows = Factor(row_op, everything[0], everything[0])
        self._cols = Factor(col_op, everything[1], everything[1])
        self._lazy_rows = self._rows.lazy_seconds(BLOCK) < self._rows.dense_seconds(BLOCK)
        self._lazy_cols = self._cols.lazy_seconds(BLOCK) < self._cols.dense_seconds(BLOCK)

    def rows_times(self, dense: Tensor) -> Tensor:
        """(M, b): K_M times (M, b), densely or lazily, whichever is cheaper."""
        check_float_tensor(dense, "dense", (self.shape[0], None))
        return self._rows.apply(dense, self._lazy_rows)

    def cols_times(self, dense: Tensor) -> Tensor:
        """(N, b): K_N times (N, b)."""
        check_float_tensor(dense, "dense", (self.shape[1], None))
        return self._cols.apply(dense, self._lazy_cols)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.pattern.shape

    def lipschitz(self) -> float:
        """A bound on the Lipschitz constant of the gradient in B."""
        high_rows, high_cols = spectral_bounds(self.row_op)[1], spectral_bounds(self.col_op)[1]
        return high_rows * high_cols * self.loss.curvature

    @cached_property
    def single(self) -> MeanProblem:
        """The same problem in single precision."""
        rows, cols = self.row_op.to(torch.float32), self.col_op.to(torch.float32)
        return MeanProblem(rows, cols, self.pattern, SinglePrecisionLoss(self.loss))

    @cached_property
    def short_root(self) -> Tensor:
        """(D, D) double precision: a root of the kernel of the shorter side, rows if both are as long."""
        factor = self._rows if self.shape[0] <= self.shape[1] else self._cols
        values, vectors = torch.linalg.eigh(factor.dense.double())
        return vectors * values.clamp_min(0).sqrt()

    def sparse(self, theta: Tensor) -> tuple[Tensor | RowBlock, Tensor | RowBlock]:
        """Theta (M, N) and its transpose, as CSR tensors."""
        return self.pattern.matrix(theta), self.pattern.matrix_t(theta)


def times(sparse: Tensor | RowBlock, dense: Tensor) -> Tensor:
    """A CSR tensor times a dense matrix, in blocks of columns that stay in cache; a dense block at once."""
    if isinstance(sparse, RowBlock) or dense.shape[1] <= BLOCK:
        return sparse @ dense
    out = dense.new_empty(sparse.shape[0], dense.shape[1])
    for start in range(0, dense.shape[1], BLOCK):
        out[:, start : start + BLOCK] = sparse @ dense[:, start : start + BLOCK].contiguous()
    return out


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
        left, right = (torch.zeros(size, 0, dtype=problem.dtype, device=problem.device) for size in problem.shape)
        return cls(left, right, left.new_zeros(0), left, right)

    def first(self, count: int, values: Tensor | None = None) -> LowRank:
        """The first ``count`` singular triplets, with other values (R,) if they are given."""
        sides = (side[:, :count] for side in (self.left, self.right, self.left_image, self.right_image))
        left, right, left_image, right_image = sides
        return LowRank(left, right, (self.values if values is None else values)[:count], left_image, right_image)

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
    rest, rest_image = orthonormal_complement(first, first_image, dual[:, lead:], image[:, lead:])
    return torch.cat([first, rest], dim=1), torch.cat([first_image, rest_image], dim=1)


def orthonormal_complement(
    first: Tensor, first_image: Tensor, rest: Tensor, rest_image: Tensor
) -> tuple[Tensor, Tensor]:
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
    norms = _lengths(dual, image)
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    unit = ((dual / norms).mT @ (image / norms)).double()
    unit = (unit + unit.mT) / 2
    wide = norms.double()
    return unit * wide.unsqueeze(1) * wide


def check_solve(problem: Any, tolerance: Any, max_iterations: Any) -> tuple[float, int]:
    """A problem, a tolerance and a limit on iterations (0: the start is certified); the last two are returned."""
    check_instance(problem, "problem", MeanProblem, "mvgp.mean.MeanProblem")
    return check_tolerance(tolerance), check_whole_number(max_iterations, "max_iterations", 0)


@dataclass(frozen=True)
class Requirements:
    """What a solver needs of the other parts.

    :param loss: names of methods and properties of the loss.
    :param penalty: names of methods and properties of the penalty.
    """

    loss: tuple[str, ...] = ()
    penalty: tuple[str, ...] = ()


def check_requirements(solver: str, requires: Requirements, loss: Any, penalty: Any = None) -> None:
    """Refuse a loss or a penalty that lacks what a solver needs; the message names what is missing."""
    for part, kind, names in ((loss, "loss", requires.loss), (penalty, "penalty", requires.penalty)):
        missing = list(names) if isinstance(part, type) else [name for name in names if not hasattr(part, name)]
        if missing:
            raise InputError(
                f"{kind}: {solver} needs {', '.join(names)} of it; {shown(part)} lacks {', '.join(missing)}"
            )
