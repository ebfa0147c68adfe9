r"""log det(K_TT + D) by stochastic Lanczos quadrature, preconditioned.

Conjugate gradients on A x = z with preconditioner M run the Lanczos process on :math:`M^{-1/2} A M^{-1/2}` from
:math:`M^{-1/2} z`. With rates a_j and ratios b_j its tridiagonal matrix has

.. math:: \tau_{jj} = \frac{1}{a_j} + \frac{b_{j-1}}{a_{j-1}}, \qquad \tau_{j,j+1} = \frac{\sqrt{b_j}}{a_j},

and :math:`(-1)^j M^{-1} r_j / (r_j^T M^{-1} r_j)^{1/2}` are its basis vectors times :math:`M^{-1/2}`. So the iteration
keeps its coefficients, and the logarithm follows from them by quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..checks import (
    check_flag,
    check_instance,
    check_iterations,
    check_memory,
    check_seed,
    check_tolerance,
    check_whole_number,
)
from ..errors import InputError
from ..linalg.conjugate_gradients import Solution, SolveReport
from ..linalg.pair_operator import PairLinearOperator
from ..linalg.pairs import PairIndex
from ..linalg.preconditioner import WoodburyPreconditioner
from ..linalg.solvers import make_solver
from ..tensor_checks import check_float_tensor, refuse_where
from .derivative import form_gradients, with_gradients

DROP = 1e-9  # directions of a gradient with a smaller share than this are left out
PROBES = 16
BASIS_BYTES = 256 * 2**20  # memory for the basis vectors of one batch of probes
STEPS = 32  # iterations that the size of a batch expects


def log_determinant(
    covariance: PairLinearOperator,
    noise: Tensor,
    reference: Reference,
    *,
    tolerance: float,
    max_iterations: int = 1000,
    derivative: bool = False,
) -> LogDeterminant:
    r"""For A = K_TT + D, log det A = log det M + tr log(M^-1/2 A M^-1/2), the trace by probes z with E[z z^T] = M.

    With e = M^-1/2 z each probe gives :math:`e^T \log(M^{-1/2} A M^{-1/2})\, e`, from the coefficients of conjugate
    gradients on A x = z. The estimate has no bias, and no error at all where A = M. It is a smooth function of A,
    and ``vectors`` hold its own derivative, not another estimate of the true one.

    :param covariance: K_TT (T, T).
    :param noise: (T,) diagonal of D.
    :param reference: M and the probes.
    :param tolerance: relative residual of the runs; missing it is an error.
    :param max_iterations: of a run.
    :param derivative: whether to keep the vectors that the derivative is made of; they are kept in any case if
        covariance or noise require a gradient.
    """
    check_noise(covariance, noise)
    check_instance(reference, "reference", Reference, "mvgp.hyperparameters.probes.Reference")
    if not reference.fits(covariance.left):
        raise InputError("reference: expected one of the same pairs, got one of others")
    tolerance, max_iterations = check_tolerance(tolerance), check_iterations(max_iterations)
    differentiate = torch.is_grad_enabled() and any(t.requires_grad for t in (*covariance.representation(), noise))
    keep = check_flag(derivative, "derivative") or differentiate
    fixed, each_noise = covariance.detach(), noise.detach().unsqueeze(1)

    def matmul(x: Tensor) -> Tensor:
        return fixed._matmul(x) + each_noise * x

    size, count = reference.probes.shape
    width = max(1, BASIS_BYTES // (size * STEPS * reference.probes.element_size()))
    values, kept, residual, products = [], [], 0.0, 0
    with torch.no_grad():
        for probes in reference.probes.split(width, dim=1):
            # the recurrence's own residual drifts from the true one
            run = krylov(matmul, reference.apply, probes, 0.9 * tolerance, max_iterations, keep_basis=keep)
            gap = (probes - matmul(run.solution)).norm(dim=0) / probes.norm(dim=0)
            residual, products = max(residual, float(gap.max())), max(products, run.diagonal.shape[1] + 1)
            quadrature, eigenvalues, eigenvectors = log_quadrature(run)
            values.append(quadrature)
            if keep:
                kept.append(log_derivative(run, eigenvalues, eigenvectors) / count**0.5)
        solve_report = SolveReport("cg", residual, tolerance, products)
        Solution(reference.probes, solve_report).checked()
        each = reference.log_det + torch.cat(values)
        vectors = torch.cat(kept, dim=1) if keep else None
    value = each.mean()
    if differentiate and vectors is not None:
        value = with_gradients(value, form_gradients(covariance, noise, vectors, vectors.new_ones(vectors.shape[1])))
    return LogDeterminant(value, each, float(each.std()) / count**0.5, vectors, solve_report)


@dataclass(frozen=True)
class LogDeterminant:
    r"""An estimate of log det A.

    :param value: (), with gradients to the covariance and the noise where they were requested.
    :param each: (P,) the estimate from each probe alone; without a gradient.
    :param standard_error: of the value, from the spread over the probes.
    :param vectors: (T, C) with :math:`\sum_c x_c^T dA\, x_c` the derivative of the value; None unless requested.
    :param solve_report: how well A x = z was solved for the probes z.
    """

    value: Tensor
    each: Tensor
    standard_error: float
    vectors: Tensor | None
    solve_report: SolveReport


@dataclass(frozen=True)
class Reference:
    r"""M = F F^T + D of some parameters, or M = D where the spectrum is narrow.

    log det A = log det M + tr log(M^-1/2 A M^-1/2) holds for any M, so M may stay the same while the parameters of A
    move: then the estimate is a smooth function of them, as an optimiser needs it.

    :param pairs: the T observed cells.
    :param noise: (T,) diagonal of D.
    :param preconditioner: applies M^-1; None stands for D^-1.
    :param probes: (T, P) with expectation of z z^T equal to M.
    :param log_det: () log det M.
    """

    pairs: PairIndex
    noise: Tensor
    preconditioner: WoodburyPreconditioner | None
    probes: Tensor
    log_det: Tensor

    @classmethod
    @torch.no_grad()
    def build(
        cls,
        covariance: PairLinearOperator,
        noise: Tensor,
        *,
        probes: int = PROBES,
        seed: int = 0,
        precondition: bool = True,
    ) -> Reference:
        """The reference of a covariance K_TT (T, T) and ``noise`` (T,).

        :param probes: how many, at least 2.
        :param seed: of the probes; the same seed gives the same ones.
        :param precondition: False takes M = D in any case.
        """
        probes, seed = check_whole_number(probes, "probes", 2), check_seed(seed)  # an error bar needs 2
        check_noise(covariance, noise)
        check_memory(float(probes) * len(noise), "probes", f"{probes} vectors of {len(noise)} numbers each")
        fixed, noise = covariance.detach(), noise.detach()
        preconditioner = None
        if check_flag(precondition, "precondition"):
            solver: Any = make_solver(fixed.row_op, fixed.col_op, fixed.left, noise, method="cg")
            preconditioner = solver.preconditioner
        generator = torch.Generator().manual_seed(seed)
        below = noise.sqrt().unsqueeze(1) * _signs(len(noise), probes, generator, noise)
        log_det = noise.log().sum()
        if preconditioner is None or preconditioner.rank == 0:
            return cls(fixed.left, noise, None, below, log_det)
        log_det = log_det + 2 * preconditioner.chol.diagonal().log().sum()
        above = preconditioner.up(_signs(preconditioner.rank, probes, generator, noise))
        return cls(fixed.left, noise, preconditioner, above + below, log_det)

    def apply(self, dense: Tensor) -> Tensor:
        """(T, C): M^-1 times (T, C)."""
        check_float_tensor(dense, "dense", (len(self.pairs), None), like=self.noise)
        return dense / self.noise.unsqueeze(1) if self.preconditioner is None else self.preconditioner(dense)

    def fits(self, pairs: PairIndex) -> bool:
        """Whether it was made for these pairs."""
        check_instance(pairs, "pairs", PairIndex, "a PairIndex")
        return torch.equal(self.pairs.rows, pairs.rows) and torch.equal(self.pairs.cols, pairs.cols)


def check_noise(covariance: Any, noise: Any) -> None:
    """K_TT of observed pairs, and (T,) positive noise."""
    check_instance(covariance, "covariance", PairLinearOperator, "a PairLinearOperator")
    check_float_tensor(noise, "noise", (covariance.shape[-1],), like=covariance, finite=True)
    refuse_where(noise.detach() <= 0, noise.detach(), "noise", "a positive number")


def _signs(count: int, probes: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """(count, probes) of -1 and 1."""
    bits = torch.randint(0, 2, (count, probes), generator=generator)
    return (2 * bits - 1).to(dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class Krylov:
    """What C runs leave behind; a run that ended early is padded with decoupled steps.

    :param solution: (T, C) approximations of A^-1 z.
    :param diagonal: (C, J) of the tridiagonal matrices.
    :param beside: (C, J - 1) beside the diagonal.
    :param scale: (C,) z^T M^-1 z.
    :param basis: J matrices (T, C), the basis vectors times M^-1/2; empty unless requested.
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
    tolerance: float,
    max_iterations: int,
    *,
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
    scale, live, ones = ry.clone(), ry > 0, torch.ones_like(ry)
    rates: list[Tensor] = []
    ratios: list[Tensor] = []
    basis: list[Tensor] = []
    sign = 1.0
    while live.any() and len(rates) < max_iterations:
        if keep_basis:
            basis.append(torch.where(live, sign * y / torch.where(live, ry, ones).sqrt(), 0))
        ap = matmul(p)
        curvature = (p * ap).sum(0)
        live = live & (curvature > 0)
        rate = torch.where(live, ry / torch.where(live, curvature, ones), ones)
        step = torch.where(live, rate, 0)
        x += step * p
        r -= step * ap
        y = precondition(r)
        following = (r * y).sum(0)
        live = live & (r.norm(dim=0) > goal) & (following > 0)
        ratio = torch.where(live, following / torch.where(live, ry, ones), 0)
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
    ratio = (values.unsqueeze(2) - values.unsqueeze(1)) / values.unsqueeze(1)  # (C, J, J): t_j / t_k - 1
    close = ratio.abs() < 1e-6
    safe = torch.where(close, 1.0, ratio)
    divided = torch.where(close, 1 - ratio / 2, torch.log1p(safe) / safe) / values.unsqueeze(1)
    weight = divided * first.unsqueeze(1) * first.unsqueeze(2)
    share, inner = torch.linalg.eigh(vectors @ weight @ vectors.mT)
    parts = []
    for c in range(share.shape[0]):
        kept = share[c] > DROP * share[c, -1]
        mix = inner[c][:, kept] * share[c, kept].sqrt()  # (J, K)
        parts.append(torch.stack([vector[:, c] for vector in run.basis], dim=1) @ mix)
    return torch.cat(parts, dim=1)
