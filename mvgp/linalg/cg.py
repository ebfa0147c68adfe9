"""Conjugate gradients for several right-hand sides, with an explicit tolerance and a measured residual."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..checks import check_callable, check_float_tensor, check_tolerance, check_whole_number, shown
from ..errors import InputError
from .evidence import Evidence, Solution

RESTARTS = 4  # times the recurrence is begun anew from the true residual


def conjugate_gradients(
    matmul: Callable[[Tensor], Tensor],
    rhs: Tensor,
    *,
    tolerance: float,
    max_iterations: int = 1000,
    preconditioner: Callable[[Tensor], Tensor] | None = None,
) -> Solution:
    """Solve A x = b for a positive definite A.

    Each right-hand side stops when it has converged. The recurrence's own residual drifts away from the
    true one, so the true one is measured at the end, and the recurrence begun anew from it if need be.

    :param matmul: maps (T, C) to A times it.
    :param rhs: (T, C).
    :param tolerance: on ||b - A x|| / ||b||, for each column.
    :param max_iterations: products with A.
    :param preconditioner: maps (T, C) to an approximation of A^-1 times it.
    :return: (T, C) with the evidence; the caller decides whether a miss is an error.

    Example:
        >>> import torch
        >>> from mvgp.linalg import conjugate_gradients
        >>> found = conjugate_gradients(lambda x: 2 * x, torch.ones(3, 1), tolerance=1e-6)
        >>> found.value.flatten().tolist(), found.evidence.converged
        ([0.5, 0.5, 0.5], True)

    """
    check_callable(matmul, "matmul", "a function (T, C) -> (T, C)")
    if preconditioner is not None:
        check_callable(preconditioner, "preconditioner", "a function (T, C) -> (T, C)")
    check_float_tensor(rhs, "rhs", (None, None), finite=True)
    tolerance, max_iterations = check_tolerance(tolerance), check_whole_number(max_iterations, "max_iterations", 0)
    scale = rhs.norm(dim=0)  # (C,)
    safe = torch.where(scale > 0, scale, torch.ones_like(scale))
    answer = torch.zeros_like(rhs)
    residual = rhs.clone()
    products = 0
    relative = residual.norm(dim=0) / safe
    for _ in range(RESTARTS):
        open_ = (relative > tolerance).nonzero().squeeze(1)
        if len(open_) == 0 or products >= max_iterations:
            break
        step, used = _run(
            matmul, residual[:, open_], tolerance * safe[open_], max_iterations - products, preconditioner
        )
        answer[:, open_] += step
        products += used + 1
        residual[:, open_] = rhs[:, open_] - matmul(answer[:, open_])
        before, relative = relative, residual.norm(dim=0) / safe
        if (relative[open_] > 0.5 * before[open_]).all():
            break  # rounding, not the number of iterations, is what stands in the way
    worst = float(relative.max()) if relative.numel() else 0.0
    return Solution(answer, Evidence("cg", worst, tolerance, products))


def _run(
    matmul: Callable[[Tensor], Tensor],
    rhs: Tensor,
    target: Tensor,
    max_iterations: int,
    preconditioner: Callable[[Tensor], Tensor] | None,
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
