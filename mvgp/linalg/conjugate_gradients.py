r"""Conjugate gradients: solutions of A x = b with a report, and bounds on :math:`b^T A^{-1} b`.

A variance needs the quadratic form only. Its value at step k is Gauss quadrature and lies below the truth; with a
lower bound mu on the eigenvalues of A, Gauss-Radau quadrature lies above it (Golub and Meurant; the update is Meurant
and Tichy's). Both come from the coefficients of the iteration, at no cost. The error of the form is the square of that
of the solution, so a few products give it to one per cent.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..checks import check_callable, check_tolerance, check_whole_number, shown
from ..errors import ConvergenceError, InputError
from ..progress import report_step
from ..tensor_checks import check_float_tensor

Map = Callable[[Tensor], Tensor]  # (T, C) to (T, C)
RESTARTS = 4  # times the recurrence is begun anew from the true residual


@dataclass(frozen=True)
class SolveReport:
    """How well a linear system was solved.

    :param method: ``cholesky``, ``spectral`` or ``cg``.
    :param residual: largest relative residual ||b - A x|| / ||b|| over the right-hand sides, measured
        on the answer itself, not taken from a recurrence.
    :param tolerance: the requested relative residual.
    :param iterations: products with the matrix (0 for a direct method).
    """

    method: str
    residual: float
    tolerance: float
    iterations: int = 0

    @property
    def converged(self) -> bool:
        """Whether the residual is within the tolerance."""
        return self.residual <= self.tolerance

    def in_words(self) -> str:
        """The method and the residual in a line."""
        steps = f", {self.iterations:,} iterations" if self.iterations else ""
        verdict = "within" if self.converged else "MISSES"
        return f"by {self.method}{steps}: relative residual {self.residual:.1e}, {verdict} {self.tolerance:.0e}"


@dataclass(frozen=True)
class Solution:
    """The solution of a linear system.

    :param value: (T, C).
    :param solve_report: how well it solves the system.
    :param residual: (T, C) what it leaves of the right-hand sides; None where that was not kept.
    """

    value: Tensor
    solve_report: SolveReport
    residual: Tensor | None = None

    def checked(self, *, strict: bool = True) -> Solution:
        """Itself; a missed tolerance raises :class:`~mvgp.errors.ConvergenceError`, or warns if not ``strict``."""
        report = self.solve_report
        if report.converged:
            return self
        steps = f" after {report.iterations} iterations" if report.iterations else ""
        message = (
            f"{report.method} ended with relative residual {report.residual:.2e}{steps}, the tolerance is "
            f"{report.tolerance:.2e}; raise the noise, allow more iterations, use float64, or accept a larger tolerance"
        )
        if strict:
            raise ConvergenceError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return self


def conjugate_gradients(
    matmul: Map,
    rhs: Tensor,
    *,
    tolerance: float,
    max_iterations: int = 1000,
    preconditioner: Map | None = None,
    start: Tensor | None = None,
    start_residual: Tensor | None = None,
) -> Solution:
    """Solve A x = b for a positive definite A.

    Each right-hand side stops when it has converged. The recurrence's own residual drifts away from the
    true one, so the true one is measured at the end, and the recurrence begun anew from it if need be.

    :param matmul: maps (T, C) to A times it.
    :param rhs: (T, C).
    :param tolerance: on ||b - A x|| / ||b||, for each column.
    :param max_iterations: products with A.
    :param preconditioner: maps (T, C) to an approximation of A^-1 times it.
    :param start: (T, C) to begin from; 0 when left out.
    :param start_residual: (T, C) b - A start, where that is known; it saves a product.
    :return: (T, C) with a report; the caller decides whether a miss is an error.

    Example:
        >>> import torch
        >>> from mvgp.linalg.conjugate_gradients import conjugate_gradients
        >>> found = conjugate_gradients(lambda x: 2 * x, torch.ones(3, 1), tolerance=1e-6)
        >>> found.value.flatten().tolist(), found.solve_report.converged
        ([0.5, 0.5, 0.5], True)

    """
    check_callable(matmul, "matmul", "a function (T, C) -> (T, C)")
    if preconditioner is not None:
        check_callable(preconditioner, "preconditioner", "a function (T, C) -> (T, C)")
    check_float_tensor(rhs, "rhs", (None, None), finite=True)
    tolerance, max_iterations = check_tolerance(tolerance), check_whole_number(max_iterations, "max_iterations", 0)
    scale = rhs.norm(dim=0)  # (C,)
    safe = torch.where(scale > 0, scale, torch.ones_like(scale))
    answer, residual, products = torch.zeros_like(rhs), rhs.clone(), 0
    if start is not None:
        answer = check_float_tensor(start, "start", tuple(rhs.shape), rhs, finite=True).clone()
        residual, products = (rhs - matmul(answer), 1) if start_residual is None else (start_residual.clone(), 0)
    relative = residual.norm(dim=0) / safe
    for _ in range(RESTARTS):
        open_ = (relative > tolerance).nonzero().squeeze(1)
        if len(open_) == 0 or products >= max_iterations:
            break
        target, left = tolerance * safe[open_], max_iterations - products
        step, used = _run(matmul, residual[:, open_], target, left, preconditioner)
        answer[:, open_] += step
        products += used + 1
        residual[:, open_] = rhs[:, open_] - matmul(answer[:, open_])
        before, relative = relative, residual.norm(dim=0) / safe
        if (relative[open_] > 0.5 * before[open_]).all():
            break  # rounding, not the number of iterations, is what stands in the way
    worst = float(relative.max()) if relative.numel() else 0.0
    return Solution(answer, SolveReport("cg", worst, tolerance, products), residual)


def _run(
    matmul: Map, rhs: Tensor, target: Tensor, max_iterations: int, preconditioner: Map | None
) -> tuple[Tensor, int]:
    """The textbook recurrence from zero; columns leave when their residual norm is at ``target`` (C,)."""
    answer = torch.zeros_like(rhs)
    active = torch.arange(rhs.shape[1], device=rhs.device)
    x, r, goal = torch.zeros_like(rhs), rhs.clone(), target
    z = preconditioner(r) if preconditioner else r
    p, rz = z.clone(), (r * z).sum(0)
    used = 0
    while used < max_iterations and len(active):
        ap = matmul(p)
        if not isinstance(ap, Tensor) or ap.shape != p.shape:
            came = tuple(ap.shape) if isinstance(ap, Tensor) else shown(ap)
            raise InputError(f"matmul: expected a product of shape {tuple(p.shape)}, got {came}")
        used += 1
        report_step()
        curvature = (p * ap).sum(0)
        usable = curvature > 0  # rounding can spoil a direction once the answer is exact
        rate = torch.where(usable, rz / torch.where(usable, curvature, torch.ones_like(curvature)), 0)
        x += rate * p
        r -= rate * ap
        stay = (r.norm(dim=0) > goal) & usable
        if not stay.all():
            answer[:, active] = x
            active, goal, rz = active[stay], goal[stay], rz[stay]
            x, r, p = x[:, stay], r[:, stay], p[:, stay]
            if len(active) == 0:
                break
        z = preconditioner(r) if preconditioner else r
        rz_next = (r * z).sum(0)
        p = z + (rz_next / rz) * p
        rz = rz_next
    answer[:, active] = x
    return answer, used


@dataclass(frozen=True)
class FormBounds:
    """Where the forms lie.

    :param lower: (C,) at most the truth.
    :param upper: (C,) at least the truth.
    :param products: how many products with A were needed.
    """

    lower: Tensor
    upper: Tensor
    products: int


def quadratic_form(
    matmul: Map,
    rhs: Tensor,
    *,
    lowest_eigenvalue: float,
    allowed: Callable[[Tensor, Tensor], Tensor],
    preconditioner: Map | None = None,
    max_iterations: int = 1000,
) -> FormBounds:
    r"""Bounds on :math:`b^T A^{-1} b` for every column b of ``rhs``, as close as asked.

    :param matmul: maps (T, C) to A times it.
    :param rhs: (T, C).
    :param lowest_eigenvalue: positive lower bound on the eigenvalues of A, or of :math:`M^{-1} A` with a
        preconditioner.
    :param allowed: which columns (C',) and their lower bounds (C',) -> how far the upper ones may be above them.
    :param preconditioner: maps (T, C) to :math:`M^{-1}` times it.

    Example:
        >>> import torch
        >>> from mvgp.linalg.conjugate_gradients import quadratic_form
        >>> a, b = torch.tensor([[2.0, 1.0], [1.0, 2.0]]).double(), torch.ones(2, 1).double()
        >>> found = quadratic_form(lambda x: a @ x, b, lowest_eigenvalue=1.0, allowed=lambda which, low: 1e-9 * low)
        >>> bool((found.lower <= 2 / 3 + 1e-12) & (found.upper >= 2 / 3 - 1e-12))
        True

    """
    lower, upper = rhs.new_zeros(rhs.shape[1]), rhs.new_zeros(rhs.shape[1])
    which = torch.arange(rhs.shape[1], device=rhs.device)
    r = rhs
    z = preconditioner(r) if preconditioner else r
    rz = (r * z).sum(0)
    upper[:] = rz / lowest_eigenvalue
    low, radau, p = lower.clone(), torch.full_like(rz, 1 / lowest_eigenvalue), z
    products = 0
    while True:
        over = radau * rz
        lower[which], upper[which] = low, low + over
        stay = (over > allowed(which, low)) & (rz > 0)
        if not stay.any() or products >= max_iterations:
            return FormBounds(lower, upper, products)
        if not stay.all():
            which, low, radau, rz = which[stay], low[stay], radau[stay], rz[stay]
            r, p = r[:, stay], p[:, stay]
        ap = matmul(p)
        products += 1
        report_step()
        # no eigenvalue is below lowest_eigenvalue, so the step is at most its inverse, but for rounding
        rate = torch.minimum(rz / (p * ap).sum(0).clamp_min(torch.finfo(rz.dtype).tiny), radau)
        low = low + rate * rz
        r = r - rate * ap
        z = preconditioner(r) if preconditioner else r
        rz_next = (r * z).sum(0)
        fall = rz_next / rz
        over_rate = radau - rate  # >= 0
        radau = over_rate / (lowest_eigenvalue * over_rate + fall).clamp_min(torch.finfo(rz.dtype).tiny)
        p = z + fall * p
        rz = rz_next
