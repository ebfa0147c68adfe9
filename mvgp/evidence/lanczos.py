r"""Preconditioned conjugate gradients that keep their coefficients, and quadrature of the logarithm from them.

Conjugate gradients on A x = z with preconditioner M run the Lanczos process on :math:`M^{-1/2} A M^{-1/2}` from
:math:`M^{-1/2} z`. With rates a_j and ratios b_j its tridiagonal matrix has

.. math:: \tau_{jj} = \frac{1}{a_j} + \frac{b_{j-1}}{a_{j-1}}, \qquad \tau_{j,j+1} = \frac{\sqrt{b_j}}{a_j},

and :math:`(-1)^j M^{-1} r_j / (r_j^T M^{-1} r_j)^{1/2}` are its basis vectors times :math:`M^{-1/2}`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

DROP = 1e-9  # directions of a gradient with a smaller share than this are left out


@dataclass(frozen=True)
class Krylov:
    """What C runs leave behind; a run that ended early is padded with decoupled steps.

    :param solution: (T, C) approximations of A^-1 z.
    :param diagonal: (C, J) of the tridiagonal matrices.
    :param beside: (C, J - 1) beside the diagonal.
    :param scale: (C,) z^T M^-1 z.
    :param basis: J matrices (T, C), the basis vectors times M^-1/2; empty unless they were asked for.
    """

    solution: Tensor
    diagonal: Tensor
    beside: Tensor
    scale: Tensor
    basis: list[Tensor]


def krylov(
    matmul: Callable[[Tensor], Tensor],
    precondition: Callable[[Tensor], Tensor],
    probes: Tensor,
    *,
    tolerance: float,
    max_iterations: int,
    keep_basis: bool,
) -> Krylov:
    """Conjugate gradients from zero for ``probes`` (T, C), until every relative residual is at ``tolerance``.

    :param matmul: maps (T, C) to A times it.
    :param precondition: maps (T, C) to M^-1 times it.
    """
    goal = tolerance * probes.norm(dim=0)  # (C,)
    x, r = torch.zeros_like(probes), probes.clone()
    y = precondition(r)
    p, ry = y.clone(), (r * y).sum(0)
    scale, live, one = ry.clone(), ry > 0, torch.ones_like(ry)
    rates: list[Tensor] = []
    ratios: list[Tensor] = []
    basis: list[Tensor] = []
    sign = 1.0
    while live.any() and len(rates) < max_iterations:
        if keep_basis:
            basis.append(torch.where(live, sign * y / torch.where(live, ry, one).sqrt(), 0))
        ap = matmul(p)
        curvature = (p * ap).sum(0)
        live = live & (curvature > 0)
        rate = torch.where(live, ry / torch.where(live, curvature, one), one)
        step = torch.where(live, rate, 0)
        x += step * p
        r -= step * ap
        y = precondition(r)
        following = (r * y).sum(0)
        live = live & (r.norm(dim=0) > goal) & (following > 0)
        ratio = torch.where(live, following / torch.where(live, ry, one), 0)
        rates.append(rate)
        ratios.append(ratio)
        p = torch.where(live, y + ratio * p, 0)
        ry, sign = following, -sign
    if not rates:  # nothing to do: all probes are zero
        return Krylov(x, torch.ones_like(scale).unsqueeze(1), scale.new_zeros(len(scale), 0), scale, [])
    a, b = torch.stack(rates, dim=1), torch.stack(ratios, dim=1)  # (C, J)
    diagonal = 1 / a
    diagonal[:, 1:] += b[:, :-1] / a[:, :-1]
    return Krylov(x, diagonal, b[:, :-1].sqrt() / a[:, :-1], scale, basis)


def log_quadrature(run: Krylov) -> tuple[Tensor, Tensor, Tensor]:
    r"""(C,) values of :math:`e^T \log(M^{-1/2} A M^{-1/2})\, e` with e = M^-1/2 z, and the eigenpairs they came from.

    Gauss quadrature: with eigenvalues t_j (C, J) and eigenvectors q_j (C, J, J) of the tridiagonal matrices it is
    :math:`z^T M^{-1} z \sum_j q_{1j}^2 \log t_j`.
    """
    small = torch.diag_embed(run.diagonal)
    small = small + torch.diag_embed(run.beside, 1) + torch.diag_embed(run.beside, -1)
    values, vectors = torch.linalg.eigh(small)
    return run.scale * (vectors[:, 0].square() * values.log()).sum(-1), values, vectors


def log_derivative(run: Krylov, values: Tensor, vectors: Tensor) -> Tensor:
    r"""(T, C'): vectors x with :math:`\sum_c x_c^T\, dA\, x_c` the derivative of the sum of all quadratures.

    In the eigenvectors of a symmetric matrix the derivative of its logarithm multiplies entry (j, k) of the change by
    the divided difference :math:`(\log t_j - \log t_k) / (t_j - t_k)`. Applied to the tridiagonal matrix, that leaves
    a positive semi-definite J x J matrix for each run, whose leading eigenvectors are combined from the basis.
    """
    first = vectors[:, 0] * run.scale.sqrt().unsqueeze(1)  # (C, J)
    weight = _divided_log(values) * first.unsqueeze(1) * first.unsqueeze(2)  # (C, J, J)
    share, inner = torch.linalg.eigh(vectors @ weight @ vectors.mT)
    found = []
    for c in range(share.shape[0]):
        kept = share[c] > DROP * share[c, -1]
        mix = inner[c][:, kept] * share[c, kept].sqrt()  # (J, K)
        found.append(torch.stack([vector[:, c] for vector in run.basis], dim=1) @ mix)
    return torch.cat(found, dim=1)


def _divided_log(values: Tensor) -> Tensor:
    """(C, J, J): (log t_j - log t_k) / (t_j - t_k), and 1 / t_j where they are equal."""
    one, other = values.unsqueeze(2), values.unsqueeze(1)
    x = (one - other) / other
    near = x.abs() < 1e-6
    safe = torch.where(near, 1.0, x)
    return torch.where(near, 1 - x / 2, torch.log1p(safe) / safe) / other
