"""Leave-one-out predictions of the plain posterior, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..checks import check_instance, without_gradient
from ..data.observed import ObservedMatrix
from ..errors import InputError, SizeError
from ..linalg.solvers import SpectralSolver
from ..posteriors.covariance import ConditionalCovariance, unscaled
from ..posteriors.gaussian import FullPosterior
from ..posteriors.query import SparseCoefficients
from ..tensor_checks import check_index

SOLVE_BATCH = 64  # identity columns solved at a time
SAME = 1e-3  # relative residual above which the values cannot be those that were fitted


@dataclass(frozen=True)
class LeaveOneOut:
    """Predictions of J observations, each from all the others.

    :param mean: (J,) predicted value.
    :param variance: (J,) of the measurement, its own noise included.
    :param entry_variance: (J,) of the noise-free entry.
    :param values: (J,) what was measured.
    """

    mean: Tensor
    variance: Tensor
    entry_variance: Tensor
    values: Tensor

    @property
    def log_densities(self) -> Tensor:
        """(J,): log density of each measurement given all the others."""
        return -0.5 * ((self.values - self.mean).square() / self.variance + (2 * math.pi * self.variance).log())

    @property
    def log_density(self) -> float:
        """Their sum, the log pseudo-likelihood."""
        return float(self.log_densities.sum())


@without_gradient
def leave_one_out(posterior: FullPosterior, data: ObservedMatrix, which: Any = None) -> LeaveOneOut:
    r"""Mean :math:`r_t - \alpha_t / (A^{-1})_{tt}` and variance :math:`1 / (A^{-1})_{tt}`, A = K_TT + D.

    They equal the posterior refitted without entry t, under the same hyperparameters.

    :param posterior: of :class:`mvgp.FullGP` under Gaussian noise.
    :param data: what it was fitted to.
    :param which: (J,) numbers of entries of ``data``; all when left out, which needs a dense factor of A (up to
        12,000 observed pairs) or a complete grid.
    """
    check_instance(posterior, "posterior", FullPosterior, "that of mvgp.FullGP")
    conditional, scale = unscaled(posterior.conditional)
    assert isinstance(conditional, ConditionalCovariance)  # a FullPosterior has no other
    other = posterior.certificate is not None or posterior.sites is not None
    if other or not isinstance(posterior.coefficients, SparseCoefficients):
        raise InputError("posterior: expected one under Gaussian noise, got that of another likelihood")
    alpha = posterior.coefficients.values  # (T,)
    check_instance(data, "data", ObservedMatrix, "mvgp.ObservedMatrix")
    pairs, values = conditional.pairs, data.values.to(alpha)
    rows, cols = data.rows.to(pairs.rows), data.cols.to(pairs.cols)
    if data.shape != posterior.shape or not (torch.equal(rows, pairs.rows) and torch.equal(cols, pairs.cols)):
        raise InputError(
            f"data: expected the {len(pairs)} entries of shape {posterior.shape} that the posterior was fitted to, "
            f"got {len(data)} entries of shape {data.shape} at other places"
        )
    target = values - posterior.prior.mean_module(rows, cols)
    gap = float((conditional.times(alpha.unsqueeze(1)).squeeze(1) - target).norm())  # A alpha = r - b if they fit
    if gap > SAME * float(target.norm()):
        raise InputError(
            f"data: expected the values that the posterior was fitted to, got others: their relative residual is "
            f"{gap / float(target.norm()):.2g}"
        )
    chosen = None if which is None else check_index(which, len(data), "which").to(alpha.device)
    variance = 1 / _inverse_diagonal(conditional, chosen)
    noise = conditional.noise.expand(len(data))
    if chosen is not None:
        alpha, values, noise = alpha[chosen], values[chosen], noise[chosen]
    return LeaveOneOut(values - alpha * variance, scale * variance, scale * (variance - noise), values)


def _inverse_diagonal(conditional: ConditionalCovariance, which: Tensor | None) -> Tensor:
    """(J,): the diagonal of (K_TT + D)^-1 at ``which``, or (T,) all of it."""
    count, solver = len(conditional.pairs), conditional.solver
    if isinstance(solver, SpectralSolver):
        u, v = solver.row_vectors, solver.col_vectors
        whole = u.shape[0] == u.shape[1] and v.shape[0] == v.shape[1]  # then there is no cancellation
        inner = 1 / (solver.products + solver.noise) if whole else solver.shrink
        grid = u.square() @ inner @ v.square().mT  # (M, N)
        everything = conditional.pairs.gather(grid.unsqueeze(0)).squeeze(1)
        everything = everything if whole else (1 - everything) / solver.noise
    elif conditional.has_dense or (which is None and count <= conditional.limits.dense):
        everything = conditional.dense.inverse_diagonal()
    elif which is None:
        raise SizeError(
            f"leave-one-out for all entries is offered up to {conditional.limits.dense:,} observed pairs, there are "
            f"{count:,}; name some with which="
        )
    else:
        parts = [conditional.noise.new_zeros(0)]
        for part in which.split(SOLVE_BATCH) if len(which) else ():
            columns = torch.arange(len(part), device=part.device)
            rhs = torch.zeros(count, len(part), dtype=conditional.noise.dtype, device=part.device)
            rhs[part, columns] = 1
            parts.append(conditional.solve(rhs)[part, columns])
        return torch.cat(parts)
    return everything if which is None else everything[which]
