r"""Stochastic Lanczos quadrature of log det(K_TT + D), preconditioned."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..checks import check_flag, check_instance, check_iterations, check_tolerance
from ..errors import InputError
from ..linalg import Evidence, PairLinearOperator, Solution
from .derivative import form_gradients, with_gradients
from .lanczos import krylov, log_derivative, log_quadrature
from .reference import Reference, check_noise

BASIS_BYTES = 256 * 2**20  # memory for the basis vectors of one batch of probes
STEPS = 32  # iterations that the size of a batch expects


@dataclass(frozen=True)
class LogDeterminant:
    r"""An estimate of log det A.

    :param value: (), with gradients to the covariance and the noise where they were asked for.
    :param each: (P,) the estimate from each probe alone; without a gradient.
    :param standard_error: of the value, from the spread over the probes.
    :param vectors: (T, C) with :math:`\sum_c x_c^T dA\, x_c` the derivative of the value; None unless asked for.
    :param evidence: how well A x = z was solved for the probes z.
    """

    value: Tensor
    each: Tensor
    standard_error: float
    vectors: Tensor | None
    evidence: Evidence


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
    check_instance(reference, "reference", Reference, "mvgp.evidence.Reference")
    if not reference.fits(covariance.left):
        raise InputError("reference: expected one of the same pairs, got one of others")
    tolerance, max_iterations = check_tolerance(tolerance), check_iterations(max_iterations)
    derivative = check_flag(derivative, "derivative")
    wanted = torch.is_grad_enabled() and any(t.requires_grad for t in (*covariance.representation(), noise))
    with torch.no_grad():
        found = _estimate(covariance, noise, reference, tolerance, max_iterations, derivative or wanted)
    if not wanted or found.vectors is None:
        return found
    ones = found.vectors.new_ones(found.vectors.shape[1])
    return replace(found, value=with_gradients(found.value, form_gradients(covariance, noise, found.vectors, ones)))


def _estimate(
    covariance: PairLinearOperator,
    noise: Tensor,
    reference: Reference,
    tolerance: float,
    max_iterations: int,
    derivative: bool,
) -> LogDeterminant:
    fixed, each_noise = covariance.detach(), noise.detach().unsqueeze(1)

    def matmul(x: Tensor) -> Tensor:
        return fixed._matmul(x) + each_noise * x

    size, count = reference.probes.shape
    width = max(1, BASIS_BYTES // (size * STEPS * reference.probes.element_size()))
    values, vectors, residual, products = [], [], 0.0, 0
    for start in range(0, count, width):
        probes = reference.probes[:, start : start + width]
        run = krylov(
            matmul,
            reference.apply,
            probes,
            tolerance=0.9 * tolerance,  # the recurrence's own residual drifts from the true one
            max_iterations=max_iterations,
            keep_basis=derivative,
        )
        gap = (probes - matmul(run.solution)).norm(dim=0) / probes.norm(dim=0)
        residual, products = max(residual, float(gap.max())), max(products, run.diagonal.shape[1] + 1)
        found, eigenvalues, eigenvectors = log_quadrature(run)
        values.append(found)
        if derivative:
            vectors.append(log_derivative(run, eigenvalues, eigenvectors) / count**0.5)
    evidence = Evidence("cg", residual, tolerance, products)
    Solution(reference.probes, evidence).checked()
    each = reference.log_det + torch.cat(values)
    error = float(each.std()) / count**0.5
    return LogDeterminant(each.mean(), each, error, torch.cat(vectors, dim=1) if derivative else None, evidence)
