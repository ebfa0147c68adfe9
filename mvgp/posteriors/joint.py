"""The joint covariance of a few thousand cells as a dense matrix, and samples from it: what ranks are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..checks import check_generator
from ..errors import NotPositiveSemidefiniteError, SizeError
from ..linalg.cost import Limits
from ..linalg.roots import columns
from ..tensor_checks import check_samples
from .query import Query
from .system import ObservedSystem
from .variance import FACTOR_BATCH, nearest_observations, right_sides

SINGLE_FROM = 4096  # cells from which a joint covariance is formed and factored in single precision


@dataclass(frozen=True)
class Joint:
    """A dense covariance of Q cells.

    :param matrix: (Q, Q).
    :param observations: how many observations it is conditioned on: the nearest ones, when not all. Leaving out
        the rest makes it larger, never smaller.
    :param size: the largest variance it was computed from, that of the prior; its rounding errors are of this size.
    :param mean: (Q,) of the entries; None stands for 0.
    """

    matrix: Tensor
    observations: int
    size: float = 0.0
    mean: Tensor | None = None

    def sample(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """(num_samples, Q): joint samples of the entries."""
        num_samples, generator = check_samples(num_samples, len(self.matrix)), check_generator(generator)
        root = covariance_root(self.matrix, self.size)
        size = (root.shape[1], num_samples)
        noise = torch.randn(size, generator=generator, dtype=root.dtype, device=root.device)
        drawn = (root @ noise).mT
        return drawn if self.mean is None else self.mean.to(drawn) + drawn


def joint_covariance(system: ObservedSystem, query: Query) -> Joint:
    r""":math:`K_{**} - H^T H` with :math:`H = L^{-1} K_{T*}` and L the factor of :math:`K_{TT} + D`."""
    check_joint_size(query, system.limits)
    closed = system.closed_form
    if closed is not None and not query.is_new and len(query.pairs.active_rows) == 1:
        weights = closed.row_vectors[query.pairs.active_rows[0]].square() @ closed.spectrum  # (S,)
        vectors = closed.col_vectors[query.pairs.cols]  # (Q, S)
        return Joint((vectors * weights) @ vectors.mT, len(system.pairs))
    if len(system.pairs) > system.limits.dense:
        system = system.restricted(nearest_observations(system, query, system.limits.joint_nearest))
    working = torch.float32 if len(query) >= SINGLE_FROM else system.noise.dtype
    matrix = _prior(query, working)
    size = float(matrix.diagonal().amax()) if len(matrix) else 0.0
    half = matrix.new_empty(len(system.pairs), len(query))  # H (T, Q)
    for where, rhs in right_sides(system, query, FACTOR_BATCH):
        half[:, where] = system.half_solve(rhs).to(working)
    matrix.addmm_(half.mT, half, alpha=-1)
    return Joint(matrix, len(system.pairs), size)


def check_joint_size(query: Query, limits: Limits) -> None:
    """Refuse more cells than a dense covariance is formed for."""
    if len(query) > limits.joint_cells:
        raise SizeError(f"a joint covariance is formed for up to {limits.joint_cells:,} cells, got {len(query):,}")


def _prior(query: Query, dtype: torch.dtype) -> Tensor:
    """(Q, Q): the prior's covariance, some columns at a time, so that nothing else of this size is needed."""
    row_op, col_op, pairs = query.row_side.covariance(), query.col_side.covariance(), query.pairs
    out = torch.empty(len(query), len(query), dtype=dtype, device=pairs.rows.device)
    for start in range(0, len(query), FACTOR_BATCH):
        part = pairs[start : start + FACTOR_BATCH]
        of_rows = columns(row_op, part.active_rows)[:, part.local_rows]  # (M*, q)
        of_cols = columns(col_op, part.active_cols)[:, part.local_cols]  # (N*, q)
        out[:, start : start + FACTOR_BATCH] = of_rows[pairs.rows] * of_cols[pairs.cols]
    return out


def covariance_root(matrix: Tensor, size: float = 0.0) -> Tensor:
    """(Q, R) with root root^T = ``matrix`` up to rounding: Cholesky's, or by eigenpairs where that is singular.

    :param size: of the numbers that ``matrix`` is a difference of, when larger than itself.
    """
    chol, info = torch.linalg.cholesky_ex(matrix)
    if info == 0:
        return chol
    lift = 10 * len(matrix) * torch.finfo(matrix.dtype).eps * max(size, float(matrix.diagonal().amax()))
    if len(matrix) > SINGLE_FROM:
        lifted = matrix.clone()
        lifted.diagonal().add_(lift)
        chol, info = torch.linalg.cholesky_ex(lifted)
        if info == 0:
            return chol
        raise NotPositiveSemidefiniteError(
            f"the posterior covariance of {len(matrix)} cells is not positive semi-definite in {matrix.dtype} (pivot "
            f"{int(info)}); raise the noise, or ask about fewer cells, for which double precision is used"
        )
    values, vectors = torch.linalg.eigh(matrix)
    if values[0] < -max(lift, 1e-12):
        raise NotPositiveSemidefiniteError(
            f"the posterior covariance of {len(matrix)} cells has an eigenvalue of {values[0].item():.3g}; "
            "raise the noise"
        )
    return vectors * values.clamp_min(0).sqrt()
