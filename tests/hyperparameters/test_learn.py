"""Learning hyperparameters of data drawn from a known model."""

import itertools

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

import mvgp
from mvgp.errors import InputError, SizeError
from mvgp.hyperparameters import learn, log_marginal
from mvgp.hyperparameters.learning import standard_errors
from mvgp.hyperparameters.probes import Reference
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.priors import RowBiasMean
from tests import randomness
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

ROWS, COLS = ring(24), ring(30)
TRUTH = {
    "row_axis.kernel.outputscale": 2.0,
    "row_axis.kernel.base_kernel.time": 2.0,
    "likelihood.noise_covar.noise": 0.1,
}
# Twice the log likelihood that the maximum has over the truth is nearly chi-squared with as many degrees of freedom as
# there are parameters, here 3: above 60 with a chance of 6e-13. Twelve draws gave 0.6 to 7.1.
MOST = 60.0


def scaled(outputscale, time):
    rows = ScaleKernel(DiffusionKernel(ROWS, time, shift=0.0)).double()
    rows.outputscale = torch.tensor(outputscale).double()
    cols = DiffusionKernel(COLS, 2.0, shift=0.1)
    cols.raw_time.requires_grad_(False)
    cols.raw_shift.requires_grad_(False)
    return mvgp.MatrixGP(rows, cols)


@pytest.fixture(scope="module")
def data():
    return measured(scaled(2.0, 2.0), 0.1, 0.5, seed=3)


@pytest.fixture(scope="module")
def exact(data):
    prior, likelihood = scaled(1.0, 0.7), gaussian(1.0)
    return prior, likelihood, learn(prior, likelihood, data)


def test_the_maximum_of_the_dense_likelihood_is_found(data, exact):
    """Flat there by automatic differentiation of the dense formula, above the truth, and by no more than chance."""
    prior, likelihood, found = exact
    assert found.converged
    assert found.gradient <= found.tolerance
    assert set(found.parameters) == set(found.standard_errors) == set(TRUTH)
    dense = dense_log_marginal(prior, likelihood, data)
    assert float(gradients(dense, prior, likelihood).abs().max()) <= 1.01 * found.tolerance * len(data) ** 0.5
    with torch.no_grad():
        truth = float(dense_log_marginal(scaled(2.0, 2.0), gaussian(0.1), data))
    assert 0 <= 2 * (float(dense.detach()) - truth) < MOST
    for name in TRUTH:
        assert 0 < float(found.standard_errors[name]) < float("inf")
    assert all(after >= before for before, after in itertools.pairwise(found.history))
    assert abs(float(dense.detach()) - found.history[-1]) < 1e-6
    assert abs(float(likelihood.noise.detach()) - float(found.parameters["likelihood.noise_covar.noise"])) < 1e-12
    assert "likelihood.noise_covar.noise 0." in str(found)
    assert "+-" in str(found)


def test_standard_errors_are_those_of_the_constrained_hessian(data, exact):
    """Against the Hessian in the constrained parameters themselves, by differences of values."""
    found = exact[2]
    best = torch.stack([found.parameters[name].reshape(()) for name in TRUTH])

    def value(point):
        with torch.no_grad():
            return float(log_marginal(scaled(float(point[0]), float(point[1])), gaussian(float(point[2])), data).value)

    step = 1e-2 * best
    hessian = torch.zeros(3, 3).double()
    for i in range(3):
        for j in range(i + 1):
            e, f = (torch.zeros(3).double().index_fill_(0, torch.tensor(k), 1) * step for k in (i, j))
            corners = value(best + e + f) - value(best + e - f) - value(best - e + f) + value(best - e - f)
            hessian[i, j] = hessian[j, i] = corners / (4 * step[i] * step[j])
    truth = torch.linalg.inv(-hessian).diagonal().sqrt()
    for place, name in enumerate(TRUTH):
        assert abs(float(found.standard_errors[name]) / float(truth[place]) - 1) < 0.02


def small(lengthscale):
    """Few enough cells for a probe in every direction."""
    cols = RBFKernel().double()
    cols.lengthscale = torch.tensor(lengthscale).double()
    rows = DiffusionKernel(ring(6), 1.5, shift=0.05).requires_grad_(False)
    return mvgp.MatrixGP(rows, cols, col_inputs=torch.linspace(0, 1, 12))


