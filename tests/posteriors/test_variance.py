"""Every way to a variance against dense conditioning, or within the error it states."""

from dataclasses import replace

import gpytorch
import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import ConvergenceError, InputError, SizeError
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.linalg.cost import Limits
from mvgp.models.recipe import condition
from mvgp.posteriors import all_cells
from tests import randomness
from tests.chance import variance_limit
from tests.oracles import random_edges
from tests.posteriors.test_full import PRIORS, M, N, X, assert_close, everything, gaussian, observe, oracle

EXACT = ["cholesky", "cg"]


def fitted(name="diffusion, polynomial", count=45, weighted=True, noise=0.3, limits=None, **options):
    prior = PRIORS[name]()
    data = observe(torch.randperm(M * N, generator=randomness.generator(1))[:count], weighted)
    posterior = mvgp.FullGP(prior, gaussian(noise), tolerance=1e-11, **options).fit(data)
    posterior.conditional.limits = limits or posterior.conditional.limits
    return posterior, oracle(prior, data, noise)[1]


@pytest.mark.parametrize("method", EXACT)
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize("name", PRIORS)
def test_exact_methods_equal_dense_conditioning(name, solver, method):
    posterior, covariance = fitted(name, method=solver)
    assert_close(posterior.variance(*everything(), method=method), covariance.diagonal())
    assert_close(posterior.variances(method="exact").values.flatten(), covariance.diagonal())
    assert not posterior.variances(method="exact").error.any()
    low, high = posterior.interval(*everything(), level=0.8)
    reach = 1.2815515655446004 * covariance.diagonal().clamp_min(0).sqrt()
    assert_close((high - low) / 2, reach, 1e-7)
    assert_close((high + low) / 2, posterior.mean(*everything()))


@pytest.mark.parametrize("name", PRIORS)
def test_joint_covariance_equals_dense_conditioning(name):
    posterior, covariance = fitted(name)
    pick = torch.randperm(M * N, generator=randomness.generator(3))[:20]
    rows, cols = everything()
    found = posterior.joint(rows[pick], cols[pick])
    assert_close(found.matrix, covariance[pick][:, pick])
    assert found.observations == 45
    samples = found.sample(20_000, randomness.generator(0))
    spread = covariance.diagonal()[pick].clamp_min(0).sqrt()
    limit = variance_limit(20_000, entries=20 * 20)  # 0.08
    assert ((samples.mT.cov() - found.matrix).abs() <= limit * torch.outer(spread, spread) + 1e-6).all()


@pytest.mark.parametrize("nearest", [3, 20, 4096])
@pytest.mark.parametrize("accuracy", [0.3, 0.01, 1e-5])
@pytest.mark.parametrize("name", ["diffusion, polynomial", "graph x inputs", "precomputed"])
def test_bounded_variances_are_as_accurate_as_they_say(name, accuracy, nearest):
    posterior, covariance = fitted(name, limits=Limits(nearest=nearest))
    truth = covariance.diagonal()
    found = posterior.variance(*everything(), method="bounded", accuracy=accuracy)
    slack = 1e-5 * truth.max() if accuracy >= 1e-3 else 1e-9  # single precision from 1e-3 on
    assert (found >= truth - slack).all()
    assert (found <= (1 + accuracy) * truth + slack).all()


def test_bounds_that_cannot_be_met_are_an_error():
    posterior, _ = fitted("graph x inputs", noise=1e-4, limits=Limits(nearest=2))
    posterior.conditional.max_iterations = 2
    with pytest.raises(ConvergenceError, match="not known to 1e-06 after 2 products"):
        posterior.variance(*everything(), method="bounded", accuracy=1e-6)


@pytest.mark.parametrize("name", PRIORS)
def test_cached_variances_are_never_too_small_and_become_exact(name):
    for size, exact in ((4, False), (60, True)):
        posterior, covariance = fitted(name)
        with gpytorch.settings.max_root_decomposition_size(size):
            found = posterior.variance(*everything(), method="cached")
        truth = covariance.diagonal()
        assert (found >= truth - 1e-8).all()
        prior = posterior.prior(*everything()).variance.detach()
        assert (found <= prior + 1e-12).all()
        if exact:
            assert_close(found, truth, 1e-6)
        assert_close(posterior.variance(*everything(), method="cached"), found)


