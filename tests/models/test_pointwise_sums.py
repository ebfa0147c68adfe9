"""Pointwise likelihoods under sums of terms, against references in plain torch and a conic solver."""

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    FixedNoiseGaussianLikelihood,
    LaplaceLikelihood,
    PoissonLikelihood,
    StudentTLikelihood,
)

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import evidence_bound, learn_evidence
from mvgp.kernels import ConstantKernel, PrecomputedKernel
from mvgp.likelihoods import ConvexValue, LogisticLikelihood, LogPoissonLikelihood, Loss
from mvgp.mean.sites import laplace_sites
from mvgp.models.pointwise import PointwiseFit
from mvgp.priors import ConstantMean
from tests import randomness
from tests.oracles import conic_additive
from tests.pointwise_oracles import dense_laplace, direct_variational, predicted

M, N, COUNT = 5, 7, 22
SHAPE = M, N
LIKELIHOODS = {
    "probit": BernoulliLikelihood,
    "logistic": LogisticLikelihood,
    "log poisson": LogPoissonLikelihood,
    "softplus poisson": PoissonLikelihood,
}
NETS = [
    mvgp.SpectralElasticNet.from_noise(1.0, 1.5),
    mvgp.SpectralElasticNet(1.5, 0.0),
    mvgp.SpectralElasticNet(0.7, 1),
]


def positive(rng, size, scale):
    root = torch.from_numpy(rng.normal(size=(size, size)))
    matrix = root @ root.T / size + 0.3 * torch.eye(size, dtype=torch.float64)
    return scale * matrix / matrix.diagonal().mean()


def make_prior(terms, rng):
    """Two full kernels, an effect of each column, another pair of full kernels; the first terms have a mean."""
    own = [PrecomputedKernel(positive(rng, size, scale)) for size, scale in ((M, 1.2), (N, 1.0), (M, 0.4), (N, 0.6))]
    parts = [
        mvgp.MatrixGP(own[0], own[1], mean=ConstantMean(0.2)),
        mvgp.MatrixGP(ConstantKernel(M), own[3], mean=ConstantMean(0.1)),
        mvgp.MatrixGP(own[2], own[3]),
    ]
    return sum(parts[:terms]).snapshot()


def whole(prior):
    """(M N, M N): the prior covariance, densely."""
    return prior.covariance().to_dense().detach()


