"""Matrices of low rank in dual coordinates, their leading singular values, and what solvers hand over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..likelihoods.losses import LossValue
from ..linalg.conjugate_gradients import conjugate_gradients
from ..linalg.spectra import eigenpairs, spectral_bounds
from .problem import Certificate, MeanProblem, Penalty, times


@dataclass(frozen=True)
class LowRank:
    r""":math:`B = G_M^T C \operatorname{diag}(s) D^T G_N` with :math:`C^T K_M C = D^T K_N D = I`, so s is its spectrum.

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
        left, right, *images = (x[:, :count] for x in (self.left, self.right, self.left_image, self.right_image))
        return LowRank(left, right, (self.values if values is None else values)[:count], *images)

    def psi(self, problem: MeanProblem) -> Tensor:
        """(T,): psi at the observed pairs."""
        if self.rank == 0:
            return torch.zeros(len(problem.pattern), dtype=problem.dtype, device=problem.device)
        return problem.pattern.sample(self.left_image * self.values, self.right_image)


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

    The first ``lead`` columns lose nothing to the others, which are dropped where nothing of them is left.
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


def joint_basis(
    old: Tensor, old_image: Tensor, new: Tensor, new_image: Tensor, weights: Tensor, extra: int
) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of ``old`` and of what ``new`` has most of outside (``extra`` columns), and its image."""
    rank = old.shape[1]
    both, both_image = torch.cat([old, new * weights], 1), torch.cat([old_image, new_image * weights], 1)
    basis, basis_image = orthonormal(both, both_image, rank)
    outside, outside_image = basis[:, rank:], basis_image[:, rank:]
    if outside.shape[1] <= extra:
        return basis, basis_image
    share = (outside_image.mT @ new) * weights  # (p, q)
    turn = torch.linalg.eigh((share @ share.mT).double())[1][:, -extra:].to(old.dtype)
    return torch.cat([basis[:, :rank], outside @ turn], 1), torch.cat([basis_image[:, :rank], outside_image @ turn], 1)


def scaled_gram(dual: Tensor, image: Tensor) -> Tensor:
    """(b, b) in double precision: W^T K W, accurate entry by entry relative to the lengths of the columns."""
    norms = _lengths(dual, image)
    norms = torch.where(norms > 0, norms, torch.ones_like(norms))
    unit = ((dual / norms).mT @ (image / norms)).double()
    unit = (unit + unit.mT) / 2
    wide = norms.double()
    return unit * wide.unsqueeze(1) * wide


@dataclass(frozen=True)
class MeanSolution:
    """A fitted mean with its evidence.

    :param mean: B.
    :param psi: (T,) at the observed pairs.
    :param loss: the loss there.
    :param certificate: the evidence.
    :param spare: (N, p) right images of directions that nearly entered; they speed up a warm start.
    :param lipschitz: curvature met on the way, likewise.
    """

    mean: LowRank
    psi: Tensor
    loss: LossValue
    certificate: Certificate
    spare: Tensor
    lipschitz: float


@dataclass(frozen=True)
class Iterate:
    """A mean, its loss, and what the next steps start from."""

    mean: LowRank
    psi: Tensor  # (T,)
    at: LossValue  # there
    spare: Tensor  # (N, p) right images of directions next in line to enter
    lipschitz: float  # curvature of the loss met on the way

    def objective(self, penalty: Penalty) -> float:
        """Loss plus penalty."""
        return self.at.value + penalty.value(self.mean.values)

    @classmethod
    def of(cls, problem: MeanProblem, mean: LowRank, spare: Tensor, lipschitz: float) -> Iterate:
        """With psi and the loss computed."""
        psi = mean.psi(problem)
        return cls(mean, psi, problem.loss(psi), spare, lipschitz)


# Subspace iteration -----------------------------------------------------------------------------


def random_images(problem: MeanProblem, count: int, seed: int) -> Tensor:
    """(N, count): K_N times random dual vectors."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(problem.shape[1], count, generator=generator, dtype=torch.float64)
    return problem.cols_times(start.to(problem.dtype).to(problem.device))