def test_fast_pred_var_is_for_where_no_dense_factor_is_cheap():
    """With one it was slower, and up to 13.7 times too large."""
    posterior, covariance = fitted()
    with gpytorch.settings.fast_pred_var(), gpytorch.settings.max_root_decomposition_size(4):
        assert_close(posterior.variance(*everything()), covariance.diagonal())
        posterior, _ = fitted(limits=Limits(cholesky=0, dense=0))  # now a dense factor is out of reach
        rough = posterior.variance(*everything())
        assert_close(rough, posterior.variance(*everything(), method="cached"))
        joint = posterior(*everything())
        assert_close(joint.variance, rough.clamp_min(gpytorch.settings.min_variance.value(torch.float64)))


def test_joint_samples_have_the_posterior_mean():
    """They used to have mean 0. With the same noise, samples of a joint at zero differ by the mean exactly."""
    posterior, _ = fitted()
    rows, cols = torch.full((N,), 2), torch.arange(N)
    joint = posterior.joint(rows, cols)
    assert_close(joint.mean, posterior.mean(rows, cols))
    drawn = [part.sample(3, randomness.generator(0)) for part in (joint, replace(joint, mean=None))]
    assert_close(drawn[0] - drawn[1], posterior.mean(rows, cols).expand(3, N))
    assert float(posterior.mean(rows, cols).abs().max()) > 0.1


def test_variances_can_be_skipped_as_in_gpytorch():
    posterior, _ = fitted()
    with gpytorch.settings.skip_posterior_variances():
        joint = posterior([0, 1], [2, 3])
    assert_close(joint.mean, posterior.mean([0, 1], [2, 3]))
    assert not joint.lazy_covariance_matrix.to_dense().any()


def test_new_inputs_have_variances_by_every_method():
    posterior, _ = fitted("graph x inputs")
    new = X[:4] + 0.1
    where = [0, 1, 2, 3], [0, 1, 2, 3]
    truth = posterior.variance(*where, col_inputs=new, method="cholesky")
    assert_close(posterior.variance(*where, col_inputs=new, method="cg"), truth)
    bounded = posterior.variance(*where, col_inputs=new, method="bounded", accuracy=1e-4)
    torch.testing.assert_close(bounded, truth, rtol=1e-4, atol=0)


EVERY = 416  # a multiple of a batch of 32, and at least 400


def every_direction(probes, number):
    """Instead of a batch of random signs: unit vectors, times the square root of the number of all of them."""
    size = len(probes._diagonal)
    start = all_cells.BATCH * number
    units = torch.eye(size, EVERY, dtype=probes._diagonal.dtype)[:, start : start + all_cells.BATCH] * EVERY**0.5
    rest = probes._conditional.solve(units) - probes._diagonal.unsqueeze(1) * units
    return list(zip(units.float().mT.contiguous(), rest.float().mT.contiguous(), strict=True))


def rest_and_columns(posterior, data):
    """R = A^-1 without its diagonal (T, T), that diagonal, and the prior's covariance of observations and cells (T, MN)."""
    prior = posterior.prior
    with torch.no_grad():
        k = torch.kron(prior.row_axis.covariance().to_dense(), prior.col_axis.covariance().to_dense())
    at = data.rows * data.shape[1] + data.cols
    inverse = torch.linalg.inv(k[at][:, at] + torch.diag(0.3 / data.weights))
    return inverse - torch.diag(inverse.diagonal()), inverse.diagonal(), k[at]


