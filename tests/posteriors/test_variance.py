"""Every way to a variance against dense conditioning, or within the error it states."""

import gpytorch
import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import ConvergenceError, InputError, SizeError
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.posteriors import pair_variance

from ..oracles import random_edges
from .test_full import PRIORS, M, N, X, assert_close, everything, gaussian, observe, oracle

EXACT = ["cholesky", "cg"]


def fitted(name="diffusion, polynomial", count=45, weighted=True, noise=0.3, **options):
    prior = PRIORS[name]()
    data = observe(torch.randperm(M * N, generator=torch.Generator().manual_seed(1))[:count], weighted)
    posterior = mvgp.FullGP(prior, gaussian(noise), tolerance=1e-11, **options).fit(data)
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
    pick = torch.randperm(M * N, generator=torch.Generator().manual_seed(3))[:20]
    rows, cols = everything()
    found = posterior.joint(rows[pick], cols[pick])
    assert_close(found.matrix, covariance[pick][:, pick])
    assert found.observations == 45
    samples = found.sample(20_000, torch.Generator().manual_seed(0))
    spread = covariance.diagonal()[pick].clamp_min(0).sqrt()
    assert ((samples.mT.cov() - found.matrix).abs() <= 0.05 * torch.outer(spread, spread) + 1e-6).all()


@pytest.mark.parametrize("nearest", [3, 20, 4096])
@pytest.mark.parametrize("accuracy", [0.3, 0.01, 1e-5])
@pytest.mark.parametrize("name", ["diffusion, polynomial", "graph x inputs", "precomputed"])
def test_bounded_variances_are_as_accurate_as_they_say(name, accuracy, nearest, monkeypatch):
    monkeypatch.setattr(pair_variance, "NEAREST", nearest)
    posterior, covariance = fitted(name)
    truth = covariance.diagonal()
    found = posterior.variance(*everything(), method="bounded", accuracy=accuracy)
    slack = 1e-5 * truth.max() if accuracy >= 1e-3 else 1e-9  # single precision from 1e-3 on
    assert (found >= truth - slack).all()
    assert (found <= (1 + accuracy) * truth + slack).all()


def test_bounds_that_cannot_be_met_are_an_error():
    posterior, _ = fitted("graph x inputs", noise=1e-4)
    posterior.conditional.max_iterations = 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_variance, "NEAREST", 2)
        with pytest.raises(ConvergenceError, match="not known to 1e-06 after 2 products"):
            posterior.variance(*everything(), method="bounded", accuracy=1e-6)


@pytest.mark.parametrize("name", PRIORS)
def test_cached_variances_are_never_too_small_and_become_exact(name):
    for size, exact in ((4, False), (60, True)):
        posterior, covariance = fitted(name)
        with gpytorch.settings.fast_pred_var(), gpytorch.settings.max_root_decomposition_size(size):
            found = posterior.variance(*everything())
            joint = posterior(*everything())
            assert_close(joint.variance, found.clamp_min(gpytorch.settings.min_variance.value(torch.float64)))
        truth = covariance.diagonal()
        assert (found >= truth - 1e-8).all()
        prior = posterior.prior(*everything()).variance.detach()
        assert (found <= prior + 1e-12).all()
        if exact:
            assert_close(found, truth, 1e-6)
        assert_close(posterior.variance(*everything(), method="cached"), found)


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


