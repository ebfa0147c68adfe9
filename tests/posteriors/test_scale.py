"""The scale of a covariance: refits under a scaled prior, the evidence it maximises, and what follows for ranks."""

import gpytorch
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import leave_one_out, trace_bound
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.mean import SpectralElasticNet
from mvgp.posteriors import FullPosterior
from tests import randomness
from tests.chance import variance_limit
from tests.oracles import random_edges

M, N, NOISE = 6, 9, 0.3
RNG = randomness.numpy_generator(0)
ROWS, COLS = Graph(random_edges(RNG, M, 8), M), Graph(random_edges(RNG, N, 14), N)
CELLS = torch.from_numpy(RNG.permutation(M * N)[:30])
VALUES = torch.from_numpy(RNG.normal(size=30)) + 2.0


def prior(scale=1.0):
    rows = gpytorch.kernels.ScaleKernel(DiffusionKernel(ROWS))
    rows.outputscale = scale
    return mvgp.MatrixGP(rows, DiffusionKernel(COLS, 0.5, 0.4))


def gaussian(noise=NOISE):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    return likelihood


def observed(weighted=False):
    weights = torch.linspace(0.5, 2, len(CELLS), dtype=torch.float64) if weighted else None
    return mvgp.ObservedMatrix(CELLS // N, CELLS % N, VALUES, (M, N), weights=weights)


def labelled():
    return mvgp.ObservedMatrix(CELLS // N, CELLS % N, torch.where(VALUES > 2, 1.0, -1.0), (M, N))


def links():
    return mvgp.PositiveUnlabelled([0, 0, 1, 3, 5], [1, 4, 2, 8, 0], (M, N), 0.1)


def ranking(noise=NOISE):
    return BipartiteRankingLikelihood(margin=1.0, noise=noise)


def net(ridge, trace, scale=1.0):
    """The penalty l2 = ridge, l1 = trace, and the one with the same mean under ``scale`` times the prior."""
    ridge, trace = ridge * scale, trace * scale**0.5
    return SpectralElasticNet(ridge + trace, trace / (ridge + trace))


FITS = {
    "full": lambda s: mvgp.FullGP(prior(s), gaussian(NOISE * s), tolerance=1e-12).fit(observed(weighted=True)),
    "trace": lambda s: mvgp.TraceGP(prior(s), gaussian(NOISE * s), penalty=net(0.2, 0.4, s), tolerance=1e-10).fit(
        observed()
    ),
    "ranking": lambda s: mvgp.TraceGP(prior(s), ranking(NOISE * s), penalty=net(0.2, 0.4, s), tolerance=1e-10).fit(
        labelled()
    ),
    "whole lists": lambda s: mvgp.TraceGP(prior(s), ranking(NOISE * s), penalty=net(0.2, 0.4, s), tolerance=1e-10).fit(
        links()
    ),
    "no trace norm": lambda s: mvgp.TraceGP(
        prior(s), ranking(NOISE * s), penalty=net(NOISE, 0.0, s), tolerance=1e-10
    ).fit(labelled()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_rescaled_is_the_posterior_under_the_scaled_prior(name, scale):
    given, wanted = FITS[name](1.0).rescaled(scale), FITS[name](scale)
    rows, cols = torch.arange(M).repeat_interleave(N), torch.arange(N).repeat(M)
    torch.testing.assert_close(given.scores(), wanted.scores(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(given.variance(rows, cols), wanted.variance(rows, cols))
    torch.testing.assert_close(given.covariance().to_dense(), wanted.covariance().to_dense())
    torch.testing.assert_close(given.variances([2]).values, wanted.variances([2]).values)
    one, other = given(rows[:7], cols[:7]), wanted(rows[:7], cols[:7])
    torch.testing.assert_close(one.covariance_matrix, other.covariance_matrix)
    torch.testing.assert_close(given.joint(rows[:7], cols[:7]).matrix, wanted.joint(rows[:7], cols[:7]).matrix)
    torch.testing.assert_close(given.conditional.noise, wanted.conditional.noise)
    samples = given.sample(rows[:3], cols[:3], 4000, generator=randomness.generator(0))
    limit = variance_limit(4000, entries=3)  # 0.16
    torch.testing.assert_close(samples.var(0), wanted.variance(rows[:3], cols[:3]), rtol=limit, atol=0)
    assert given.scale == scale
    torch.testing.assert_close(given.evidence_scale, wanted.evidence_scale * scale, rtol=1e-4, atol=0)


def test_scale_of_the_plain_posterior_has_the_largest_marginal_likelihood():
    data, fitted = observed(weighted=True), FITS["full"](1.0)
    axes = prior().row_axis, prior().col_axis
    cells, values = data.rows * N + data.cols, data.values
    a = torch.kron(*(axis.covariance().to_dense().detach() for axis in axes))[cells][:, cells]
    a += torch.diag(NOISE / data.weights)
    dense = float(values @ torch.linalg.solve(a, values)) / len(cells)
    assert fitted.evidence_scale == pytest.approx(dense, rel=1e-9)

    def evidence(scale):
        return torch.distributions.MultivariateNormal(torch.zeros(30).double(), scale * a).log_prob(values)

    assert all(evidence(dense) > evidence(dense * factor) for factor in (0.8, 0.97, 1.03, 1.25))


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [gaussian, ranking])
def test_scale_of_the_trace_constrained_posterior_has_the_largest_bound(likelihood):
    data = observed() if likelihood is gaussian else labelled()

    def fitted(scale):
        model = mvgp.TraceGP(prior(scale), likelihood(NOISE * scale), penalty=net(NOISE, 0.4, scale), tolerance=1e-9)
        return model.fit(data)

    best = fitted(1.0).evidence_scale

    def bound(scale):
        return float(trace_bound(prior(scale), likelihood(NOISE * scale), data, fitted(scale)).value.detach())

    assert all(bound(best) > bound(best * factor) for factor in (0.7, 0.95, 1.05, 1.4))


@settings(max_examples=20, deadline=None)
@given(st.floats(1e-3, 1e3))
def test_the_last_scale_counts(scale):
    posterior = FITS["full"](1.0)
    twice = posterior.rescaled(7.0).rescaled(scale)
    assert twice.scale == scale
    torch.testing.assert_close(twice.variance([1], [1]), scale * posterior.variance([1], [1]))
    assert posterior.scale == 1.0  # the one it came from is as it was
    assert isinstance(twice, FullPosterior)


def test_leave_one_out_of_a_scaled_posterior():
    scale, data = 2.5, observed()
    posterior = mvgp.FullGP(prior(), gaussian(), tolerance=1e-12).fit(data)
    wanted = mvgp.FullGP(prior(scale), gaussian(NOISE * scale), tolerance=1e-12).fit(data)
    found, other = leave_one_out(posterior.rescaled(scale), data), leave_one_out(wanted, data)
    torch.testing.assert_close(found.mean, other.mean)
    torch.testing.assert_close(found.variance, other.variance)
    torch.testing.assert_close(found.log_densities, other.log_densities)


def test_stochastic_variances_are_scaled_with_their_errors():
    posterior = FITS["trace"](1.0)
    plain, wide = (one.variances(method="stochastic") for one in (posterior, posterior.rescaled(9.0)))
    torch.testing.assert_close(wide.values, 9 * plain.values)
    torch.testing.assert_close(wide.error, 9 * plain.error)


@pytest.mark.parametrize("name", ["full", "ranking", "whole lists"])
def test_saved_with_its_scale(name, tmp_path):
    posterior = FITS[name](1.0).calibrated()
    posterior.save(tmp_path / "a.mvgp")
    again = mvgp.load(tmp_path / "a.mvgp")
    assert again.scale == posterior.scale == again.evidence_scale
    assert torch.equal(again.variance([1, 2], [3, 4]), posterior.variance([1, 2], [3, 4]))


def test_margin_and_scale_go_together():
    """Twice the margin is twice the scores; P(in the top k) is the same once the scale is the evidence's."""

    def fitted(margin):
        penalty = net(0.2, 0.1 * margin)
        model = mvgp.TraceGP(prior(), BipartiteRankingLikelihood(margin, NOISE), penalty=penalty, tolerance=1e-9)
        return model.fit(links())

    one, two = fitted(1.0), fitted(2.0)
    torch.testing.assert_close(two.scores(), 2 * one.scores(), rtol=1e-4, atol=1e-6)
    assert two.evidence_scale == pytest.approx(4 * one.evidence_scale, rel=1e-4)
    chances = [one.calibrated().top_probability(0, 2), two.calibrated().top_probability(0, 2)]
    torch.testing.assert_close(*chances, atol=0.01, rtol=0)
    assert float((one.top_probability(0, 2) - two.top_probability(0, 2)).abs().max()) > 0.02  # not without


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), "1", True, None])
def test_what_is_no_scale(scale):
    with pytest.raises(InputError, match="scale: expected a positive finite number"):
        FITS["full"](1.0).rescaled(scale)
