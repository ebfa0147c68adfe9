"""The small problem inside fixed subspaces: :math:`B = U S V^T` with S (k, l), the bases held fixed.

A step costs the sampled products alone, no kernel. What it buys is the certificate: once S is optimal, the
gradient's singular values on the subspaces equal the threshold, and what is left of the excess is of second
order in the distance of the subspaces from the best ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .accelerated import Reached, accelerate
from .certificate import Iterate, dual_bound
from .penalties import Penalty
from .problem import LowRank, MeanProblem, orthonormal, times
from .spectrum import Triplets

CHECK = 4  # steps between two looks at the duality gap within the subspaces


@dataclass(frozen=True)
class Core:
    """S with its singular values; the vectors go on beyond its rank, those next in line first.

    :param matrix: S (k, l).
    :param left: (k, q).
    :param right: (l, q).
    :param values: (q,) descending, zero beyond the rank.
    """

    matrix: Tensor
    left: Tensor
    right: Tensor
    values: Tensor


class CoreSpace:
    """Matrices U S V^T, for :func:`~mvgp.mean.accelerated.accelerate`.

    :param left_image: K_M U (M, k).
    :param right_image: K_N V (N, l).
    """

    def __init__(self, problem: MeanProblem, penalty: Penalty, left_image: Tensor, right_image: Tensor) -> None:
        self.problem, self.penalty, self.left_image, self.right_image = problem, penalty, left_image, right_image

    def gradient(self, theta: Tensor) -> Tensor:
        """(k, l): of the loss in S."""
        return self.left_image.mT @ times(self.problem.pattern.matrix(theta), self.right_image)

    def shrunk(self, matrix: Tensor, step: float) -> Core:
        """The proximal point of a matrix (k, l)."""
        left, values, right_t = torch.linalg.svd(matrix, full_matrices=False)
        values = self.penalty.shrink(values, step)
        rank = int((values > 0).sum())
        return Core((left[:, :rank] * values[:rank]) @ right_t[:rank], left, right_t.mT, values)

    def step(self, theta: Tensor, now: Core, before: Core, beta: float, lipschitz: float) -> Core:
        """See :class:`~mvgp.mean.accelerated.Space`."""
        ahead = now.matrix + beta * (now.matrix - before.matrix) if beta else now.matrix
        return self.shrunk(ahead - self.gradient(theta) / lipschitz, 1 / lipschitz)

    def distance(self, fresh: Core, now: Core, before: Core, beta: float) -> float:
        """See :class:`~mvgp.mean.accelerated.Space`."""
        ahead = now.matrix + beta * (now.matrix - before.matrix)
        return float((fresh.matrix - ahead).double().square().sum())

    def psi(self, point: Core) -> Tensor:
        """See :class:`~mvgp.mean.accelerated.Space`."""
        return self.problem.pattern.sample(self.left_image @ point.matrix, self.right_image)

    def values(self, point: Core) -> Tensor:
        """See :class:`~mvgp.mean.accelerated.Space`."""
        return point.values

    def is_optimal(self, here: Reached[Core], tolerance: float) -> bool:
        """Whether the duality gap among matrices U S V^T is closed; looked at every few steps."""
        if here.steps % CHECK:
            return False
        primal = here.at.value + self.penalty.value(here.point.values)
        dual = dual_bound(here.at, torch.linalg.svdvals(self.gradient(here.at.gradient)), self.penalty)
        return primal - dual <= tolerance * abs(primal)


def core_step(
    problem: MeanProblem,
    penalty: Penalty,
    now: Iterate,
    found: Triplets,
    *,
    tolerance: float,
    max_steps: int,
    spares: int,
) -> Iterate:
    """The best B within the span of the iterate's and the gradient's singular vectors.

    :param found: leading singular triplets of the gradient.
    :param tolerance: on the relative duality gap within the subspaces.
    :param spares: how many directions next in line to keep.
    """
    mean = now.mean
    left, left_image = _joint_basis(mean.left, mean.left_image, found.left, found.left_image, found.values, spares)
    right, right_image = _joint_basis(
        mean.right, mean.right_image, found.right, found.right_image, found.values, spares
    )
    space = CoreSpace(problem, penalty, left_image, right_image)
    matrix = (left_image.mT @ (mean.left * mean.values)) @ (right_image.mT @ mean.right).mT
    first = space.shrunk(matrix, 0.0)
    psi = space.psi(first)
    start = Reached(first, psi, problem.loss(psi), now.lipschitz, 0)
    end = accelerate(
        problem, penalty, space, start, max_steps=max_steps, done=lambda here: space.is_optimal(here, tolerance)
    )
    core = end.point
    rank = int((core.values > 0).sum())
    reach = min(rank + spares, core.left.shape[1])
    turn_left, turn_right = core.left[:, :rank], core.right[:, :reach]
    right_all = right_image @ turn_right
    dual_left, dual_right = left @ turn_left, right @ turn_right[:, :rank]
    # images anew: those of the basis hold rounding errors that would grow from round to round
    fresh = LowRank(
        dual_left, dual_right, core.values[:rank], problem.rows_times(dual_left), problem.cols_times(dual_right)
    )
    return Iterate.of(problem, fresh, right_all[:, rank:], end.lipschitz)


def _joint_basis(
    old: Tensor, old_image: Tensor, new: Tensor, new_image: Tensor, weights: Tensor, extra: int
) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of ``old`` and of what ``new`` has most of outside it, and its image.

    :param weights: (q,) of the columns of ``new``.
    :param extra: how many directions to add.
    """
    rank = old.shape[1]
    basis, basis_image = orthonormal(
        torch.cat([old, new * weights], 1), torch.cat([old_image, new_image * weights], 1), rank
    )
    outside, outside_image = basis[:, rank:], basis_image[:, rank:]
    if outside.shape[1] <= extra:
        return basis, basis_image
    share = (outside_image.mT @ new) * weights  # (p, q)
    turn = torch.linalg.eigh((share @ share.mT).double())[1][:, -extra:].to(old.dtype)
    return (
        torch.cat([basis[:, :rank], outside @ turn], dim=1),
        torch.cat([basis_image[:, :rank], outside_image @ turn], dim=1),
    )