def make_data(kind, prior, draw=randomness.numpy_generator):
    rng, generator = draw(5), randomness.generator(6)
    cells = torch.from_numpy(np.sort(rng.choice(M * N, COUNT, replace=False)))
    z = (whole(prior).double() @ torch.from_numpy(rng.normal(size=M * N)) / 3 + 0.3)[cells]
    if "poisson" in kind:
        rate = z.exp() if kind == "log poisson" else torch.nn.functional.softplus(z)
        values = torch.poisson(rate.clamp_max(40), generator=generator)
    else:
        values = (z + torch.from_numpy(rng.logistic(size=COUNT)) > 0).double()
    weights = torch.from_numpy(rng.uniform(0.5, 1.5, COUNT))
    return mvgp.ObservedMatrix(cells // N, cells % N, values, SHAPE, weights=weights)


def problem(kind, terms):
    prior = make_prior(terms, randomness.numpy_generator(1))
    data = make_data(kind, prior)
    cells = data.rows * N + data.cols
    return prior, data, whole(prior)[cells][:, cells], prior.mean_matrix().flatten()[cells]


EVERY = torch.arange(M * N) // N, torch.arange(M * N) % N


@pytest.mark.parametrize("terms", [2, 3])
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_laplace_is_the_dense_approximation(kind, terms):
    prior, data, k, offset = problem(kind, terms)
    posterior = mvgp.FullGP(prior, LIKELIHOODS[kind](), approximation="laplace").fit(data)
    mean, covariance, evidence = dense_laplace(kind, k, data.values, offset, data.weights)
    torch.testing.assert_close(posterior.mean(data.rows, data.cols), mean, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(posterior(data.rows, data.cols).covariance_matrix, covariance, atol=1e-8, rtol=1e-8)
    assert abs(posterior.evidence_bound - evidence) < 1e-8 * max(abs(evidence), 1)
    # everywhere else the posterior follows from the prior
    everything, cells = whole(prior), data.rows * N + data.cols
    gain = torch.linalg.solve(k, everything[cells]).T
    expected = prior.mean_matrix().flatten() + gain @ (mean - offset)
    torch.testing.assert_close(posterior.mean(*EVERY), expected, atol=1e-7, rtol=1e-7)
    left = (everything - gain @ everything[cells] + gain @ covariance @ gain.T).diagonal()
    torch.testing.assert_close(posterior.variance(*EVERY), left, atol=1e-7, rtol=1e-7)
    torch.testing.assert_close(sum(term.scores() for term in posterior.terms), posterior.scores())


@pytest.mark.slow
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_variational_posterior_is_the_best_gaussian(kind):
    prior, data, k, offset = problem(kind, 3)
    posterior = mvgp.FullGP(prior, LIKELIHOODS[kind]()).fit(data)
    mean, covariance, bound = direct_variational(kind, k, data.values, offset, data.weights)
    scale = float(covariance.diagonal().max().sqrt())
    torch.testing.assert_close(posterior.mean(data.rows, data.cols), mean, atol=1e-3 * scale, rtol=1e-3)
    torch.testing.assert_close(posterior.variance(data.rows, data.cols), covariance.diagonal(), atol=0, rtol=1e-2)
    assert abs(posterior.evidence_bound - bound) < 1e-4 * abs(bound)
    assert posterior.inference.residual <= 1e-8
    means, variances = posterior.mean([0, 4], [6, 0]).tolist(), posterior.variance([0, 4], [6, 0]).tolist()
    chances = posterior.predictive([0, 4], [6, 0]).log_prob(torch.ones(2, dtype=torch.float64)).exp().tolist()
    assert chances == pytest.approx(
        [predicted(kind, m, v, 1.0) for m, v in zip(means, variances, strict=True)], abs=1e-5
    )


def test_without_a_dense_factor_it_is_the_same():
    prior, data, _, _ = problem("logistic", 3)
    options = [{}, {"method": "cg", "limits": mvgp.linalg.cost.Limits(dense=5)}]
    fits = [PointwiseFit(prior, data, LogisticLikelihood(), "laplace", tolerance=1e-12, **more) for more in options]
    dense, lazy = (laplace_sites(one.sites, tolerance=1e-10, max_iterations=50) for one in fits)
    torch.testing.assert_close(lazy.psi, dense.psi, atol=1e-8, rtol=1e-8)


class Cloglog(gpytorch.likelihoods.Likelihood):
    """A user's own, by its logit, so that no digits are lost."""

    def forward(self, function_samples, *args, **kwargs):
        rate = function_samples.exp()
        return torch.distributions.Bernoulli(logits=rate + torch.log(-torch.expm1(-rate)))


def noisy(kind):
    likelihood = kind().double()
    likelihood.noise = torch.tensor(0.4, dtype=torch.float64)
    return likelihood


@pytest.mark.slow
@pytest.mark.parametrize(
    "likelihood",
    [
        Cloglog,
        lambda: noisy(LaplaceLikelihood),
        lambda: noisy(StudentTLikelihood),
        lambda: FixedNoiseGaussianLikelihood(torch.linspace(0.1, 1, COUNT, dtype=torch.float64)),
    ],
    ids=["own", "laplace noise", "student", "fixed noise"],
)
@pytest.mark.parametrize("model", ["full", "trace"])
def test_a_kernel_in_two_parts_is_the_whole_one(likelihood, model):
    """The posterior of a sum depends on the sum of the kernels alone, if all terms have one Hilbert penalty."""
    rng = randomness.numpy_generator(3)
    rows, cols = positive(rng, M, 1.5), positive(rng, N, 1.0)
    terms = [mvgp.MatrixGP(*map(PrecomputedKernel, (share * rows, cols))) for share in (1.0, 0.3, 0.7)]
    one, both = terms[0], terms[1] + terms[2]
    data = make_data("logistic", one)
    fits = []
    for prior in (one, both):
        if model == "full":
            fits.append(mvgp.FullGP(prior, likelihood()).fit(data))
        else:
            ridge = mvgp.SpectralElasticNet(1.0, 0.0)
            fits.append(mvgp.TraceGP(prior, likelihood(), penalty=ridge, tolerance=1e-12, strict=True).fit(data))
    atol = 1e-6 if model == "full" else 1e-4
    torch.testing.assert_close(fits[1].scores(), fits[0].scores(), atol=atol, rtol=atol)
    torch.testing.assert_close(fits[1].variance(*EVERY), fits[0].variance(*EVERY), atol=atol, rtol=atol)
    torch.testing.assert_close(fits[1].terms[0].scores() / 0.3, fits[1].terms[1].scores() / 0.7, atol=atol, rtol=atol)


# The trace norm ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_logistic_mean_with_a_penalty_for_each_term_is_the_conic_optimum():
    pytest.importorskip("cvxpy")
    prior = make_prior(3, randomness.fixed_numpy_generator(1))
    for term in prior.terms:
        term.mean_module = mvgp.priors.ZeroMean(torch.float64)
    data = make_data("logistic", prior, randomness.fixed_numpy_generator)
    model = mvgp.TraceGP(
        prior, LogisticLikelihood(), penalty=NETS, approximation="laplace", tolerance=1e-7, max_iterations=20_000
    )
    posterior = model.fit(data)
    kernels = [(t.row_axis.covariance().to_dense(), t.col_axis.covariance().to_dense()) for t in prior.terms]
    signs = 2 * data.values - 1
    value, psi, _ = conic_additive(kernels, NETS, data.rows, data.cols, signs, data.weights, logistic=True)
    certificate = posterior.certificate
    assert certificate.relative_gap <= 1e-7
    assert certificate.dual - 1e-7 * value <= value <= certificate.primal + 1e-7 * value
    assert abs(certificate.primal - value) < 1e-6 * value
    torch.testing.assert_close(posterior.mean(data.rows, data.cols), psi, atol=3e-3, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("approximation", ["variational", "laplace"])
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_mean_and_covariance_belong_together(kind, approximation):
    """The mean is certified for the variances, and the precisions follow from both."""
    prior, data, k, offset = problem(kind, 3)
    options = {"approximation": approximation, "penalty": NETS, "tolerance": 1e-7, "max_iterations": 10_000}
    posterior = mvgp.TraceGP(prior, LIKELIHOODS[kind](), strict=True, **options).fit(data)
    assert posterior.certificate.relative_gap <= 1e-7
    assert posterior.inference.residual <= 1e-8
    sites = posterior.sites
    psi = posterior.mean(data.rows, data.cols)
    torch.testing.assert_close(psi, offset + sites.psi, atol=1e-8, rtol=1e-8)
    covariance = torch.linalg.inv(torch.linalg.inv(k) + torch.diag(sites.precision))
    torch.testing.assert_close(posterior.variance(data.rows, data.cols), covariance.diagonal(), atol=1e-7, rtol=1e-7)
    fit = PointwiseFit(prior, data, LIKELIHOODS[kind](), approximation, tolerance=1e-8)
    variance = covariance.diagonal() if approximation == "variational" else None
    _, _, precision = fit.sites.moments(sites.psi, variance)
    torch.testing.assert_close(precision, sites.precision, atol=1e-6, rtol=1e-5)
    full = mvgp.FullGP(prior, LIKELIHOODS[kind]()).fit(data)
    if approximation == "variational":  # the plain posterior has the largest bound
        assert posterior.evidence_bound <= full.evidence_bound + 1e-9 * abs(full.evidence_bound)


@pytest.mark.slow
def test_a_path_is_warm_started_and_resumes_with_other_data():
    prior, data, _, _ = problem("probit", 2)
    model = mvgp.TraceGP(prior, BernoulliLikelihood(), trace_share=[1.0, 0.0], tolerance=1e-6)
    points = list(model.path(data, strengths=[1.0, 0.3, 0.1]))
    assert points[0].posterior.terms[0].rank <= points[-1].posterior.terms[0].rank
    for point in points:  # a warm start leaves no directions of rounding errors
        values = point.posterior.solution.parts[0].mean.values
        assert bool((values > 1e-12 * values.sum()).all())
    alone = mvgp.TraceGP(prior, BernoulliLikelihood(), strength=0.1, trace_share=[1.0, 0.0], tolerance=1e-6)
    last = points[-1].posterior
    torch.testing.assert_close(last.scores(), alone.fit(data).scores(), atol=1e-2, rtol=1e-2)
    observed = (data.rows * N + data.cols).tolist()
    cell = next(cell for cell in range(M * N) if cell not in observed)
    more = mvgp.ObservedMatrix([cell // N], [cell % N], [1.0], SHAPE)
    updated = last.condition(more)
    assert len(updated.conditional.pairs) == COUNT + 1
    assert updated.penalties == last.penalties
    assert updated.certificate.converged


# The evidence bound ------------------------------------------------------------------------------


def learnable_prior():
    inputs = [torch.linspace(0, 2, size).double().unsqueeze(1) for size in SHAPE]
    axes = {"row_inputs": inputs[0], "col_inputs": inputs[1]}
    first = mvgp.MatrixGP(ScaleKernel(RBFKernel()).double(), RBFKernel().double(), mean=ConstantMean(0.2), **axes)
    second = mvgp.MatrixGP(ConstantKernel(M), ScaleKernel(RBFKernel()).double(), col_inputs=inputs[1])
    return first + second


def fitted(prior, data, mu, share):
    if mu == 0:
        return mvgp.FullGP(prior, LogisticLikelihood(), tolerance=1e-10).fit(data)
    nets = [mvgp.SpectralElasticNet.from_noise(1.0, mu), mvgp.SpectralElasticNet.from_noise(1.0, share * mu)]
    return mvgp.TraceGP(prior, LogisticLikelihood(), penalty=nets, tolerance=1e-11, max_iterations=20_000).fit(data)


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "share"), [(0.0, 0), (0.5, 1), (0.5, 0)], ids=["plain", "both traced", "one traced"])
def test_the_gradient_is_that_of_the_refitted_bound(mu, share):
    prior = learnable_prior()
    data = make_data("logistic", prior)

    def objective():
        posterior = fitted(prior, data, mu, share)
        return posterior.evidence_bound - (mu * posterior.trace_norm if mu else 0.0)

    posterior = fitted(prior, data, mu, share)
    bound = evidence_bound(prior, LogisticLikelihood(), data, posterior)
    assert float(bound.value.detach()) == posterior.evidence_bound
    bound.value.backward()
    assert bound.trace_norm == (None if mu == 0 else pytest.approx(posterior.trace_norm))
    step = 1e-4
    for name, parameter in prior.named_parameters():
        before, values = parameter.detach().clone(), []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.copy_(before + sign * step)
            values.append(objective())
        with torch.no_grad():
            parameter.copy_(before)
        slope = (values[0] - values[1]) / (2 * step)
        limit = 1e-5 if mu == 0 else 2e-3
        assert abs(slope - float(parameter.grad)) < limit * (1 + abs(slope)), (name, slope, float(parameter.grad))


@pytest.mark.slow
def test_learning_raises_the_bound():
    prior = learnable_prior()
    data = make_data("logistic", prior)
    before = fitted(prior, data, 0.0, 0).evidence_bound
    result = learn_evidence(mvgp.FullGP(prior, LogisticLikelihood()), data, tolerance=1e-2)
    assert result.converged
    assert fitted(prior, data, 0.0, 0).evidence_bound >= before


def test_a_bound_needs_the_hilbert_part_of_every_term():
    prior, data, _, _ = problem("logistic", 2)
    nets = [mvgp.SpectralElasticNet.from_noise(1.0, 0.5), mvgp.SpectralElasticNet(2.0, 0.0)]
    posterior = mvgp.TraceGP(prior, LogisticLikelihood(), penalty=nets).fit(data)
    with pytest.raises(InputError, match="Hilbert part is 1, got 2"):
        evidence_bound(prior, LogisticLikelihood(), data, posterior)


# With the rest of the library --------------------------------------------------------------------


@pytest.mark.parametrize("model", ["full", "trace"])
@pytest.mark.parametrize("lists", ["linked", "all"])
def test_whole_lists(model, lists):
    prior = make_prior(2, randomness.numpy_generator(1))
    links = mvgp.PositiveUnlabelled([0, 1, 1, 3], [2, 0, 5, 2], SHAPE, 0.2, lists=lists)
    labels = torch.zeros(links.num_cells, dtype=torch.float64)
    weights = torch.full_like(labels, 0.2)
    labels[links.positions] = weights[links.positions] = 1.0
    pairs = mvgp.ObservedMatrix(links.pattern.rows, links.pattern.cols, labels, SHAPE, weights=weights)
    make = {
        "full": lambda: mvgp.FullGP(prior, LogisticLikelihood()),
        "trace": lambda: mvgp.TraceGP(prior, LogisticLikelihood(), penalty=NETS[:2], tolerance=1e-7),
    }[model]
    found, expected = make().fit(links), make().fit(pairs)
    torch.testing.assert_close(found.scores(), expected.scores(), atol=1e-6, rtol=1e-6)
    why = found.explain(3, 5)
    assert len(why.shares) == 4
    assert abs(why.residual) < 1e-3 * (1 + abs(why.score))
    assert float(why.term_shares.sum()) == pytest.approx(float(why.shares.sum()))


@pytest.mark.parametrize("model", ["full", "trace"])
def test_a_file_keeps_predictions(model, tmp_path):
    prior, data, _, _ = problem("probit", 2)
    recipe = (
        mvgp.FullGP(prior, BernoulliLikelihood())
        if model == "full"
        else mvgp.TraceGP(prior, BernoulliLikelihood(), penalty=NETS[:2])
    )
    posterior = recipe.fit(data)
    posterior.save(tmp_path / "posterior.mvgp")
    loaded = mvgp.load(tmp_path / "posterior.mvgp")
    assert torch.equal(loaded.predictive(*EVERY).probs, posterior.predictive(*EVERY).probs)


class Huber(Loss):
    """A user's own loss, which says nothing about variances."""

    curvature = 1.0

    def __init__(self, targets):
        self.targets = targets

    def __call__(self, psi):
        off = psi - self.targets
        value = torch.where(off.abs() < 1, off.square() / 2, off.abs() - 0.5).sum()
        return ConvexValue(float(value), off.clamp(-1, 1), psi=psi)


class HuberLikelihood:
    def data_loss(self, data, prior_mean, **biases):
        return Huber(data.values - prior_mean(data.rows, data.cols))


@pytest.mark.parametrize("model", ["full", "trace"])
def test_a_loss_without_variances_has_none(model):
    prior, data, _, _ = problem("probit", 2)
    recipe = (
        mvgp.FullGP(prior, HuberLikelihood())
        if model == "full"
        else mvgp.TraceGP(prior, HuberLikelihood(), penalty=NETS[:2])
    )
    posterior = recipe.fit(data)
    assert posterior.certificate.converged
    with pytest.raises(InputError, match="second_derivatives"):
        posterior.variance([0], [0])
