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
from ..linalg.solvers import DENSE_LIMIT
from .query import Query
from .system import ObservedSystem

VarianceMethod = Literal["auto", "spectral", "cholesky", "cg", "bounded", "cached"]
CHUNK_BYTES = 8 * 2**20  # one batch of right-hand sides; larger ones leave the cache
CHUNK_LEAST = 16  # right-hand sides of a batch in any case
BLOCK = 1024  # of a batch for a dense factor, which is read once for all of them
NEAREST = 4096  # observations that the bounds begin with
ITERATIONS = 10  # of conjugate gradients that a choice of method expects


def pair_variance(
    conditional: ObservedSystem, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None
) -> Tensor:
    """(Q,): the diagonal of S at the query's cells, between 0 and the prior's variance.

    :param method: see the table above; by default the cheapest that is exact, or meets ``accuracy``.
    :param accuracy: largest relative error of a variance; exact up to the solver's tolerance when left out.
    """
    if accuracy is not None:
        accuracy = check_positive(accuracy, "accuracy")
    prior = query.prior_variance()
    chosen = choose_method(conditional, query, accuracy) if method == "auto" else method
    if chosen == "spectral":
        return torch.minimum(_spectral(conditional, query).clamp_min(0), prior)
    if chosen == "bounded":
        return _bounded(conditional, query, prior, 0.01 if accuracy is None else accuracy)
    if chosen == "cached":
        reduction = conditional.cache.reduction(conditional.cross(query))
    elif chosen == "cholesky":
        reduction = _reduction(conditional, query, lambda rhs: conditional.half_solve(rhs).square().sum(0), BLOCK)
    elif chosen == "cg":
        reduction = _reduction(conditional, query, lambda rhs: (rhs * conditional.solve(rhs)).sum(0))
    else:
        raise InputError(f"method: expected auto, spectral, cholesky, cg, bounded or cached, got {method!r}")
    return torch.minimum((prior - reduction).clamp_min(0), prior)


def choose_method(conditional: ObservedSystem, query: Query, accuracy: float | None) -> VarianceMethod:
    """The cheapest method that is exact, or meets an accuracy.

    ``fast_pred_var`` asks for the cache, which is rough; where a dense factor is cheap, that is faster, and exact.
    """
    if conditional.is_closed_form:
        return "spectral"
    if _dense_pays(conditional, len(query)):
        return "cholesky"
    if gpytorch.settings.fast_pred_var.on():
        return "cached"
    return "cg" if accuracy is None else "bounded"


def _dense_pays(conditional: ObservedSystem, queries: int) -> bool:
    """Whether a dense factor of K_TT + D costs less than conjugate gradients for so many cells."""
    count = len(conditional.pairs)
    if conditional.has_dense:
        return True
    if count > DENSE_LIMIT:
        return False
    dense = (count**3 / 6 + queries * count**2 / 2) / cost.GEMM
    return dense < queries * ITERATIONS * conditional.covariance.product.plan.seconds


def right_sides(conditional: ObservedSystem, query: Query, width: int) -> Iterator[tuple[slice, Tensor]]:
    """Some cells at a time: where they are in the query, and K_T* (T, w)."""
    observed = conditional.pairs
    for start in range(0, len(query), width):
        where = slice(start, min(start + width, len(query)))
        part = query.pairs[where]
        of_rows = query.row_side.columns(part.active_rows)[observed.rows]  # (T, u)
        of_cols = query.col_side.columns(part.active_cols)[observed.cols]  # (T, v)
        yield where, of_rows[:, part.local_rows] * of_cols[:, part.local_cols]


