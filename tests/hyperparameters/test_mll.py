"""The training loop of gpytorch."""

import itertools

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import MatrixMarginalLogLikelihood, log_marginal
from mvgp.kernels import DiffusionKernel
from tests.hyperparameters.problems import (
    PRIORS,
    M,
    N,
    dense_log_marginal,
    every_direction,
    gaussian,
    gradients,
    measured,
    observe,
    ring,
)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "probes"])
def test_the_usual_loop_decreases_the_loss(method):
    truth = mvgp.MatrixGP(DiffusionKernel(ring(9), shift=8.0), RBFKernel(), col_inputs=torch.linspace(0, 20, 15))
    data = measured(truth, 0.1, 0.6, 0)
    prior = mvgp.MatrixGP(ScaleKernel(DiffusionKernel(ring(9), 3.0)), RBFKernel(), col_inputs=torch.linspace(0, 20, 15))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    mll = MatrixMarginalLogLikelihood(likelihood, prior, method=method)
    assert isinstance(mll, gpytorch.mlls.MarginalLogLikelihood)
    optimizer = torch.optim.Adam([*prior.parameters(), *likelihood.parameters()], lr=0.1)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = -mll(prior(data.rows, data.cols), data.values)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    assert mll.last.method == ("cholesky" if method == "auto" else "probes")
    assert all(after < before + 1e-2 for before, after in itertools.pairwise(losses))


def test_it_is_normalised_and_counts_priors_on_parameters():
    prior, likelihood = PRIORS["sums"](), gaussian(0.3)
    data = observe(torch.randperm(M * N)[:40], weighted=True)
    plain = dense_log_marginal(prior, likelihood, data)
    mll = MatrixMarginalLogLikelihood(likelihood, prior)
    found = mll(prior(data.rows, data.cols), data.values, weights=data.weights)
    assert abs(float((found - plain / 40).detach())) < 1e-9
    smooth = gpytorch.priors.GammaPrior(2.0, 3.0)
    prior.row_kernel.kernels[0].register_prior("outputscale_prior", smooth, "outputscale")
    likelihood.register_prior("noise_prior", gpytorch.priors.LogNormalPrior(-1.0, 0.5), "noise")
    extra = smooth.log_prob(prior.row_kernel.kernels[0].outputscale)
    extra = extra + likelihood.noise_prior.log_prob(likelihood.noise).sum()
    found = mll(prior(data.rows, data.cols), data.values, weights=data.weights)
    truth = (plain + extra) / 40
    assert abs(float((found - truth).detach())) < 1e-7
    assert abs(float((mll.last.value - plain).detach())) < 1e-8
    ours, theirs = (gradients(v, prior, likelihood) for v in (found, truth))
    torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-6)


def test_a_kernel_of_both_axes_is_counted_once():
    kernel = DiffusionKernel(ring(6))
    kernel.register_prior("time_prior", gpytorch.priors.GammaPrior(2.0, 3.0), "time")
    mll = MatrixMarginalLogLikelihood(gaussian(0.3), mvgp.MatrixGP(kernel, kernel))
    once = kernel.time_prior.log_prob(kernel.time)
    assert torch.equal(mll.log_parameter_prior(), once)


def test_likelihoods_in_single_precision_are_welcome():
    prior, data = PRIORS["diffusion x rbf"](), observe(torch.randperm(M * N)[:40])
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    loss = -MatrixMarginalLogLikelihood(likelihood, prior)(prior(data.rows, data.cols), data.values)
    loss.backward()
    assert loss.dtype == torch.float64
    assert likelihood.noise_covar.raw_noise.grad.dtype == torch.float32


