"""Log densities of pointwise likelihoods, their expectations, and the loss that follows from them."""

import gpytorch
import pytest
import torch
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    BetaLikelihood,
    LaplaceLikelihood,
    NegativeBinomialLikelihood,
    PoissonLikelihood,
    StudentTLikelihood,
)
from scipy import integrate

from mvgp.errors import InputError
from mvgp.likelihoods import LogisticLikelihood, LogPoissonLikelihood, PointwiseLoss
from mvgp.likelihoods.densities import ExpectedDensity, ForwardDensity, ProbitDensity
from mvgp.likelihoods.losses import is_pointwise
from mvgp.likelihoods.pointwise import density_of
from tests import randomness

T = 12
LABELS = torch.arange(T).remainder(2).double()
COUNTS = torch.tensor([0, 1, 2, 5, 0, 9, 1, 3, 0, 2, 14, 1], dtype=torch.float64)
REALS = torch.linspace(-2, 2.2, T).double()


def noisy(kind):
    likelihood = kind().double()
    likelihood.noise = torch.tensor(0.4, dtype=torch.float64)
    return likelihood


CASES = {
    "probit": (BernoulliLikelihood(), LABELS),
    "logistic": (LogisticLikelihood(), LABELS),
    "log poisson": (LogPoissonLikelihood(), COUNTS),
    "softplus poisson": (PoissonLikelihood(), COUNTS),
    "laplace noise": (noisy(LaplaceLikelihood), REALS),
    "student": (noisy(StudentTLikelihood), REALS),
    "negative binomial": (NegativeBinomialLikelihood().double(), COUNTS),
}


def latent(seed=0):
    generator = randomness.generator(seed)
    mean = torch.randn(T, generator=generator, dtype=torch.float64)
    return mean, torch.rand(T, generator=generator, dtype=torch.float64) + 0.1


