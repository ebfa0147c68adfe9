"""The variance of chosen cells: the prior's, less what the observations take away, :math:`k^T (K_{TT} + D)^{-1} k`.

===========  ====================================================  ==========================================
method       how                                                   for
===========  ====================================================  ==========================================
`spectral`   eigenpairs of both kernels                            complete grids with equal noise
`cholesky`   a dense factor of :math:`K_{TT} + D`, kept            up to some 10,000 observed pairs
`cg`         conjugate gradients, many cells at a time             any size; exact up to the solver's tolerance
`bounded`    the nearest observations exactly, then conjugate      any size; to a stated accuracy, which is
             gradients between two bounds                          proved for each cell
`cached`     Galerkin's method in one Krylov space, kept           many queries, roughly; never too small
===========  ====================================================  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import gpytorch
import torch
from torch import Tensor

from ..checks import check_positive
from ..errors import ConvergenceError, InputError
from ..linalg import cost
from ..linalg.conjugate_gradients import quadratic_form
from ..linalg.pair_operator import PairLinearOperator
from .query import AxisQuery, Query
from .system import ObservedSystem

VarianceMethod = Literal["auto", "spectral", "cholesky", "cg", "bounded", "cached"]
BATCH_BYTES = 8 * 2**20  # of one batch of right-hand sides; larger ones leave the cache
SMALLEST_BATCH = 16  # right-hand sides, in any case
FACTOR_BATCH = 1024  # right-hand sides of a dense factor, which is read once for all of them
EXPECTED_ITERATIONS = 10  # of conjugate gradients, for the choice of a method


def pair_variance(
    system: ObservedSystem, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None
) -> Tensor:
    """(Q,): the diagonal of S at the query's cells, between 0 and the prior's variance.

    :param method: see the table above; by default the cheapest that is exact, or meets ``accuracy``.
    :param accuracy: largest relative error of a variance; exact up to the solver's tolerance when left out.
    """
    if accuracy is not None:
        accuracy = check_positive(accuracy, "accuracy")
    prior = query.prior_variance()
    chosen = choose_method(system, query, accuracy) if method == "auto" else method
    if chosen == "spectral":
        return torch.minimum(_spectral(system, query).clamp_min(0), prior)
    if chosen == "bounded":
        return _bounded(system, query, prior, 0.01 if accuracy is None else accuracy)
    if chosen == "cached":
        reduction = system.cache.reduction(system.cross(query))
    elif chosen == "cholesky":
        reduction = _reduction(system, query, lambda rhs: system.half_solve(rhs).square().sum(0), FACTOR_BATCH)
    elif chosen == "cg":
        reduction = _reduction(system, query, lambda rhs: (rhs * system.solve(rhs)).sum(0))
    else:
        raise InputError(f"method: expected auto, spectral, cholesky, cg, bounded or cached, got {method!r}")
    return torch.minimum((prior - reduction).clamp_min(0), prior)


def choose_method(system: ObservedSystem, query: Query, accuracy: float | None) -> VarianceMethod:
    """The cheapest method that is exact, or meets an accuracy.

    ``fast_pred_var`` asks for the cache, which is rough; where a dense factor is cheap, that is faster, and exact.
    """
    if system.is_closed_form:
        return "spectral"
    if _dense_pays(system, len(query)):
        return "cholesky"
    if gpytorch.settings.fast_pred_var.on():
        return "cached"
    return "cg" if accuracy is None else "bounded"


def _dense_pays(system: ObservedSystem, queries: int) -> bool:
    """Whether a dense factor of K_TT + D costs less than conjugate gradients for so many cells."""
    count = len(system.pairs)
    if system.has_dense:
        return True
    if count > system.limits.dense:
        return False
    dense = (count**3 / 6 + queries * count**2 / 2) / cost.GEMM
    return dense < queries * EXPECTED_ITERATIONS * system.covariance.product.plan.seconds


def right_sides(system: ObservedSystem, query: Query, width: int) -> Iterator[tuple[slice, Tensor]]:
    """Some cells at a time: where they are in the query, and K_T* (T, w)."""
    observed = system.pairs
    for start in range(0, len(query), width):
        where = slice(start, min(start + width, len(query)))
        part = query.pairs[where]
        of_rows = query.row_side.columns(part.active_rows)[observed.rows]  # (T, u)
        of_cols = query.col_side.columns(part.active_cols)[observed.cols]  # (T, v)
        yield where, of_rows[:, part.local_rows] * of_cols[:, part.local_cols]


def _reduction(
    system: ObservedSystem, query: Query, form: Callable[[Tensor], Tensor], smallest: int = SMALLEST_BATCH
) -> Tensor:
    """(Q,): k^T A^-1 k from ``form``, which maps K_T* (T, w) to it.

    :param smallest: cells at a time, at least.
    """
    out = system.noise.new_empty(len(query))
    width = max(smallest, BATCH_BYTES // (len(system.pairs) * out.element_size()))
    for where, rhs in right_sides(system, query, width):
        out[where] = form(rhs)
    return out


def _spectral(system: ObservedSystem, query: Query) -> Tensor:
    closed = system.closed_form
    if closed is None:
        raise InputError("method='spectral' needs every cell observed, with equal noise")
    if query.is_new:
        return query.prior_variance() - _reduction(system, query, lambda rhs: (rhs * system.solve(rhs)).sum(0))
    cells = query.pairs.rows * query.pairs.shape[1] + query.pairs.cols
    return torch.cat([closed._get_indices(part, part) for part in cells.split(4096)])


def nearest_observations(system: ObservedSystem, query: Query, count: int) -> Tensor:
    """(J,) ascending: the observations with the largest prior correlation to any of the query's cells, nearly.

    It is bounded by the largest row factor times the largest column factor, and that is what is compared.
    """
    observed = system.pairs
    if len(observed) <= count:
        return torch.arange(len(observed), device=observed.rows.device)
    of_rows, of_cols = largest_factors(query)
    size = of_rows[observed.rows] * of_cols[observed.cols]
    scale = system.diagonal.sqrt()
    return (size / scale).topk(count).indices.sort().values


def largest_factors(query: Query) -> tuple[Tensor, Tensor]:
    """(M,) and (N,): the largest covariance of each row with any row of the query, and of each column likewise."""
    of_rows = _largest_factor(query.row_side, query.pairs.active_rows)
    return of_rows, _largest_factor(query.col_side, query.pairs.active_cols)


def _largest_factor(side: AxisQuery, active: Tensor) -> Tensor:
    return torch.stack([side.columns(part).abs().amax(1) for part in active.split(256)]).amax(0)


def _allowed(share: float, above: Tensor, which: Tensor, low: Tensor) -> Tensor:
    """(C',): how wide a bracket may be, ``low`` (C',) of the reduction being known beyond ``above`` (C,)."""
    return (share * (above[which] - low)).to(low)


def _bounded(system: ObservedSystem, query: Query, prior: Tensor, accuracy: float) -> Tensor:
    """Upper ends of brackets that hold the variances, each bracket at most ``accuracy`` of its variance wide.

    With x solving the system of the nearest observations and r what it leaves of the right-hand side,
    :math:`k^T A^{-1} k = k^T x + r^T A^{-1} r`: the last term is often small enough for its crudest bound.
    """
    if accuracy >= 1e-3 and system.noise.dtype == torch.float64:
        system = system.single
        query = query.in_precision(system.ops)
    nearest = nearest_observations(system, query, system.limits.nearest)
    local = system.restricted(nearest)
    back = PairLinearOperator(*system.ops, system.pairs, local.pairs)  # (T, J)
    out, share = torch.empty_like(prior), accuracy / (1 + accuracy)
    width = max(SMALLEST_BATCH, 16 * BATCH_BYTES // (len(system.pairs) * system.noise.element_size()))
    for where, rhs in right_sides(system, query, width):
        start = local.dense.solve(rhs[nearest], system.tolerance).value  # (J, w)
        known = (rhs[nearest] * start).sum(0).to(prior)
        rest = rhs - back._matmul(start)
        rest[nearest] = 0.0
        above = prior[where] - known  # at least the variance
        bounds = quadratic_form(
            system.times,
            rest,
            lowest_eigenvalue=system.lowest_eigenvalue,
            allowed=partial(_allowed, share, above),
            max_iterations=system.max_iterations,
        )
        gap = (bounds.upper - bounds.lower).to(prior)
        missed = gap > 1.001 * share * (above - bounds.lower.to(prior))
        if missed.any():
            raise ConvergenceError(
                f"{int(missed.sum())} of {len(missed)} variances are not known to {accuracy:g} after {bounds.products} "
                "products with K_TT + noise; ask for less accuracy, or allow more iterations"
            )
        out[where] = above - bounds.lower
    return torch.minimum(out.clamp_min(0), prior)
