r"""Bounds on :math:`b^T A^{-1} b` from conjugate gradients: what a variance needs, and when to stop.

The value at step k is Gauss quadrature and lies below the truth; with a lower bound mu on the eigenvalues of A,
Gauss-Radau quadrature lies above it (Golub and Meurant; the update is Meurant and Tichy's). Both come from
the coefficients of the iteration, at no cost. The error of the form is the square of that of the solution, so that
a few products give it to one per cent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


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
    matmul: Callable[[Tensor], Tensor],
    rhs: Tensor,
    *,
    least: float,
    allowed: Callable[[Tensor, Tensor], Tensor],
    preconditioner: Callable[[Tensor], Tensor] | None = None,
    max_iterations: int = 1000,
) -> FormBounds:
    r"""Bounds on :math:`b^T A^{-1} b` for every column b of ``rhs``, as close as asked.

    :param matmul: maps (T, C) to A times it.
    :param rhs: (T, C).
    :param least: lower bound on the eigenvalues of A, or of :math:`M^{-1} A` with a preconditioner; positive.
    :param allowed: which columns (C',) and their lower bounds (C',) -> how far the upper ones may be above them.
    :param preconditioner: maps (T, C) to :math:`M^{-1}` times it.

    Example:
        >>> import torch
        >>> from mvgp.linalg.quadratic_form import quadratic_form
        >>> a, b = torch.tensor([[2.0, 1.0], [1.0, 2.0]]).double(), torch.ones(2, 1).double()
        >>> found = quadratic_form(lambda x: a @ x, b, least=1.0, allowed=lambda which, low: 1e-9 * low)
        >>> bool((found.lower <= 2 / 3 + 1e-12) & (found.upper >= 2 / 3 - 1e-12))
        True

    """
    lower, upper = rhs.new_zeros(rhs.shape[1]), rhs.new_zeros(rhs.shape[1])
    which = torch.arange(rhs.shape[1], device=rhs.device)
    r = rhs
    z = preconditioner(r) if preconditioner else r
    rz = (r * z).sum(0)
    upper[:] = rz / least
    low, radau, p = lower.clone(), torch.full_like(rz, 1 / least), z
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
        # A is at least `least`, so the step is at most 1 / least, but for rounding
        rate = torch.minimum(rz / (p * ap).sum(0).clamp_min(torch.finfo(rz.dtype).tiny), radau)
        low = low + rate * rz
        r = r - rate * ap
        z = preconditioner(r) if preconditioner else r
        rz_next = (r * z).sum(0)
        fall = rz_next / rz
        over_rate = radau - rate  # >= 0
        radau = over_rate / (least * over_rate + fall).clamp_min(torch.finfo(rz.dtype).tiny)
        p = z + fall * p
        rz = rz_next