@pytest.mark.parametrize("kind", CASES)
def test_derivatives(kind):
    """Slopes and precisions are those of the expectation, as it is computed."""
    likelihood, values = CASES[kind]
    density, (mean, variance) = density_of(likelihood, values), latent()
    at, step = density.expect(mean, variance), 1e-5
    with torch.no_grad():
        torch.testing.assert_close(at.value, density.expected_log_prob(mean, variance))
        ahead, behind = (density.expected_log_prob(mean + s, variance) for s in (step, -step))
        torch.testing.assert_close(at.slope, (ahead - behind) / (2 * step), atol=1e-6, rtol=1e-6)
        ahead, behind = (density.expected_log_prob(mean, variance + s) for s in (step, -step))
        torch.testing.assert_close(at.precision, -(ahead - behind) / step, atol=1e-6, rtol=1e-6)
        second = (density.slopes(mean + step, variance)[1] - density.slopes(mean - step, variance)[1]) / (2 * step)
        torch.testing.assert_close(density.slopes(mean, variance)[2], second, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", CASES)
def test_the_log_density_is_that_of_the_likelihood(kind):
    likelihood, values = CASES[kind]
    density, (mean, _) = density_of(likelihood, values), latent()
    with torch.no_grad():
        torch.testing.assert_close(density.log_prob(mean), likelihood.forward(mean).log_prob(values))


@pytest.mark.parametrize("kind", ["probit", "logistic", "log poisson", "softplus poisson", "laplace noise"])
def test_the_expectation_is_an_integral(kind):
    likelihood, values = CASES[kind]
    mean, variance = latent()
    found = density_of(likelihood, values).expected_log_prob(mean, variance).detach()
    for t in range(4):
        one = density_of(likelihood, values[t : t + 1])
        normal = torch.distributions.Normal(mean[t], variance[t].sqrt())

        def integrand(z, one=one, normal=normal):
            at = torch.tensor([z], dtype=torch.float64)
            return float((one.log_prob(at).detach() * normal.log_prob(at).exp()).sum())

        width = 9 * float(variance[t].sqrt())
        ends = (float(mean[t]) - width, float(mean[t]) + width)
        kink = [float(values[t])] if ends[0] < float(values[t]) < ends[1] else None
        expected, _ = integrate.quad(integrand, *ends, points=kink)
        assert float(found[t]) == pytest.approx(expected, abs=2e-5)


def test_students_bound_is_below_the_expectation():
    likelihood, values = CASES["student"]
    mean, variance = latent()
    with torch.no_grad():
        bound = density_of(likelihood, values).expected_log_prob(mean, variance)
        exact = likelihood.expected_log_prob(values, torch.distributions.Normal(mean, variance.sqrt()))
    assert (bound <= exact + 1e-6).all()


def test_log_concavity():
    found = {kind: density_of(*case).log_concave for kind, case in CASES.items()}
    assert [kind for kind, is_concave in found.items() if not is_concave] == ["student", "negative binomial"]
    claimed = NegativeBinomialLikelihood().double()
    claimed.log_concave = True
    assert density_of(claimed, COUNTS).log_concave


class OwnForward(BernoulliLikelihood):
    def forward(self, function_samples, *args, **kwargs):
        return torch.distributions.Bernoulli(logits=function_samples)


class OwnExpectation(BernoulliLikelihood):
    def expected_log_prob(self, observations, function_dist, *args, **kwargs):
        return super().expected_log_prob(observations, function_dist)


def test_which_method_of_a_likelihood_is_used():
    assert type(density_of(BernoulliLikelihood(), LABELS)) is ProbitDensity
    assert type(density_of(OwnForward(), LABELS)) is ForwardDensity
    assert type(density_of(OwnExpectation(), LABELS)) is ExpectedDensity
    mean, variance = latent()
    found, expected = density_of(OwnForward(), LABELS), density_of(LogisticLikelihood(), LABELS)
    for name in ("value", "slope", "precision"):
        parts = (getattr(one.expect(mean, variance), name) for one in (found, expected))
        torch.testing.assert_close(*parts, atol=1e-8, rtol=1e-6)


def test_the_number_of_nodes_is_gpytorchs():
    with gpytorch.settings.num_gauss_hermite_locs(7):
        assert density_of(LogisticLikelihood(), LABELS).nodes == 7
    assert density_of(LogisticLikelihood(), LABELS).nodes == 20


def test_what_is_pointwise():
    assert is_pointwise(BernoulliLikelihood())
    assert is_pointwise(BetaLikelihood())
    assert not is_pointwise(gpytorch.likelihoods.GaussianLikelihood())
    assert not is_pointwise(gpytorch.likelihoods.SoftmaxLikelihood(num_classes=2, num_features=1))
    assert not is_pointwise("bernoulli")


def test_a_vector_for_each_observation_is_refused():
    class Several(gpytorch.likelihoods.Likelihood):
        log_concave = True

        def forward(self, function_samples, *args, **kwargs):
            return torch.distributions.Normal(function_samples.unsqueeze(-1), torch.ones(2))

    with pytest.raises(InputError, match="one number for each"):
        density_of(Several(), REALS).expect(*latent())


# The loss ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["log poisson", "softplus poisson"])
@pytest.mark.parametrize("centre", [-3.0, 0.0, 2.0])
def test_outside_the_interval_the_loss_is_below(kind, centre):
    likelihood, values = CASES[kind]
    density, (_, variance) = density_of(likelihood, values), latent()
    loss = PointwiseLoss(density, None, variance, None, torch.full((T,), centre, dtype=torch.float64))
    psi = torch.linspace(-6, 6, 49).double()
    for point in psi.tolist():
        at = torch.full((T,), point, dtype=torch.float64)
        value, _, _ = loss._parts(at)
        exact = -density.slopes(at, variance)[0] - loss.smallest
        assert (value <= exact + 1e-9 * (1 + exact.abs())).all()
        inside = (loss.low <= at) & (at <= loss.high)
        torch.testing.assert_close(value[inside], exact[inside])
    assert loss.inside(torch.full((T,), centre, dtype=torch.float64))
    assert not loss.inside(torch.full((T,), 50.0, dtype=torch.float64)) or kind == "softplus poisson"
    assert loss.curvature < 1e3


@pytest.mark.parametrize("kind", ["probit", "logistic", "log poisson", "softplus poisson", "laplace noise"])
@pytest.mark.parametrize("scale", [0.05, 0.5, 0.99])
@pytest.mark.slow
def test_the_conjugate_is_the_supremum(kind, scale):
    likelihood, values = CASES[kind]
    density, (mean, variance) = density_of(likelihood, values), latent()
    loss = PointwiseLoss(density, variance + 0.5, variance, mean / 2)
    psi = latent(3)[0]
    at = loss(psi)
    theta = scale * at.gradient
    grid = torch.linspace(-40, 40, 2001).double()
    values_on_grid = torch.stack([theta * z - loss._parts(z + loss.offset)[0] for z in grid]).amax(0)
    found = at.conjugate(scale)
    assert found >= float(values_on_grid.sum()) - 1e-9
    spacing = float(grid[1] - grid[0])
    assert found <= float(values_on_grid.sum()) + float(loss.curvatures.sum()) * (spacing / 2) ** 2 / 2 + 1e-9
    assert at.conjugate_bound(scale) >= found - 1e-9


def test_laplace_noise_needs_variances():
    with pytest.raises(InputError, match="kink"):
        PointwiseLoss(density_of(*CASES["laplace noise"]))
