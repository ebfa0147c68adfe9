"""Without observations every posterior is the prior; what cannot be without them says so."""

import gpytorch
import pytest
import torch
from gpytorch.likelihoods import PoissonLikelihood

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import learn, log_marginal
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.metrics import auc
from tests import randomness
from tests.oracles import assert_moments

SHAPE = (4, 6)
NOTHING = mvgp.ObservedMatrix([], [], [], SHAPE)


def make_prior(constant=0.5):
    inputs = [torch.linspace(0, 2, size, dtype=torch.float64) for size in SHAPE]
    kernels = [gpytorch.kernels.RBFKernel() for _ in SHAPE]
    return mvgp.MatrixGP(*kernels, *inputs, mean=mvgp.priors.ConstantMean(constant))


def gaussian():
    return gpytorch.likelihoods.GaussianLikelihood().double()


def ranking():
    return BipartiteRankingLikelihood()


PENALTY = mvgp.SpectralElasticNet(0.3, 0.5)
MODELS = {
    "full, auto": lambda prior, likelihood: mvgp.FullGP(prior, likelihood),
    "full, cholesky": lambda prior, likelihood: mvgp.FullGP(prior, likelihood, method="cholesky"),
    "full, cg": lambda prior, likelihood: mvgp.FullGP(prior, likelihood, method="cg"),
    "trace": lambda prior, likelihood: mvgp.TraceGP(prior, likelihood, penalty=PENALTY),
    "trace, ball": lambda prior, likelihood: mvgp.TraceGP(prior, likelihood, penalty=mvgp.TraceBall(1.0)),
    "ridge": lambda prior, likelihood: mvgp.TraceGP(prior, likelihood, penalty=mvgp.SpectralElasticNet(0.3, 0.0)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("likelihood", [gaussian, ranking, gpytorch.likelihoods.BernoulliLikelihood, PoissonLikelihood])
def test_the_posterior_is_the_prior(name, likelihood, tmp_path):
    prior = make_prior()
    posterior = MODELS[name](prior, likelihood()).fit(NOTHING)
    rows, cols = torch.tensor([0, 3, 1]), torch.tensor([5, 0, 2])
    joint = prior(rows, cols)
    mean, covariance = joint.mean.detach(), joint.covariance_matrix.detach()
    torch.testing.assert_close(posterior.mean(rows, cols), mean)
    torch.testing.assert_close(posterior.scores(), prior.mean_matrix().detach())
    torch.testing.assert_close(posterior.variance(rows, cols), covariance.diagonal())
    torch.testing.assert_close(posterior.variance(rows, cols, accuracy=0.1), covariance.diagonal())
    torch.testing.assert_close(posterior(rows, cols).covariance_matrix, covariance)
    torch.testing.assert_close(posterior.covariance().to_dense(), prior.covariance().to_dense().detach())
    torch.testing.assert_close(posterior.joint(rows, cols).matrix, covariance)
    torch.testing.assert_close(
        posterior.variances().values, prior.covariance().diagonal().detach().view(SHAPE), check_dtype=False
    )
    drawn = posterior.sample(rows, cols, 400, generator=randomness.generator(1))
    assert_moments(drawn, mean, covariance)
    new = {"row_inputs": torch.tensor([[0.3]], dtype=torch.float64)}
    torch.testing.assert_close(posterior.mean([0], [1], **new), mean[:1])
    torch.testing.assert_close(posterior.variance([0], [1], **new), torch.ones(1, dtype=torch.float64))
    why = posterior.explain(0, 1)
    assert len(why.shares) == 0
    assert why.score == why.prior_mean == pytest.approx(0.5)
    assert len(posterior.top(0, 3, num_samples=50).items) == 3
    if posterior.sites is None:  # a pointwise likelihood fixes the scale
        assert posterior.calibrated().scale == 1
    assert "0 observed" in repr(posterior)
    torch.testing.assert_close(
        posterior.variances([0], method="stochastic").values, posterior.variances([0]).values, atol=1e-6, rtol=0
    )
    posterior.save(tmp_path / "file")
    torch.testing.assert_close(mvgp.load(tmp_path / "file").scores(), posterior.scores())


@pytest.mark.parametrize("likelihood", [gaussian, ranking, gpytorch.likelihoods.BernoulliLikelihood, PoissonLikelihood])
def test_the_factor_gp_has_the_prior_mean_and_no_covariance(likelihood):
    posterior = mvgp.FactorGP(make_prior(), likelihood(), rank=2).fit(NOTHING)
    torch.testing.assert_close(posterior.scores(), torch.full(SHAPE, 0.5, dtype=torch.float64))
    assert posterior.rank == 0
    with pytest.raises(InputError, match="says nothing there"):
        posterior.variance([0], [0])


@pytest.mark.parametrize("model", ["full", "trace"])
@pytest.mark.parametrize("likelihood", [gaussian, gpytorch.likelihoods.BernoulliLikelihood])
def test_the_posterior_of_a_sum_is_the_prior(likelihood, model):
    prior = make_prior() + make_prior(0.25)
    recipe = (
        mvgp.FullGP(prior, likelihood())
        if model == "full"
        else mvgp.TraceGP(prior, likelihood(), penalty=[PENALTY, mvgp.SpectralElasticNet(0.3, 0.0)])
    )
    posterior = recipe.fit(NOTHING)
    torch.testing.assert_close(posterior.scores(), torch.full(SHAPE, 0.75, dtype=torch.float64))
    torch.testing.assert_close(posterior.variance([0, 3], [1, 2]), torch.full((2,), 2.0, dtype=torch.float64))


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda: mvgp.TraceGP(make_prior(), gaussian(), strength=0.1).fit(NOTHING), "no observations: lam_max"),
        (lambda: list(mvgp.TraceGP(make_prior(), gaussian()).path(NOTHING, 3)), "no observations: lam_max"),
        (lambda: mvgp.PairwiseSVM(make_prior(0.0)).fit(NOTHING), "expected a zero mean"),
        (lambda: mvgp.PairwiseSVM(mvgp.MatrixGP(*plain())).fit(NOTHING), "got no observations"),
        (lambda: log_marginal(make_prior(), gaussian(), NOTHING), "needs observations, got none"),
        (lambda: learn(make_prior(), gaussian(), NOTHING), "needs observations, got none"),
    ],
)
def test_what_cannot_be_says_so(ask, match):
    with pytest.raises(InputError, match=match):
        ask()


def plain():
    kernels = [mvgp.kernels.PrecomputedKernel(torch.eye(size, dtype=torch.float64)) for size in SHAPE]
    return kernels[0], kernels[1]


def test_metrics_without_a_positive_have_no_value():
    posterior = mvgp.FullGP(make_prior(), gaussian()).fit(NOTHING)
    assert bool(torch.isnan(auc(posterior, NOTHING)).all())