@pytest.mark.slow
def test_probes_stay_until_the_parameters_have_moved_far(monkeypatch):
    """The value is right before and after. Every direction is a probe, so that right means equal."""
    times = torch.linspace(0, 5, 31)
    prior = mvgp.MatrixGP(ScaleKernel(DiffusionKernel(ring(20), shift=0.1)), RBFKernel(), col_inputs=times)
    data, likelihood = observe(torch.randperm(620)[:300], (20, 31)), gaussian(0.1)
    probes = every_direction(monkeypatch, data)
    mll = MatrixMarginalLogLikelihood(likelihood, prior, method="probes", probes=probes)

    def value():
        return float(mll(prior(data.rows, data.cols), data.values).detach())

    first, reference = value(), mll._reference
    assert value() == first
    prior.col_kernel.lengthscale = 0.65
    moved = value()
    assert mll._reference is reference
    exact = float(log_marginal(prior, likelihood, data, method="cholesky").value.detach())
    assert abs(moved * 300 - exact) < 1e-3
    prior.col_kernel.lengthscale = 0.4
    likelihood.noise = 1e-3
    value()
    assert mll._reference is not reference
    exact = float(log_marginal(prior, likelihood, data, method="cholesky").value.detach())
    assert abs(float(mll.last.value.detach()) - exact) < 1e-3
    reference = mll._reference
    mll.refresh()
    value()
    assert mll._reference is not reference
    monkeypatch.undo()
    fewer = observe(torch.randperm(620)[:200], (20, 31))
    mll(prior(fewer.rows, fewer.cols), fewer.values)  # other pairs: another reference
    assert len(mll._reference.pairs) == 200


def test_torch_lbfgs_converges_on_probes():
    truth = mvgp.MatrixGP(DiffusionKernel(ring(12)), DiffusionKernel(ring(25)))
    data = measured(truth, 0.2, 0.7, 1)
    prior, likelihood = mvgp.MatrixGP(ScaleKernel(DiffusionKernel(ring(12))), DiffusionKernel(ring(25))), gaussian(1.0)
    mll = MatrixMarginalLogLikelihood(likelihood, prior, method="probes")
    raw = [prior.row_kernel.raw_outputscale, likelihood.noise_covar.raw_noise]
    optimizer = torch.optim.LBFGS(raw, max_iter=50, line_search_fn="strong_wolfe", tolerance_grad=1e-6)

    def closure():
        optimizer.zero_grad()
        loss = -mll(prior(data.rows, data.cols), data.values)
        loss.backward()
        return loss

    optimizer.step(closure)
    closure()
    assert max(float(p.grad.abs().max()) for p in raw) < 1e-5


def make():
    return PRIORS["diffusion x rbf"]()


BAD = [
    (lambda p: MatrixMarginalLogLikelihood(gaussian(1.0), DiffusionKernel(ring(4))), "prior: expected mvgp.MatrixGP"),
    (
        lambda p: MatrixMarginalLogLikelihood(gpytorch.likelihoods.BernoulliLikelihood(), p),
        "expected gpytorch's GaussianLikelihood, got Bernoulli",
    ),
    (lambda p: MatrixMarginalLogLikelihood(gaussian(1.0), p, probes=1), "probes: expected"),
    (lambda p: MatrixMarginalLogLikelihood(gaussian(1.0), p).last, "nothing has been computed yet"),
    (lambda p: MatrixMarginalLogLikelihood(gaussian(1.0), p)(p([0], [1]), [1.0, 2.0]), "target: expected 1 numbers"),
    (
        lambda p: MatrixMarginalLogLikelihood(gaussian(1.0), p)(p([0], [1]), [float("nan")]),
        r"target\[0\]: expected a finite",
    ),
    (
        lambda p: MatrixMarginalLogLikelihood(gaussian(1.0), p)(p([0], [1]), [1.0], weights=[0.0]),
        r"weights\[0\]: expected a positive finite number",
    ),
    (
        lambda p: MatrixMarginalLogLikelihood(gaussian(1.0), p)(
            gpytorch.distributions.MultivariateNormal(torch.zeros(1), torch.eye(1)), [1.0]
        ),
        r"expected prior\(rows, cols\), got MultivariateNormal",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(make())