def waves():
    """Smooth but for a small part, so that the optimum has little noise; nothing is drawn."""
    rows, cols = torch.meshgrid(torch.arange(6.0).double(), torch.arange(12.0).double(), indexing="ij")
    values = (
        torch.cos(torch.pi * rows / 3 + cols / 3) + 0.5 * torch.sin(cols / 2) + 0.15 * torch.cos(7 * rows * cols + cols)
    )
    return mvgp.ObservedMatrix.from_mask(values, (5 * rows + 7 * cols) % 10 >= 3)


@pytest.mark.slow
def test_probes_end_at_the_exact_optimum(monkeypatch):
    """The spectrum is narrow at the start and wide at the optimum: no preconditioner at first, then one.

    Nothing is left to chance: every direction is a probe, and whether the optimum has little noise is up to the data.
    """
    data = waves()
    probes, found, preconditioned = every_direction(monkeypatch, data), [], []
    build = Reference.build
    monkeypatch.setattr(Reference, "build", lambda *a, **o: noted(preconditioned, build(*a, **o)))
    for method in ("cholesky", "probes"):
        prior, likelihood = small(0.02), gaussian(1.0)
        options = {"probes": probes, "probe_tolerance": 1e-8} if method == "probes" else {}
        found.append(learn(mvgp.FullGP(prior, likelihood), likelihood, data, method=method, tolerance=1e-5, **options))
    exact, probed = found
    assert exact.converged
    assert probed.converged
    assert probed.log_marginal.method == "probes"
    assert preconditioned[0] is None
    assert preconditioned[-1] is not None
    assert abs(probed.log_marginal.value - exact.log_marginal.value) < 1e-5
    for name, error in exact.standard_errors.items():
        assert (probed.parameters[name] - exact.parameters[name]).abs() < 1e-3 * error
        assert (probed.standard_errors[name] / error - 1).abs() < 1e-2


def noted(seen, reference):
    seen.append(reference.preconditioner)
    return reference


@pytest.mark.slow
def test_random_probes_learn_too(data):
    prior, likelihood = scaled(1.0, 0.7), gaussian(1.0)
    options = {"method": "probes", "errors": False, "seed": randomness.seed(0)}
    found = learn(mvgp.FullGP(prior, likelihood), likelihood, data, **options)
    assert found.converged
    assert found.standard_errors == {}
    assert found.log_marginal.method == "probes"
    with torch.no_grad():
        start = float(dense_log_marginal(scaled(1.0, 0.7), gaussian(1.0), data))
        assert float(dense_log_marginal(prior, likelihood, data)) > start  # several hundred above


def test_a_graph_that_has_nothing_to_say_gets_little_weight():
    """Two rings through the same columns, in another order.

    The estimated weight of the other one is 0 or, half of the time, positive with a standard deviation of about 0.07
    of the real one: 40 draws gave 0 to 0.15. Half of it is beyond six of them.
    """
    order = randomness.numpy_generator(0).permutation(30)
    graphs = [Graph(np.stack([p, np.roll(p, 1)], 1), 30) for p in (np.arange(30), order)]

    def columns():
        parts = [ScaleKernel(DiffusionKernel(g, 6.0, shift=0.0)).double() for g in graphs]
        for part in parts:
            part.base_kernel.raw_time.requires_grad_(False)
        return parts

    def prior_of(cols):
        return mvgp.MatrixGP(DiffusionKernel(ring(20), 1.0, shift=0.1).requires_grad_(False), cols)

    real, _ = columns()
    real.outputscale = torch.tensor(2.0).double()
    truth = prior_of(real)
    data = measured(truth, 0.1, 0.5, seed=5)
    real, other = columns()
    found = learn(prior_of(real + other), gaussian(0.5), data)
    assert found.converged
    assert float(other.outputscale.detach()) < 0.5 * float(real.outputscale.detach())
    with torch.no_grad():
        best = float(dense_log_marginal(truth, gaussian(0.1), data))
    assert 0 <= 2 * (found.history[-1] - best) < MOST


