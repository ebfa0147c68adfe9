"""Slow and obvious references. Everything here is dense and in double precision."""

from __future__ import annotations

import math

import numpy as np
import torch

from tests.chance import mean_limit, variance_limit


def dense_laplacian(edges, num_nodes, weights=None):
    """Normalised Laplacian by loops, straight from the definition (Chung)."""
    w = np.zeros((num_nodes, num_nodes))
    for place, (i, j) in enumerate(edges):
        if i != j:
            value = 1.0 if weights is None else weights[place]
            w[i, j] += value
            w[j, i] += value
    degree = w.sum(1)
    lap = np.zeros_like(w)
    for i in range(num_nodes):
        for j in range(num_nodes):
            if degree[i] > 0 and degree[j] > 0:
                lap[i, j] = (i == j) - w[i, j] / np.sqrt(degree[i] * degree[j])
    return torch.from_numpy(lap)


def matrix_function(symmetric, function):
    values, vectors = torch.linalg.eigh(symmetric)
    return vectors @ torch.diag(function(values)) @ vectors.T


def dense_posterior(k_rows, k_cols, rows, cols, values, noise, prior_mean=None):
    """Mean (MN,) and covariance (MN, MN) by conditioning the whole joint Gaussian, equations (2) and (3).

    ``noise`` is (T,) or a number; cells are numbered row-major.
    """
    k = torch.kron(k_rows, k_cols)
    count = k_cols.shape[0]
    t = rows * count + cols
    mean = torch.zeros(k.shape[0], dtype=k.dtype) if prior_mean is None else prior_mean.flatten()
    a = k[t][:, t] + torch.diag(torch.as_tensor(noise, dtype=k.dtype).expand(len(t)))
    gain = torch.linalg.solve(a, k[t]).T  # (MN, T)
    return mean + gain @ (values - mean[t]), k - gain @ k[t]


def assert_moments(samples, mean, covariance):
    """That normal samples (S, Q) have this mean (Q,) and this covariance (Q, Q), within limits that hold for any seed."""
    count, size = samples.shape
    spread = covariance.diagonal().clamp_min(0).sqrt()
    rounding = 1e-6 * (1 + spread.max())
    assert ((samples.mean(0) - mean).abs() <= mean_limit(count, size) * spread + rounding).all()
    off = (samples.mT.cov().reshape(size, size) - covariance).abs()
    assert (off <= variance_limit(count, size * size) * torch.outer(spread, spread) + rounding).all()


def random_edges(rng, num_nodes, count):
    """Random links that leave the last node isolated and repeat some links in both directions."""
    edges = rng.integers(0, num_nodes - 1, (count, 2))
    return np.concatenate([edges, edges[:3, ::-1], edges[3:5]])


def conic_optimum(k_rows, k_cols, rows, cols, targets, weights, *, trace=0.0, ridge=0.0, radius=None):
    """The smallest objective of (5) or (6) by an interior-point solver, independent of ours."""
    import cvxpy as cp

    g_rows, g_cols = (np.linalg.cholesky(np.asarray(k)) for k in (k_rows, k_cols))
    b = cp.Variable((g_rows.shape[0], g_cols.shape[0]))
    psi = g_rows @ b @ g_cols.T
    picked = cp.hstack([psi[int(m), int(n)] for m, n in zip(rows, cols, strict=True)])
    loss = 0.5 * cp.sum(cp.multiply(np.asarray(weights), cp.square(picked - np.asarray(targets))))
    objective = loss + ridge / 2 * cp.sum_squares(b)
    if radius is None:
        problem = cp.Problem(cp.Minimize(objective + trace * cp.normNuc(b)))
    else:
        problem = cp.Problem(cp.Minimize(objective), [cp.normNuc(b) <= radius])
    problem.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    return float(problem.value)


def conic_additive(kernels, penalties, rows, cols, values, weights, *, margin=None, logistic=False):
    """Objective, psi (T,) and theta (T,) at the optimum of (12) by an interior-point solver, independent of ours.

    :param kernels: a pair for each term.
    :param values: (T,) targets; with a margin 1 for the positives and 0 for the negatives of each row, an order cone.
    :param logistic: whether the loss is that of logistic noise, values labels -1 and 1; theta is None then.
    """
    import cvxpy as cp

    total, penalty = 0, 0
    for pair, net in zip(kernels, penalties, strict=True):
        spectra = [np.linalg.eigh(np.asarray(k)) for k in pair]
        g_rows, g_cols = (v[:, s > 1e-12 * s.max()] * np.sqrt(s[s > 1e-12 * s.max()]) for s, v in spectra)
        b = cp.Variable((g_rows.shape[1], g_cols.shape[1]))
        total = total + g_rows @ b @ g_cols.T
        penalty = penalty + net.trace * cp.normNuc(b) + net.ridge / 2 * cp.sum_squares(b)
    psi = cp.hstack([total[int(m), int(n)] for m, n in zip(rows, cols, strict=True)])
    targets, constraints = np.asarray(values), []
    if margin is not None:
        targets, thresholds = cp.Variable(len(rows)), cp.Variable(int(rows.max()) + 1)
        for at, row in enumerate(rows.tolist()):
            positive = bool(values[at] > 0)
            constraints.append(targets[at] >= thresholds[row] + margin if positive else targets[at] <= thresholds[row])
    each = cp.logistic(-cp.multiply(targets, psi)) if logistic else 0.5 * cp.square(psi - targets)
    loss = cp.sum(cp.multiply(np.asarray(weights), each))
    problem = cp.Problem(cp.Minimize(loss + penalty), constraints)
    problem.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    found = torch.from_numpy(np.asarray(psi.value))
    aims = targets if margin is None else targets.value
    if logistic:
        return float(problem.value), found, None
    return float(problem.value), found, weights * (found - torch.as_tensor(aims))


def certified_distance(prior, *posteriors):
    r"""How far scores of certified means of one problem can be apart, whatever the problem; infinity without a ridge.

    The objective is strongly convex in the coefficients B with the ridge as its constant, so that
    :math:`\|B - B^*\| \le \sqrt{2\, gap / ridge}`, and a score is the inner product of B with a matrix of norm
    :math:`\sqrt{K_{mm} G_{nn}}`.
    """
    spread = math.prod(float(axis.covariance().diagonal().detach().max()) for axis in (prior.row_axis, prior.col_axis))
    if not all(one.penalty.ridge > 0 for one in posteriors):
        return math.inf
    return sum(math.sqrt(2 * max(one.certificate.gap, 0.0) / one.penalty.ridge * spread) for one in posteriors)


def assert_same_optimum(*posteriors):
    """Of certified means of one problem: no objective is below the lower bound of another (weak duality)."""
    lowest = min(one.certificate.primal for one in posteriors)
    highest = max(one.certificate.dual for one in posteriors)
    assert lowest >= highest - 1e-10 * abs(highest), (lowest, highest)