@pytest.mark.parametrize("turned", [False, True])
def test_estimates_lie_within_their_error_bars(turned):
    generator = torch.Generator().manual_seed(0)
    shape = (60, 25) if turned else (25, 60)
    rng = np.random.default_rng(0)
    graphs = [Graph(random_edges(rng, size, 3 * size), size) for size in shape]
    prior = mvgp.MatrixGP(*(DiffusionKernel(graph, 4.0, 0.1) for graph in graphs))  # far from diagonal
    cells = torch.randperm(1500, generator=generator)[:400]
    values, weights = torch.randn(400, dtype=torch.float64), torch.rand(400, dtype=torch.float64) + 0.3
    data = mvgp.ObservedMatrix(cells // shape[1], cells % shape[1], values, shape, weights=weights)
    posterior = mvgp.FullGP(prior, gaussian(0.3)).fit(data)
    truth = posterior.variances(method="exact").values
    scores, biases = [], []
    for seed in range(8):  # cells share their random vectors, so that their errors go together
        found = posterior.variances(method="stochastic", accuracy=0.02, max_probes=400, seed=seed)
        open_ = found.error > 1e-3 * truth  # a cell without links is known exactly
        assert float(open_.double().mean()) > 0.6
        assert found.probes >= 32
        scores.append(((found.values - truth) / found.error)[open_])
        biases.append(((found.values - truth) / truth)[open_])
    score = torch.cat(scores)
    assert 0.92 < float((score.abs() < 2).double().mean()) < 0.99  # the error bars are neither too short nor too long
    assert abs(float(torch.cat(biases).mean())) < 0.003
    torch.testing.assert_close(found.values[data.rows, data.cols], truth[data.rows, data.cols], atol=1e-9, rtol=0)
    assert not found.error[data.rows, data.cols].any()
    assert float(((found.std - truth.sqrt()).abs() < 0.02 * truth.sqrt()).double().mean()) > 0.93
    plain = truth.new_ones(1) * truth.max()
    assert (found.values >= 0).all()
    assert (found.values <= 4.1 * plain).all()
    some = posterior.variances([3, 7], method="stochastic", accuracy=0.02, max_probes=400)
    assert some.values.shape == (2, shape[1])
    torch.testing.assert_close(some.values, truth[[3, 7]], rtol=0.15, atol=0)
    assert "estimated from" in repr(found)


def test_the_nearest_observations_are_used_when_there_are_many(monkeypatch):
    posterior, covariance = fitted()
    monkeypatch.setattr("mvgp.posteriors.joint.DENSE_LIMIT", 10)
    monkeypatch.setattr("mvgp.posteriors.joint.NEAREST", 30)
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


def test_too_many_for_a_dense_matrix_is_an_error(monkeypatch):
    posterior, _ = fitted(method="cg")
    monkeypatch.setattr("mvgp.posteriors.conditional.DENSE_LIMIT", 10)
    with pytest.raises(SizeError, match="up to 10 observed pairs, there are 45"):
        posterior.variance([0], [0], method="cholesky")
    monkeypatch.setattr("mvgp.posteriors.joint.MOST_CELLS", 3)
    with pytest.raises(SizeError, match="up to 3 cells, got 4"):
        posterior.joint([0] * 4, range(4))


# Whole lists -------------------------------------------------------------------------------------


def whole_lists(monkeypatch, limit, **options):
    """The same posterior given whole lists as a list of observations, and beyond the limit for one."""
    rng = np.random.default_rng(1)
    shape = (20, 45)
    prior = mvgp.MatrixGP(*(DiffusionKernel(Graph(random_edges(rng, n, 3 * n), n), **options) for n in shape))
    rows, cols = rng.integers(0, 15, 60), rng.integers(0, 45, 60)
    key = np.unique(rows * 45 + cols)
    links = mvgp.PositiveUnlabelled(key // 45, key % 45, shape=shape, weight=0.1)
    model = mvgp.TraceGP(prior, mvgp.likelihoods.BipartiteRankingLikelihood(noise=0.2), strength=0.5)
    monkeypatch.setattr("mvgp.posteriors.full.MOST_CELLS", limit)
    return model.fit(links), links


@pytest.mark.parametrize("nearest", [40, 3072])
@pytest.mark.parametrize("accuracy", [0.1, 0.01])
def test_variances_given_whole_lists_are_as_accurate_as_they_say(monkeypatch, accuracy, nearest):
    monkeypatch.setattr("mvgp.posteriors.whole_list_covariance.NEAREST", nearest)
    monkeypatch.setattr("mvgp.posteriors.whole_list_covariance.GROUP", 7)
    listed, links = whole_lists(monkeypatch, 10**9)
    beyond, _ = whole_lists(monkeypatch, 10)
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


def test_what_whole_lists_cannot_do_is_refused(monkeypatch):
    beyond, _ = whole_lists(monkeypatch, 10, time=6.0, shift=0.0)
    with pytest.raises(SizeError, match="not for the whole grid"):
        beyond.covariance()
    with pytest.raises(InputError, match="has 'bounded' alone, got 'cg'"):
        beyond.variance([0], [0], method="cg")
    with pytest.raises(InputError, match="no stochastic variances"):
        beyond.variances(method="stochastic")
    with pytest.raises(InputError, match="accuracy: expected a positive finite number"):
        beyond.variance([0], [0], accuracy=0.0)
    monkeypatch.setattr("mvgp.posteriors.whole_list_covariance.NEAREST", 5)
    monkeypatch.setattr("mvgp.posteriors.whole_list_covariance.DENSE_LIMIT", 10)
    with pytest.raises(ConvergenceError, match="from the 10 nearest cells, 0.01 was asked for"):
        beyond.variance([0], [0])