def test_priors_on_parameters_pull():
    data = observe(torch.randperm(M * N)[:40])
    found = []
    for centre in (None, -3.0):
        prior, likelihood = PRIORS["diffusion x rbf"](), gaussian(0.5)
        if centre is not None:
            likelihood.register_prior("noise_prior", gpytorch.priors.LogNormalPrior(centre, 0.01), "noise")
        learn(prior, likelihood, data, errors=False)
        found.append(float(likelihood.noise.detach()))
    assert abs(found[1] - torch.tensor(-3.0).exp()) < 0.01
    assert abs(found[0] - found[1]) > 0.02


def test_running_out_of_steps_warns(data):
    with pytest.warns(RuntimeWarning, match="learning ended with gradient .* after 1 steps"):
        found = learn(scaled(1.0, 0.7), gaussian(1.0), data, max_steps=1, errors=False)
    assert not found.converged
    assert len(found.history) == 1


def test_progress_is_shown(capsys):
    prior = mvgp.MatrixGP(DiffusionKernel(ROWS), RBFKernel(), col_inputs=torch.rand(3))
    data = observe(torch.arange(50), (24, 3))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()  # in single precision
    learn(prior, likelihood, data, progress=True, errors=False)
    assert likelihood.noise.dtype == torch.float64
    assert "log marginal likelihood" in capsys.readouterr().err


def test_parameters_that_the_data_do_not_determine_have_no_standard_error():
    information = torch.tensor([[4.0, 0, 1e-9], [0, 9.0, 0], [1e-9, 0, 1e-8]]).double()
    found = standard_errors(information, torch.tensor([2.0, 3.0, 1e-4]).double())
    assert found[:2].tolist() == [1.0, 1.0]
    assert found[2].isnan()
    saddle = torch.tensor([[1.0, 2.0], [2.0, 1.0]]).double()
    assert standard_errors(saddle, torch.ones(2).double()).isnan().all()


def test_a_combination_that_the_data_do_not_determine_leaves_the_other_errors():
    information = torch.tensor([[4.0, 4, 1], [4, 4, 1], [1, 1, 9]]).double()  # of a function of a + b and c
    found = standard_errors(information, torch.ones(3).double())
    assert found[:2].isnan().all()
    torch.testing.assert_close(found[2], torch.tensor(9 - 1 / 4).double().rsqrt())


def test_of_two_output_scales_the_data_determine_the_product(exact, data):
    prior = scaled(1.0, 0.7)
    prior.col_axis.kernel = ScaleKernel(prior.col_axis.kernel).double()
    found = learn(prior, gaussian(1.0), data)
    single = exact[2].standard_errors
    for name, error in found.standard_errors.items():
        if name.endswith("outputscale"):
            assert error.isnan()
        else:  # the optima differ by the tolerance of learning
            torch.testing.assert_close(error, single[name], rtol=0.05, atol=0)
    assert str(found).count("(not determined)") == 2


def test_too_many_parameters_for_standard_errors():
    prior = mvgp.MatrixGP(DiffusionKernel(ring(201)), DiffusionKernel(ring(3)), mean=RowBiasMean(201))
    with pytest.raises(SizeError, match="up to 200 parameters, there are 206; pass errors=False"):
        learn(prior, gaussian(1.0), observe([1, 2, 3], (201, 3)))


def frozen():
    prior, likelihood = PRIORS["diffusion x rbf"](), gaussian(1.0)
    return prior.requires_grad_(False), likelihood.requires_grad_(False), observe([1, 2])


BAD = [
    (lambda p, d: learn(DiffusionKernel(ROWS), gaussian(1.0), d), "model: expected mvgp.MatrixGP"),
    (lambda p, d: learn(p, gaussian(1.0), torch.zeros(M, N)), "data: expected mvgp.ObservedMatrix, got Tensor"),
    (lambda p, d: learn(p, gaussian(1.0), mvgp.ObservedMatrix([0], [0], [1.0], (N, M))), r"\(7, 11\).*\(11, 7\)"),
    (lambda p, d: learn(p, gaussian(1.0), d, tolerance=0), "tolerance: expected a positive finite number"),
    (lambda p, d: learn(p, gaussian(1.0), d, max_steps=0), "max_steps: expected a positive whole number"),
    (lambda p, d: learn(p, gpytorch.likelihoods.BernoulliLikelihood(), d), "expected gpytorch's GaussianLikelihood"),
    (lambda p, d: learn(*frozen()), "nothing to learn"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(PRIORS["diffusion x rbf"](), observe([1, 2, 3]))