def _reduction(
    conditional: ObservedSystem, query: Query, form: Callable[[Tensor], Tensor], least: int = CHUNK_LEAST
) -> Tensor:
    """(Q,): k^T A^-1 k from ``form``, which maps K_T* (T, w) to it.

    :param least: cells at a time, at least.
    """
    out = conditional.noise.new_empty(len(query))
    width = max(least, CHUNK_BYTES // (len(conditional.pairs) * out.element_size()))
    for where, rhs in right_sides(conditional, query, width):
        out[where] = form(rhs)
    return out


def _spectral(conditional: ObservedSystem, query: Query) -> Tensor:
    closed = conditional.closed_form
    if closed is None:
        raise InputError("method='spectral' needs every cell observed, with equal noise")
    if query.is_new:
        return query.prior_variance() - _reduction(
            conditional, query, lambda rhs: (rhs * conditional.solve(rhs)).sum(0)
        )
    cells = query.pairs.rows * query.pairs.shape[1] + query.pairs.cols
    return torch.cat([closed._get_indices(part, part) for part in cells.split(4096)])


def nearest_observations(conditional: ObservedSystem, query: Query, count: int) -> Tensor:
    """(J,) ascending: the observations with the largest prior correlation to any of the query's cells, nearly.

    It is bounded by the largest row factor times the largest column factor, and that is what is compared.
    """
    observed = conditional.pairs
    if len(observed) <= count:
        return torch.arange(len(observed), device=observed.rows.device)
    of_rows, of_cols = largest_factors(query)
    size = of_rows[observed.rows] * of_cols[observed.cols]
    scale = conditional.diagonal.sqrt()
    return (size / scale).topk(count).indices.sort().values


def largest_factors(query: Query) -> tuple[Tensor, Tensor]:
    """(M,) and (N,): the largest covariance of each row with any row of the query, and of each column likewise."""
    found = []
    for side, active in ((query.row_side, query.pairs.active_rows), (query.col_side, query.pairs.active_cols)):
        parts = [side.columns(part).abs().amax(1) for part in active.split(256)]
        found.append(torch.stack(parts).amax(0))
    return found[0], found[1]


def _allowed(share: float, above: Tensor, which: Tensor, low: Tensor) -> Tensor:
    """(C',): how wide a bracket may be, ``low`` (C',) of the reduction being known beyond ``above`` (C,)."""
    return (share * (above[which] - low)).to(low)


def _bounded(conditional: ObservedSystem, query: Query, prior: Tensor, accuracy: float) -> Tensor:
    """Upper ends of brackets that hold the variances, each bracket at most ``accuracy`` of its variance wide.

    With x solving the system of the nearest observations and r what it leaves of the right-hand side,
    :math:`k^T A^{-1} k = k^T x + r^T A^{-1} r`: the last term is often small enough for its crudest bound.
    """
    if accuracy >= 1e-3 and conditional.noise.dtype == torch.float64:
        conditional = conditional.single
        query = query.in_precision(conditional.ops)
    near = nearest_observations(conditional, query, NEAREST)
    local = conditional.restricted(near)
    back = PairLinearOperator(*conditional.ops, conditional.pairs, local.pairs)  # (T, J)
    out, wanted = torch.empty_like(prior), accuracy / (1 + accuracy)
    width = max(CHUNK_LEAST, 16 * CHUNK_BYTES // (len(conditional.pairs) * conditional.noise.element_size()))
    for where, rhs in right_sides(conditional, query, width):
        start = local.dense.solve(rhs[near], conditional.tolerance).value  # (J, w)
        known = (rhs[near] * start).sum(0).to(prior)
        rest = rhs - back._matmul(start)
        rest[near] = 0.0
        above = prior[where] - known  # at least the variance
        found = quadratic_form(
            conditional.times,
            rest,
            least=conditional.least,
            allowed=partial(_allowed, wanted, above),
            max_iterations=conditional.max_iterations,
        )
        width_left = (found.upper - found.lower).to(prior)
        missed = width_left > 1.001 * wanted * (above - found.lower.to(prior))
        if missed.any():
            raise ConvergenceError(
                f"{int(missed.sum())} of {len(missed)} variances are not known to {accuracy:g} after {found.products} "
                "products with K_TT + noise; ask for less accuracy, or allow more iterations"
            )
        out[where] = above - found.lower
    return torch.minimum(out.clamp_min(0), prior)
