r"""The joint posterior of some cells: a dense covariance :math:`K_{**} - H^T H` with :math:`H = L^{-1} K_{T*}`.

Columns of the kernels are computed once, whatever they are needed for: the prior's covariance of the cells, their
covariance with the observed cells, and the choice of the nearest ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from linear_operator import LinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from ..checks import check_generator
from ..errors import NotPositiveSemidefiniteError, SizeError
from ..linalg.cost import Limits
from ..linalg.pairs import PairIndex
from ..linalg.spectra import columns
from ..tensor_checks import check_samples
from .query import Query
from .system import FACTOR_BATCH, ObservedSystem, covariance_blocks, nearest_of

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
        root = _root(self.matrix, self.size)
        noise = torch.randn(root.shape[1], num_samples, generator=generator, dtype=root.dtype, device=root.device)
        drawn = (root @ noise).mT
        return drawn if self.mean is None else self.mean.to(drawn) + drawn


def joint_covariance(system: ObservedSystem, query: Query) -> Joint:
    r""":math:`K_{**} - H^T H` with :math:`H = L^{-1} K_{T*}` and L the factor of :math:`K_{TT} + D`."""
    check_joint_size(query, system.limits)
    if query.carries_gradient:
        matrix = covariance_blocks(system, query.joined()).squeeze(0)
        return Joint(matrix, len(system.pairs))
    closed = system.closed_form
    if closed is not None and not query.is_new and len(query.pairs.active_rows) == 1:
        weights = closed.row_vectors[query.pairs.active_rows[0]].square() @ closed.spectrum  # (S,)
        vectors = closed.col_vectors[query.pairs.cols]  # (Q, S)
        return Joint((vectors * weights) @ vectors.mT, len(system.pairs))
    working = torch.float32 if len(query) >= SINGLE_FROM else system.noise.dtype
    held = [_Columns(part, working) for part in query.parts]
    if len(system.pairs) > system.limits.dense:
        factors = [part.largest() for part in held]
        system = system.restricted(nearest_of(system, factors, system.limits.joint_nearest))
    matrix = torch.empty(len(query), len(query), dtype=working, device=query.pairs.rows.device)
    half = matrix.new_empty(0, len(query))  # H (T, Q), or a few more rows
    for start in range(0, len(query), FACTOR_BATCH):
        where = slice(start, min(start + FACTOR_BATCH, len(query)))
        matrix[:, where] = sum(part.prior(where) for part in held)
        rhs = torch.stack([part.cross(system.pairs, where) for part in held]).sum(0)  # (T, w)
        part = system.half_solve(rhs.to(system.noise.dtype)).to(working)
        half = half if len(half) == len(part) else half.new_empty(len(part), len(query))
        half[:, where] = part
    size = float(matrix.diagonal().amax()) if len(matrix) else 0.0
    matrix.addmm_(half.mT, half, alpha=-1)
    return Joint(matrix, len(system.pairs), size)


def check_joint_size(query: Query, limits: Limits) -> None:
    """Refuse more cells than a dense covariance is formed for."""
    if len(query) > limits.joint_cells:
        raise SizeError(f"a joint covariance is formed for up to {limits.joint_cells:,} cells, got {len(query):,}")


class _Columns:
    """Columns of the kernels of one term at the cells of a query, each computed once.

    :param query: the cells under the term.
    :param working: the precision they are held in.
    """

    def __init__(self, query: Query, working: torch.dtype) -> None:
        self._pairs = query.pairs
        active = query.pairs.active_rows, query.pairs.active_cols
        sides = query.row_side, query.col_side
        self._known = [_in_blocks(side.columns, which, working) for side, which in zip(sides, active, strict=True)]
        self._own = [
            _in_blocks(_picker(side.covariance()), which, working) if side.is_new else known
            for side, which, known in zip(sides, active, self._known, strict=True)
        ]  # (M*, u) and (N*, v): among the positions of the query, where they are new inputs

    def largest(self) -> tuple[Tensor, Tensor]:
        """(M,) and (N,): see :meth:`Query.largest_factors`."""
        of_rows, of_cols = (known.abs().amax(1) for known in self._known)
        return of_rows, of_cols

    def prior(self, where: slice) -> Tensor:
        """(Q, w): the prior's covariance between all cells and those at ``where``."""
        of_rows, of_cols = self._own
        pairs = self._pairs
        rows, cols = pairs.local_rows[where], pairs.local_cols[where]
        return of_rows[:, rows][pairs.rows] * of_cols[:, cols][pairs.cols]

    def cross(self, observed: PairIndex, where: slice) -> Tensor:
        """(T, w): K_T* for the cells at ``where``."""
        of_rows, of_cols = self._known
        rows, cols = self._pairs.local_rows[where], self._pairs.local_cols[where]
        return of_rows[:, rows][observed.rows] * of_cols[:, cols][observed.cols]


def _picker(op: LinearOperator) -> Callable[[Tensor], Tensor]:
    return lambda which: columns(op, which)


def _in_blocks(make: Callable[[Tensor], Tensor], which: Tensor, working: torch.dtype) -> Tensor:
    """(n, k): columns ``which`` (k,), made some at a time, in the precision ``working``."""
    out: Tensor | None = None
    for start in range(0, len(which), FACTOR_BATCH):
        part = make(which[start : start + FACTOR_BATCH])
        out = part.new_empty(len(part), len(which), dtype=working) if out is None else out
        out[:, start : start + FACTOR_BATCH] = part
    return make(which).to(working) if out is None else out


def _root(matrix: Tensor, size: float) -> Tensor:
    """(Q, R) with root root^T = ``matrix`` up to rounding: Cholesky's, or by eigenpairs where that is singular.

    Eigenpairs of a singular matrix have no gradient; where one is wanted gpytorch's jitter is added, and it warns.

    :param size: of the numbers that ``matrix`` is a difference of, when larger than itself.
    """
    if matrix.requires_grad:
        factor: Tensor = psd_safe_cholesky(matrix)
        return factor
    chol, info = torch.linalg.cholesky_ex(matrix)
    if info == 0:
        return chol
    lift = 10 * len(matrix) * torch.finfo(matrix.dtype).eps * max(size, float(matrix.diagonal().amax()))
    if len(matrix) > SINGLE_FROM:
        chol, info = torch.linalg.cholesky_ex(matrix.diagonal_scatter(matrix.diagonal() + lift))
        if info == 0:
            return chol
        raise NotPositiveSemidefiniteError(
            f"the posterior covariance of {len(matrix)} cells is not positive semi-definite in {matrix.dtype} (pivot "
            f"{int(info)}); raise the noise, or ask about fewer cells, for which double precision is used"
        )
    values, vectors = torch.linalg.eigh(matrix)
    if values[0] < -max(lift, 1e-12):
        least = values[0].item()
        raise NotPositiveSemidefiniteError(
            f"the posterior covariance of {len(matrix)} cells has an eigenvalue of {least:.3g}; raise the noise"
        )
    return vectors * values.clamp_min(0).sqrt()