def sign_forms(posterior, data, probes, seed):
    """(P, M, N): the form (k^T v) (k^T R v) of every sign vector v and cell, densely, from the same random signs."""
    rest, _, k = rest_and_columns(posterior, data)
    generator = randomness.generator_of(seed)
    batches = [torch.randint(0, 2, (len(data), all_cells.BATCH), generator=generator) for _ in range(probes // 32)]
    signs = 2.0 * torch.cat(batches, 1).double() - 1  # (T, P)
    return ((signs.T @ k) * ((rest @ signs).T @ k)).reshape(probes, *data.shape)


def exact_spread(posterior, data):
    """(M, N): standard deviation of one form; of s^T B s with signs s the variance is 2 sum_{i != j} B_ij^2."""
    rest, _, k = rest_and_columns(posterior, data)
    pulled = rest @ k  # (T, MN); B = (k pulled^T + pulled k^T) / 2
    squares, pulls, cross = k.square().sum(0), pulled.square().sum(0), (k * pulled).sum(0)
    whole = (squares * pulls + cross.square()) / 2  # sum of all B_ij^2
    return (2 * (whole - (k * pulled).square().sum(0)).clamp_min(0)).sqrt().reshape(data.shape)


@pytest.mark.parametrize("turned", [False, True])
def test_estimates_have_no_bias_and_honest_error_bars(turned, monkeypatch):
    """Every direction once instead of random signs gives the truth: the estimate has no bias. Each error bar is that of
    a mean of independent forms, with room for their skewness.
    """
    generator = randomness.generator(0)
    shape = (60, 25) if turned else (25, 60)
    rng = randomness.numpy_generator(0)
    graphs = [Graph(random_edges(rng, size, 3 * size), size) for size in shape]
    prior = mvgp.MatrixGP(*(DiffusionKernel(graph, 4.0, 0.1) for graph in graphs))  # far from diagonal
    cells = torch.randperm(1500, generator=generator)[:400]
    values, weights = torch.randn(400, dtype=torch.float64), torch.rand(400, dtype=torch.float64) + 0.3
    data = mvgp.ObservedMatrix(cells // shape[1], cells % shape[1], values, shape, weights=weights)
    posterior = mvgp.FullGP(prior, gaussian(0.3)).fit(data)
    truth = posterior.variances(method="exact").values
    with monkeypatch.context() as patch:
        patch.setattr(all_cells._Probes, "batch", every_direction)
        exact = posterior.variances(method="stochastic", accuracy=1e-9, max_probes=EVERY)
    assert exact.probes == EVERY
    torch.testing.assert_close(exact.values, truth, rtol=1e-4, atol=1e-5)  # the forms are in single precision

    seed = randomness.seed(0)
    found = posterior.variances(method="stochastic", accuracy=0.02, max_probes=400, seed=seed)
    assert 32 <= found.probes <= 416
    open_ = found.error > 1e-3 * truth  # a cell without links is known exactly
    assert float(open_.double().mean()) > 0.5
    forms = sign_forms(posterior, data, found.probes, seed)  # (P, M, N)
    mean, spread = forms.mean(0), forms.std(0, correction=0) / (found.probes - 1) ** 0.5
    observed = torch.zeros(shape, dtype=torch.bool)
    observed[data.rows, data.cols] = True
    bars = spread * (1 + all_cells.SKEW / found.probes)
    torch.testing.assert_close(found.error[~observed], bars[~observed], rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        before = torch.outer(*(axis.covariance().diagonal() for axis in (prior.row_axis, prior.col_axis)))
    _, diagonal, k = rest_and_columns(posterior, data)
    rough = before - (diagonal.unsqueeze(1) * k.square()).sum(0).reshape(shape) - mean
    rough = torch.minimum(rough.clamp_min(0), before)
    torch.testing.assert_close(found.values[~observed], rough[~observed], rtol=1e-3, atol=1e-5)
    # a form of signs is beyond t of its standard deviations with a chance of at most exp(-(t / e + 1)), t > e
    # (hypercontractivity), and so is a mean of them; 1e-9 for 1500 cells is t = 73, for standard deviations that are exact
    limit = 73 * exact_spread(posterior, data) / found.probes**0.5
    assert ((found.values - truth).abs() <= limit + 1e-5).all()
    torch.testing.assert_close(found.values[data.rows, data.cols], truth[data.rows, data.cols], atol=1e-9, rtol=0)
    assert not found.error[data.rows, data.cols].any()
    assert (found.values >= 0).all()
    assert (found.values <= before * (1 + 1e-6)).all()
    some = posterior.variances([3, 7], method="stochastic", accuracy=0.02, max_probes=400, seed=seed)
    assert some.values.shape == (2, shape[1])
    assert ((some.values - truth[[3, 7]]).abs() <= limit[[3, 7]] * (found.probes / some.probes) ** 0.5 + 1e-5).all()
    assert "estimated from" in repr(found)


def test_the_nearest_observations_are_used_when_there_are_many():
    posterior, covariance = fitted(limits=Limits(dense=10, joint_nearest=30))
    rows, cols = torch.full((N,), 2), torch.arange(N)
    found = posterior.joint(rows, cols)
    assert found.observations == 30
    truth = covariance[2 * N : 3 * N, 2 * N : 3 * N]
    assert float(torch.linalg.eigvalsh(found.matrix - truth)[0]) > -1e-9  # never smaller than with all of them
    assert_close(found.matrix, truth, 0.1)


BAD = [
    (lambda p: p.variance([0], [0], method="magic"), InputError, "method: expected auto, spectral"),
    (
        lambda p: p.variance([0], [0], accuracy=-1.0),
        InputError,
        "accuracy: expected a positive finite number, got -1.0",
    ),
    (lambda p: p.variance([0], [0], method="spectral"), InputError, "every cell observed"),
    (
        lambda p: p.variances(method="magic"),
        InputError,
        "method: expected 'auto', 'exact' or 'stochastic', got 'magic'",
    ),
    (lambda p: p.variances(max_probes=0), InputError, "max_probes: expected a positive whole number, got 0"),
    (lambda p: p.variances(max_probes="a"), InputError, "max_probes: expected a positive whole number, got 'a'"),
    (lambda p: p.variances(accuracy=0), InputError, "accuracy: expected a positive finite number, got 0"),
    (lambda p: p.variances(seed="a"), InputError, "seed: expected a whole number of at least 0, got 'a'"),
    (lambda p: p.variance([0], [0], accuracy="a"), InputError, "accuracy: expected a positive finite number, got 'a'"),
    (lambda p: p.interval([0], [0], level=2), InputError, "level: expected a number between 0 and 1"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_questions_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(fitted()[0])


def test_too_many_for_a_dense_matrix_is_an_error():
    posterior, _ = fitted(method="cg", limits=Limits(dense=10, joint_cells=3))
    with pytest.raises(SizeError, match="up to 10 observed pairs, there are 45"):
        posterior.variance([0], [0], method="cholesky")
    with pytest.raises(SizeError, match="up to 3 cells, got 4"):
        posterior.joint([0] * 4, range(4))


# Whole lists -------------------------------------------------------------------------------------


def whole_lists(limits, **options):
    """A posterior given whole lists, as a list of observations or beyond the limit for one."""
    rng = randomness.numpy_generator(1)
    shape = (20, 45)
    prior = mvgp.MatrixGP(*(DiffusionKernel(Graph(random_edges(rng, n, 3 * n), n), **options) for n in shape))
    rows, cols = rng.integers(0, 15, 60), rng.integers(0, 45, 60)
    key = np.unique(rows * 45 + cols)
    links = mvgp.PositiveUnlabelled(key // 45, key % 45, shape=shape, weight=0.1)
    model = mvgp.TraceGP(prior, mvgp.likelihoods.BipartiteRankingLikelihood(noise=0.2), strength=0.5)
    posterior = model.fit(links)
    ops, noise = posterior.conditional.terms, model.likelihood.noise.detach().reshape(())
    tolerance = posterior.conditional.tolerance
    posterior.conditional = condition(ops, links, noise, tolerance=tolerance, limits=limits)
    return posterior, links


@pytest.mark.slow
@pytest.mark.parametrize("nearest", [40, 3072])
@pytest.mark.parametrize("accuracy", [0.1, 0.01])
def test_variances_given_whole_lists_are_as_accurate_as_they_say(accuracy, nearest):
    listed, links = whole_lists(Limits(listed_cells=10**9))
    beyond, _ = whole_lists(Limits(listed_cells=10, list_nearest=nearest, list_group=7))
    cells = torch.arange(20 * 45)
    at = cells // 45, cells % 45
    truth = listed.variance(*at)
    found = beyond.variance(*at, accuracy=accuracy)
    assert (found >= truth * (1 - 1e-9)).all()
    assert (found <= (1 + accuracy) * truth).all()
    positive = links.rows * 45 + links.cols
    assert float(truth[positive].mean()) < 0.5 * float(truth[15 * 45 :].mean())  # weights and rows without a list count
    one = torch.full((45,), 3), torch.arange(45)
    joint = beyond.joint(*one)
    assert_close(joint.matrix, listed.joint(*one).matrix, 1e-8)  # so few cells that the nearest are all of them
    assert_close(beyond(*one).covariance_matrix, joint.matrix)
    assert float(beyond.top_probability(3, 5, exclude=links).sum()) == pytest.approx(5)


def test_what_whole_lists_cannot_do_is_refused():
    beyond, _ = whole_lists(Limits(listed_cells=10, list_nearest=5, dense=10), time=6.0, shift=0.0)
    with pytest.raises(SizeError, match="not for the whole grid"):
        beyond.covariance()
    with pytest.raises(InputError, match="has 'bounded' alone, got 'cg'"):
        beyond.variance([0], [0], method="cg")
    with pytest.raises(InputError, match="no stochastic variances"):
        beyond.variances(method="stochastic")
    with pytest.raises(InputError, match="accuracy: expected a positive finite number"):
        beyond.variance([0], [0], accuracy=0.0)
    with pytest.raises(ConvergenceError, match="from the 10 nearest cells, 0.01 was asked for"):
        beyond.variance([0], [0])
