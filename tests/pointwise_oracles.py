"""Slow and obvious references for pointwise likelihoods: variational inference and Laplace's approximation in plain torch."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import integrate, optimize

NODES = 60


def log_density(kind, y, z):
    """ln p(y | z) as on paper; ``y`` are labels 0 and 1, counts, or numbers."""
    if kind == "probit":
        return torch.special.log_ndtr((2 * y - 1) * z)
    if kind == "logistic":
        return torch.nn.functional.logsigmoid((2 * y - 1) * z)
    if kind == "log poisson":
        return y * z - z.exp() - torch.lgamma(y + 1)
    rate = torch.nn.functional.softplus(z)
    return y * rate.log() - rate - torch.lgamma(y + 1)


def expected(kind, y, mean, variance):
    """E ln p under N(mean, variance) by many nodes."""
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.hermite.hermgauss(NODES))
    z = mean + (2 * variance).sqrt() * nodes.unsqueeze(1)
    return (weights.unsqueeze(1) * log_density(kind, y, z)).sum(0) / math.sqrt(math.pi)


def direct_variational(kind, k, y, offset, weights):
    """Mean (T,), covariance (T, T) and bound of the best Gaussian: L-BFGS over the mean and a whole Cholesky factor."""
    size = len(y)
    root = torch.linalg.cholesky(k)
    lower = torch.tril_indices(size, size)

    def parts(vector):
        free = torch.from_numpy(vector).requires_grad_(True)
        factor = torch.zeros(size, size, dtype=k.dtype).index_put((lower[0], lower[1]), free[size:])
        return free, free[:size], factor

    def bound(white, factor):
        spread = root @ factor  # of the latent values
        fit = (weights * expected(kind, y, offset + root @ white, spread.square().sum(1))).sum()
        log_det = factor.diagonal().abs().log().sum()
        return fit - (factor.square().sum() + white.square().sum() - size) / 2 + log_det

    def call(vector):
        free, white, factor = parts(vector)
        value = -bound(white, factor)
        value.backward()
        return float(value.detach()), free.grad.numpy()

    start = np.concatenate([np.zeros(size), torch.eye(size, dtype=k.dtype)[lower[0], lower[1]].numpy()])
    found = optimize.minimize(
        call, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "maxfun": 5000, "ftol": 1e-15, "gtol": 1e-9}
    )
    _, white, factor = parts(found.x)
    spread = (root @ factor).detach()
    return offset + root @ white.detach(), spread @ spread.T, -float(found.fun)


def dense_laplace(kind, k, y, offset, weights):
    """Mean (T,), covariance (T, T) and log evidence: Newton's method on the latent values with the inverse of K."""
    inverse = torch.linalg.inv(k)
    z = offset.clone()

    def energy(at):
        return -(weights * log_density(kind, y, at)).sum() + (at - offset) @ inverse @ (at - offset) / 2

    for _ in range(100):
        gradient = torch.autograd.functional.jacobian(energy, z)
        hessian = torch.autograd.functional.hessian(energy, z)
        step, scale = torch.linalg.solve(hessian, gradient), 1.0
        while energy(z - scale * step) > energy(z) + 1e-13 * abs(energy(z)):
            scale /= 2
        z = z - scale * step
        if float(step.abs().max()) < 1e-14:
            break
    hessian = torch.autograd.functional.hessian(energy, z)
    evidence = -energy(z) - (torch.linalg.slogdet(hessian)[1] + torch.linalg.slogdet(k)[1]) / 2
    return z, torch.linalg.inv(hessian), float(evidence)


def predicted(kind, mean, variance, y):
    """E p(y | z) under N(mean, variance), one number, by adaptive quadrature."""

    def integrand(z):
        density = math.exp(-((z - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
        return density * math.exp(float(log_density(kind, torch.tensor(float(y)), torch.tensor(z))))

    width = 12 * math.sqrt(variance)
    return integrate.quad(integrand, mean - width, mean + width, limit=200)[0]


def logistic_trace_optimum(k_rows, k_cols, rows, cols, signs, weights, *, trace, ridge):
    """The smallest sum of w ln(1 + exp(-y psi)) plus the spectral elastic net, by an interior-point solver."""
    import cvxpy as cp

    g_rows, g_cols = (np.linalg.cholesky(np.asarray(k)) for k in (k_rows, k_cols))
    b = cp.Variable((g_rows.shape[0], g_cols.shape[0]))
    psi = g_rows @ b @ g_cols.T
    picked = cp.hstack([psi[int(m), int(n)] for m, n in zip(rows, cols, strict=True)])
    loss = cp.sum(cp.multiply(np.asarray(weights), cp.logistic(-cp.multiply(np.asarray(signs), picked))))
    problem = cp.Problem(cp.Minimize(loss + ridge / 2 * cp.sum_squares(b) + trace * cp.normNuc(b)))
    problem.solve(solver="CLARABEL", tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)
    return float(problem.value), (g_rows @ b.value @ g_cols.T)
