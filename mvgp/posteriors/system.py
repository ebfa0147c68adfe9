r"""The linear system behind every posterior, :math:`A = K_{TT} + D` over the observed cells, and variances from it.

The variance of a cell is the prior's, less what the observations take away, :math:`k^T A^{-1} k`:

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

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Literal, Self, get_args

import gpytorch
import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import check_memory, check_positive
from ..errors import ConvergenceError, InputError, SizeError
from ..linalg import cost
from ..linalg.conjugate_gradients import quadratic_form
from ..linalg.cost import DEFAULT_LIMITS, Limits
from ..linalg.pair_operator import SpectralKroneckerLinearOperator
from ..linalg.pairs import PairIndex
from ..linalg.solvers import CholeskySolver, Method, Solver, SpectralSolver, make_solver
from ..linalg.spectra import Operators, Terms, as_terms
from ..linalg.sums import make_sum_solver, pair_covariance, product_seconds, shared_source, sum_bounds
from ..linalg.updates import UpdatedSolver
from .query import Query

VarianceMethod = Literal["auto", "spectral", "cholesky", "cg", "bounded", "cached"]
BATCH_BYTES = 8 * 2**20  # of one batch of right-hand sides; larger ones leave the cache
SMALLEST_BATCH = 16  # right-hand sides, in any case
FACTOR_BATCH = 1024  # right-hand sides of a dense factor, which is read once for all of them
EXPECTED_ITERATIONS = 10  # of conjugate gradients, for the choice of a method
MOST_EDITS = 0.25  # pairs that came or went since a solver was made, as a share of all, up to which it is updated
MOST_UPDATES = 16  # times it is updated before one is made anew


class ObservedSystem:
    r"""The system :math:`K_{TT} + D` of the observed cells: solutions, factors, products, bounds.

    It depends on the observed cells and their noise, not on the values. What costs time is made when first needed.

    :param ops: the prior covariances (K_M, K_N), or such a pair for each term of a sum.
    :param pairs: the T observed cells.
    :param noise: () or (T,) noise variances, the diagonal of D.
    :param tolerance: relative residual of solutions with :math:`K_{TT} + D`.
    :param method: how they are computed.
    :param max_iterations: limit for conjugate gradients.
    :param strict: whether missing the tolerance is an error rather than a warning.
    :param limits: up to which sizes direct methods are used.
    """

    def __init__(
        self,
        ops: Operators | Terms,
        pairs: PairIndex,
        noise: Tensor,
        *,
        tolerance: float,
        method: Method = "auto",
        max_iterations: int = 1000,
        strict: bool = True,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.terms, self.pairs, self.noise, self.strict = as_terms(ops), pairs, noise, strict
        self.tolerance, self._method, self.max_iterations = tolerance, method, max_iterations
        self.limits = limits

    @cached_property
    def solver(self) -> Solver:
        """Of :math:`K_{TT} + D`; a mean alone may never ask for it."""
        options: Any = {"method": self._method, "max_iterations": self.max_iterations, "limits": self.limits}
        if len(self.terms) == 1:
            return make_solver(*self.terms[0], self.pairs, self.noise, **options)
        return make_sum_solver(self.terms, self.pairs, self.noise, **options)

    def solve(self, rhs: Tensor) -> Tensor:
        """(T, C): (K_TT + D)^-1 times (T, C); raises when the tolerance is missed."""
        solution: Tensor = _Solve.apply(rhs, self)
        return solution

    @cached_property
    def covariance(self) -> LinearOperator:
        """K_TT (T, T), lazy."""
        return pair_covariance(self.terms, self.pairs)

    @cached_property
    def dense(self) -> CholeskySolver | UpdatedSolver:
        """A dense factor of K_TT + D, whatever else the solver is; for few observations."""
        if self._solver_is_dense and isinstance(self.solver, CholeskySolver):
            return self.solver
        if len(self.pairs) > self.limits.dense:
            raise SizeError(
                f"a dense factor of K_TT + noise is offered up to {self.limits.dense:,} observed pairs, there are "
                f"{len(self.pairs):,}; use method='cg' or 'bounded'"
            )
        return CholeskySolver(self.covariance, self.noise.expand(len(self.pairs)))

    @property
    def has_dense(self) -> bool:
        """Whether a dense factor of K_TT + D exists, or is what the solver makes."""
        return "dense" in self.__dict__ or self._solver_is_dense

    @property
    def _solver_is_dense(self) -> bool:
        """Whether the solver is a dense factor; known without making it."""
        small = len(self.pairs) <= self.limits.cholesky and not self._has_closed_form
        return self._method == "cholesky" or (self._method == "auto" and small)

    @property
    def _is_complete(self) -> bool:
        """Whether every cell was observed with equal noise."""
        return self.noise.dim() == 0 and len(self.pairs) == self.pairs.shape[0] * self.pairs.shape[1]

    @cached_property
    def _has_closed_form(self) -> bool:
        """Whether eigenvectors that all terms share make a complete grid with equal noise diagonal."""
        sides = ([ops[axis] for ops in self.terms] for axis in (0, 1))
        return self._is_complete and (len(self.terms) == 1 or all(shared_source(side) is not None for side in sides))

    @cached_property
    def cache(self) -> KrylovCache:
        """For rough variances of many cells."""
        return KrylovCache(self)

    def times(self, dense: Tensor) -> Tensor:
        """(T, C): K_TT + D times (T, C)."""
        return self.covariance._matmul(dense) + self.noise.reshape(-1, 1) * dense

    @cached_property
    def diagonal(self) -> Tensor:
        """(T,): of K_TT + D."""
        return self.covariance._diagonal() + self.noise

    @cached_property
    def lowest_eigenvalue(self) -> float:
        """A lower bound on the eigenvalues of K_TT + D."""
        return sum_bounds(self.terms)[0] + float(self.noise.min())

    def half_solve(self, rhs: Tensor) -> Tensor:
        """(T, C): L^-1 times (T, C) with the dense factor L of K_TT + D, once it is known to be accurate."""
        return self.dense.half(rhs, self.tolerance, strict=self.strict)

    def inverse_diagonal(self) -> Tensor:
        """(T,): the diagonal of (K_TT + D)^-1 given a dense factor, the inverse of its diagonal otherwise."""
        if self.has_dense:
            return self.dense.inverse_diagonal()
        return 1 / self.diagonal

    def restricted(self, which: Tensor) -> Self:
        """The system of the observations ``which`` (J,) alone; variances given it are at least as large."""
        noise = self.noise[which] if self.noise.dim() else self.noise
        return self._similar(self.terms, self.pairs[which], noise, self.tolerance)

    def with_noise(self, noise: Tensor) -> Self:
        """The system with other noise variances, (T,)."""
        return self._similar(self.terms, self.pairs, noise, self.tolerance)

    def updated(self, pairs: PairIndex, noise: Tensor, slots: Tensor) -> Self:
        """The system of other ``pairs``, most of them these, by the solver and the factor that this one has made.

        :param pairs: the T' pairs.
        :param noise: () or (T',).
        :param slots: (T',) where each is among the T pairs of this system; T and above for the new ones.
        """
        complete = noise.dim() == 0 and len(pairs) == pairs.shape[0] * pairs.shape[1]
        method: Method = "auto" if self._method == "spectral" and not complete else self._method
        most, strict, limits = self.max_iterations, self.strict, self.limits
        options: dict[str, Any] = {"method": method, "max_iterations": most, "strict": strict, "limits": limits}
        other = type(self)(self.terms, pairs, noise, tolerance=self.tolerance, **options)
        count, is_new = len(self.pairs), slots >= len(self.pairs)
        new = pairs[is_new]
        edits = len(new) + count - int((~is_new).sum())
        border, corner = None, None
        if complete and method == "auto":
            return other  # the closed form is best
        for name in ("solver", "dense"):  # the same object, where the solver is dense
            base: Solver | None = self.__dict__.get(name)
            if base is None or name in other.__dict__:
                continue
            if getattr(base, "depth", 0) >= MOST_UPDATES or edits + getattr(base, "edits", 0) > MOST_EDITS * count:
                continue
            if border is None or corner is None:
                border = pair_covariance(self.terms, self.pairs, new).to_dense()  # (T, k)
                corner = pair_covariance(self.terms, new).to_dense()
                corner.diagonal().add_(noise[is_new] if noise.dim() else noise)
            solver = UpdatedSolver(base, border, corner, slots, max_iterations=self.max_iterations)
            other.__dict__[name] = solver
            if solver.is_dense:
                other.__dict__["dense"] = solver
        return other

    @cached_property
    def single(self) -> Self:
        """The same in single precision."""
        terms = tuple((row.to(torch.float32), col.to(torch.float32)) for row, col in self.terms)
        return self._similar(terms, self.pairs, self.noise.float(), max(self.tolerance, 1e-5))

    def _similar(self, terms: Terms, pairs: PairIndex, noise: Tensor, tolerance: float) -> Self:
        """Another system with the same settings, its method chosen by its size."""
        most, strict, limits = self.max_iterations, self.strict, self.limits
        return type(self)(terms, pairs, noise, tolerance=tolerance, max_iterations=most, strict=strict, limits=limits)

    @property
    def is_closed_form(self) -> bool:
        """Whether every cell was observed with equal noise, and the kernels are small enough for their eigenpairs."""
        return self._has_closed_form and isinstance(self.solver, SpectralSolver)

    @property
    def closed_form(self) -> SpectralKroneckerLinearOperator | None:
        """S over the whole grid by eigenpairs, if every cell was observed with equal noise."""
        if not self.is_closed_form or not isinstance(self.solver, SpectralSolver):
            return None
        spectrum = self.noise * self.solver.shrink  # s2 lam mu / (lam mu + s2)
        return SpectralKroneckerLinearOperator(spectrum, self.solver.row_vectors, self.solver.col_vectors)

    def cross(self, query: Query) -> LinearOperator:
        """K_*T (Q, T), lazy."""
        return query.cross(self.pairs)


class _Solve(torch.autograd.Function):
    """x = A^-1 b for the constant symmetric A = K_TT + D; its gradient is another solve."""

    @staticmethod
    def forward(ctx: Any, rhs: Tensor, system: ObservedSystem) -> Tensor:
        ctx.system = system
        own = rhs.to(system.noise.dtype)  # an operator may have been converted, its solver keeps its precision
        return system.solver.solve(own, system.tolerance).checked(strict=system.strict).value.to(rhs.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.system.solve(gradients[0]), None


class KrylovCache:
    r"""Rough variances of many cells from one small subspace (after LOVE, Pleiss et al. 2018).

    With W (T, k) an orthonormal basis of a Krylov space of A, k at most ``max_root_decomposition_size``, Galerkin's
    method replaces :math:`k^T A^{-1} k` by :math:`k^T W (W^T A W)^{-1} W^T k`, which is never larger: variances come
    out too large, if anything. Smooth kernels need few directions; for rough ones, of sparse graphs, it says little.
    """

    def __init__(self, system: ObservedSystem) -> None:
        count = len(system.pairs)
        size = min(gpytorch.settings.max_root_decomposition_size.value(), count)
        generator = torch.Generator().manual_seed(0)  # the same answers every time
        start = torch.randn(count, generator=generator, dtype=torch.float64).to(system.noise)
        basis = system.noise.new_zeros(count, size)
        images = torch.zeros_like(basis)
        vector = system.times(start.unsqueeze(1)).squeeze(1)
        for step in range(size):
            for _ in range(2):  # once is not enough in floating point
                vector = vector - basis[:, :step] @ (basis[:, :step].mT @ vector)
            length = vector.norm()
            if not length > 0:  # the space is exhausted
                basis, images = basis[:, :step], images[:, :step]
                break
            basis[:, step] = vector / length
            vector = images[:, step] = system.times(basis[:, step : step + 1]).squeeze(1)
        small = basis.mT @ images
        self.basis, self.chol = basis, torch.linalg.cholesky((small + small.mT) / 2)

    def reduction(self, cross: LinearOperator) -> Tensor:
        """(Q,): what the observations take from the prior's variance, at most; ``cross`` is K_*T (Q, T)."""
        seen = cross._matmul(self.basis)  # (Q, k)
        return torch.linalg.solve_triangular(self.chol, seen.mT, upper=False).square().sum(0)


def pair_variance(
    system: ObservedSystem, query: Query, method: VarianceMethod = "auto", accuracy: float | None = None
) -> Tensor:
    """(Q,): the diagonal of S at the query's cells, between 0 and the prior's variance.

    :param method: see the table above; by default the cheapest that is exact, or meets ``accuracy``.
    :param accuracy: largest relative error of a variance; exact up to the solver's tolerance when left out.
    """
    accuracy = None if accuracy is None else check_positive(accuracy, "accuracy")
    prior = query.prior_variance()
    if len(system.pairs) == 0 and method in get_args(VarianceMethod):
        return prior.clone()
    chosen = _cheapest(system, query, accuracy) if method == "auto" else method
    if query.carries_gradient and chosen in ("bounded", "cached"):
        raise InputError(f"method: {chosen!r} has bounds without gradients; for inputs that require one use 'auto'")
    if chosen == "spectral":
        return torch.minimum(_spectral(system, query).clamp_min(0), prior)
    if chosen == "bounded":
        return _bounded(system, query, prior, 0.01 if accuracy is None else accuracy)
    if chosen == "cached":
        reduction = system.cache.reduction(query.cross(system.pairs))
    elif chosen == "cholesky":
        reduction = _reduction(system, query, lambda rhs: system.half_solve(rhs).square().sum(0), FACTOR_BATCH)
    elif chosen == "cg":
        reduction = _reduction(system, query, lambda rhs: (rhs * system.solve(rhs)).sum(0))
    else:
        raise InputError(f"method: expected auto, spectral, cholesky, cg, bounded or cached, got {method!r}")
    return torch.minimum((prior - reduction).clamp_min(0), prior)


def _cheapest(system: ObservedSystem, query: Query, accuracy: float | None) -> VarianceMethod:
    """The cheapest method that is exact, or meets an accuracy; an exact one where a gradient is wanted.

    ``fast_pred_var`` asks for the cache, which is rough; where a dense factor is cheap, that is faster, and exact.
    """
    if system.is_closed_form:
        return "spectral"
    if system.has_dense:
        return "cholesky"
    count, cells = len(system.pairs), len(query)
    if count <= system.limits.dense:
        dense = (count**3 / 6 + cells * count**2 / 2) / cost.GEMM
        if dense < cells * EXPECTED_ITERATIONS * product_seconds(system.covariance):
            return "cholesky"
    if query.carries_gradient:
        return "cg"
    if gpytorch.settings.fast_pred_var.on():
        return "cached"
    return "cg" if accuracy is None else "bounded"


def right_sides(system: ObservedSystem, query: Query, width: int) -> Iterator[tuple[slice, Tensor]]:
    """Some cells at a time: where they are in the query, and K_T* (T, w)."""
    for start in range(0, len(query), width):
        where = slice(start, min(start + width, len(query)))
        yield where, query.cross_columns(system.pairs, where)


def _reduction(
    system: ObservedSystem, query: Query, form: Callable[[Tensor], Tensor], smallest: int = SMALLEST_BATCH
) -> Tensor:
    """(Q,): k^T A^-1 k from ``form``, which maps K_T* (T, w) to it, at least ``smallest`` cells at a time."""
    out = system.noise.new_empty(len(query))
    width = max(smallest, BATCH_BYTES // (max(len(system.pairs), 1) * out.element_size()))
    for where, rhs in right_sides(system, query, width):
        out[where] = form(rhs)
    return out


def covariance_blocks(system: ObservedSystem, query: Query) -> Tensor:
    r"""(B, Q', Q'): S within each batch of the query, exact; differentiable with respect to new inputs.

    It is :math:`K_{**} - H^T H` with :math:`H = L^{-1} K_{T*}` where there is a dense factor L of :math:`K_{TT} + D`,
    :math:`K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}` elsewhere.
    """
    prior, size = query.prior_blocks(), query.shape[-1]
    check_memory(float(prior.numel()), "rows", "a dense covariance of the cells")
    dense = system.has_dense or (len(system.pairs) <= system.limits.dense and not system.is_closed_form)
    width = max(1, FACTOR_BATCH // max(size, 1)) * max(size, 1)  # whole batches at a time
    parts = []
    for _, rhs in right_sides(system, query, width):
        left = system.half_solve(rhs) if dense else rhs
        right = left if dense else system.solve(rhs)
        left, right = (half.unflatten(1, (-1, size)).movedim(0, -1) for half in (left, right))  # (b, Q', T)
        parts.append(left @ right.mT)
    reduction = torch.cat(parts) if parts else torch.zeros_like(prior)
    return prior - (reduction + reduction.mT) / 2


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

    It is bounded by the largest row factor times the largest column factor, summed over the terms of the prior, and
    that is what is compared.
    """
    observed = system.pairs
    if len(observed) <= count:
        return torch.arange(len(observed), device=observed.rows.device)
    return nearest_of(system, [part.largest_factors() for part in query.parts], count)


def nearest_of(system: ObservedSystem, factors: Sequence[tuple[Tensor, Tensor]], count: int) -> Tensor:
    """(J,) ascending: the same, given the largest factors (M,) and (N,) of each term."""
    observed = system.pairs
    size = torch.stack([of_rows[observed.rows] * of_cols[observed.cols] for of_rows, of_cols in factors]).sum(0)
    return (size / system.diagonal.sqrt()).topk(min(count, len(observed))).indices.sort().values


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
        query = query.in_precision(system.terms)
    nearest = nearest_observations(system, query, system.limits.nearest)
    local = system.restricted(nearest)
    back = pair_covariance(system.terms, system.pairs, local.pairs)  # (T, J)
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