class StepOperator:
    r"""Dual coordinates of :math:`t \nabla f + \sum_k a_k B_k`, with ``theta`` (T,) for the gradient of f."""

    def __init__(
        self, problem: MeanProblem, theta: Tensor, scale: float = 1.0, parts: Sequence[tuple[float, LowRank]] = ()
    ) -> None:
        self.matrix, self.matrix_t = problem.sparse(theta if scale == 1.0 else scale * theta)
        self.parts = parts

    def times(self, dense: Tensor) -> Tensor:
        """(M, b) from (N, b)."""
        out = times(self.matrix, dense)
        for factor, part in self.parts:
            out.add_(part.left @ (part.values.unsqueeze(1) * (part.right.mT @ dense)), alpha=factor)
        return out

    def times_t(self, dense: Tensor) -> Tensor:
        """(N, b) from (M, b)."""
        out = times(self.matrix_t, dense)
        for factor, part in self.parts:
            out.add_(part.right @ (part.values.unsqueeze(1) * (part.left.mT @ dense)), alpha=factor)
        return out


def subspace_pass(problem: MeanProblem, operator: StepOperator, images: Tensor, lead: int = 0) -> LowRank:
    """Singular triplets of Z, values descending, by one pass of block subspace iteration.

    :param images: (N, b) right images K_N D to start from.
    :param lead: how many of the images are trusted singular vectors, ahead of spare ones.
    """
    left = operator.times(images)  # (M, b): dual coordinates of Z V
    left, left_image = orthonormal(left, problem.rows_times(left), lead)
    if not bool(left.any()):  # Z = 0
        return LowRank(left[:, :0], images[:, :0], images.new_zeros(0), left[:, :0], images[:, :0])
    right = operator.times_t(left_image)  # (N, b): dual coordinates of Z^T Q
    right_image = problem.cols_times(right)
    squares, vectors = torch.linalg.eigh(scaled_gram(right, right_image))
    values, vectors = squares.flip(0).clamp_min(0).sqrt(), vectors.flip(1)
    kept = values > 1e-12 * values[0].clamp_min(torch.finfo(torch.float64).tiny)
    values, vectors = values[kept], vectors[:, kept]
    by_left, by_right = vectors.to(problem.dtype), (vectors / values).to(problem.dtype)
    both = left_image @ by_left, right_image @ by_right
    return LowRank(left @ by_left, right @ by_right, values.to(problem.dtype), *both)


def krylov_images(problem: MeanProblem, operator: StepOperator, mean: LowRank, images: Tensor, steps: int) -> Tensor:
    """(N, p steps): right images of a block Krylov space of Z outside the singular subspaces of ``mean``.

    At the optimum the singular values on those subspaces all equal the threshold; what decides about optimality
    lies outside, at the edge of a bulk, where powers are slow and Krylov spaces are not.
    """
    dual, dual_image = mean.right, mean.right_image
    for _ in range(steps):
        left = operator.times(images)
        left_image = problem.rows_times(left)
        share = mean.left_image.mT @ left
        left, left_image = left - mean.left @ share, left_image - mean.left_image @ share
        _, left_image = orthonormal(left, left_image)
        right = operator.times_t(left_image)
        fresh, images = orthonormal_complement(dual, dual_image, right, problem.cols_times(right))
        if images.shape[1] == 0:  # the space is exhausted
            break
        dual, dual_image = torch.cat([dual, fresh], dim=1), torch.cat([dual_image, images], dim=1)
    return dual_image[:, mean.rank :]


def leading_values(
    problem: MeanProblem,
    theta: Tensor,
    images: Tensor,
    *,
    accuracy: float,
    max_passes: int = 60,
    parts: Sequence[tuple[float, LowRank]] = (),
) -> LowRank:
    """Leading singular triplets of the gradient (plus ``parts``), until the largest value has settled."""
    operator = StepOperator(problem, theta, parts=parts)
    triplets = subspace_pass(problem, operator, images)
    for _ in range(max_passes - 1):
        before = float(triplets.values[0])
        triplets = subspace_pass(problem, operator, triplets.right_image)
        if abs(float(triplets.values[0]) - before) <= accuracy * before:
            break
    return triplets
