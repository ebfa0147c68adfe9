"""A loss of a user's own, through a likelihood with a method data_loss: certified, and equal to a conic solver."""

import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import PrecomputedKernel
from mvgp.likelihoods import ConvexValue, Loss
from tests import randomness

SHAPE = (4, 5)


class HuberLoss(Loss):
    """Squares up to a distance of 1, then straight lines."""

    curvature = 1.0

    def __init__(self, targets):
        self.targets = targets

    def __call__(self, psi):
        off = psi - self.targets
        value = torch.where(off.abs() < 1, off.square() / 2, off.abs() - 0.5).sum()
        return ConvexValue(float(value), off.clamp(-1, 1), psi=psi)


class CurvedHuberLoss(HuberLoss):
    def second_derivatives(self, psi):
        return ((psi - self.targets).abs() < 1).double()


class SharpHuberLoss(HuberLoss):
    """With its conjugate: theta r + theta^2 / 2 within [-1, 1]."""

    def __call__(self, psi):
        at = super().__call__(psi)
        return ConvexValue(
            at.value, at.gradient, psi=psi, exact=lambda u: float((u * self.targets + u.square() / 2).sum())
        )


class HuberLikelihood:
    def __init__(self, kind=HuberLoss):
        self.kind = kind

    def data_loss(self, data, mean):
        return self.kind(data.values - mean(data.rows, data.cols))


def problem():
    rng = randomness.fixed_numpy_generator(5)
    kernels = []
    for size in SHAPE:
        a = rng.normal(size=(size, size))
        kernels.append(torch.from_numpy(a @ a.T / size + 0.3 * np.eye(size)))
    cells = np.sort(rng.choice(20, 13, replace=False))
    values = 2 * rng.normal(size=13)
    prior = mvgp.MatrixGP(*(PrecomputedKernel(k) for k in kernels))
    return prior, mvgp.ObservedMatrix(cells // 5, cells % 5, values, SHAPE), kernels


def conic(kernels, data, trace, ridge):
    import cvxpy as cp

    g_rows, g_cols = (np.linalg.cholesky(k.numpy()) for k in kernels)
    b = cp.Variable(SHAPE)
    psi = g_rows @ b @ g_cols.T
    picked = cp.hstack([psi[int(m), int(n)] for m, n in zip(data.rows, data.cols, strict=True)])
    loss = cp.sum(cp.huber(picked - data.values.numpy(), 1)) / 2
    problem = cp.Problem(cp.Minimize(loss + ridge / 2 * cp.sum_squares(b) + trace * cp.normNuc(b)))
    problem.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    return float(problem.value), torch.from_numpy(g_rows @ b.value @ g_cols.T)


@pytest.mark.parametrize("kind", [HuberLoss, SharpHuberLoss])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("solver", ["proximal", "dense", "hybrid"])
def test_it_is_certified_and_right(kind, share, solver):
    prior, data, kernels = problem()
    penalty = mvgp.SpectralElasticNet(0.6, share)
    model = mvgp.TraceGP(
        prior, HuberLikelihood(kind), penalty=penalty, solver=solver, tolerance=1e-6, max_iterations=5000, strict=True
    )
    posterior = model.fit(data)
    value, scores = conic(kernels, data, penalty.trace, penalty.ridge)
    assert posterior.certificate.relative_gap <= 1e-6
    assert posterior.certificate.dual - 1e-8 <= value <= posterior.certificate.primal + 1e-8
    if share < 1:
        torch.testing.assert_close(posterior.scores(), scores, atol=1e-2, rtol=0)


def test_the_plain_posterior():
    prior, data, kernels = problem()
    posterior = mvgp.FullGP(prior, HuberLikelihood(), tolerance=1e-8).fit(data)
    _, scores = conic(kernels, data, 0.0, 1.0)
    torch.testing.assert_close(posterior.scores(), scores, atol=1e-3, rtol=0)
    assert posterior.certificate.relative_gap <= 1e-8


def test_variances_need_second_derivatives_or_noise():
    prior, data, kernels = problem()
    with pytest.raises(InputError, match="second_derivatives"):
        mvgp.FullGP(prior, HuberLikelihood()).fit(data).variance([0], [0])
    noisy = HuberLikelihood()
    noisy.noise = torch.tensor(0.7)
    assert float(mvgp.FullGP(prior, noisy).fit(data).variance([0], [0])) > 0
    posterior = mvgp.TraceGP(prior, HuberLikelihood(CurvedHuberLoss), tolerance=1e-8).fit(data)
    k = torch.kron(*kernels)
    cells = data.rows * SHAPE[1] + data.cols
    psi = posterior.mean(data.rows, data.cols)
    inside = (psi - data.values).abs() < 1
    kept = cells[inside]
    gain = torch.linalg.solve(k[kept][:, kept] + torch.eye(len(kept)), k[kept]).T
    expected = (k - gain @ k[kept]).diagonal()
    rows, cols = torch.arange(20) // 5, torch.arange(20) % 5
    torch.testing.assert_close(posterior.variance(rows, cols), expected, atol=1e-8, rtol=1e-8)


def test_it_can_be_saved(tmp_path):
    prior, data, _ = problem()
    for kind in (HuberLoss, CurvedHuberLoss):
        posterior = mvgp.FullGP(prior, HuberLikelihood(kind)).fit(data)
        posterior.save(tmp_path / "own.mvgp")
        torch.testing.assert_close(mvgp.load(tmp_path / "own.mvgp").scores(), posterior.scores())


def test_a_likelihood_without_a_loss_is_refused():
    prior, _, _ = problem()
    with pytest.raises(InputError, match="data_loss"):
        mvgp.TraceGP(prior, object())
    with pytest.raises(InputError, match="data_loss"):
        mvgp.TraceGP(prior, HuberLikelihood)
