"""The exact log marginal likelihood against torch's own normal distribution."""

import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood

import mvgp
from mvgp.errors import ConvergenceError, InputError, NotPositiveSemidefiniteError
from mvgp.hyperparameters import log_marginal
from tests.hyperparameters.problems import (
    PRIORS,
    M,
    N,
    dense_log_marginal,
    every_direction,
    gaussian,
    gradients,
    observe,
)

PLACES = {
    "scattered": lambda: torch.randperm(M * N)[:45],
    "empty rows and columns": lambda: torch.tensor(
        [c for c in range(M * N) if c // N in (1, 2, 5) and c % N in (0, 3)]
    ),
    "one": lambda: torch.tensor([17]),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", PRIORS)
def test_value_and_gradient(name, places, weighted):
    prior, likelihood, data = PRIORS[name](), gaussian(0.2), observe(PLACES[places](), weighted=weighted)
    found, truth = log_marginal(prior, likelihood, data), dense_log_marginal(prior, likelihood, data)
    assert found.method == "cholesky"
    assert found.converged
    assert found.standard_error == 0
    assert abs(float((found.value - truth).detach())) < 1e-8
    ours, theirs = (gradients(v, prior, likelihood) for v in (found.value, truth))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", PRIORS)
def test_complete_grids_go_by_eigenvalues(name):
    prior, likelihood, data = PRIORS[name](), gaussian(0.2), observe(torch.arange(M * N))
    found, truth = log_marginal(prior, likelihood, data), dense_log_marginal(prior, likelihood, data)
    assert found.method == "spectral"
    assert abs(float((found.value - truth).detach())) < 1e-8
    ours, theirs = (gradients(v, prior, likelihood) for v in (found.value, truth))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


def test_single_precision(monkeypatch):
    prior, likelihood, data = PRIORS["diffusion x rbf"](), gaussian(0.2), observe(PLACES["scattered"]())
    truth = dense_log_marginal(prior, likelihood, data)
    prior.to(torch.float32)
    probes = every_direction(monkeypatch, data)  # the estimate is then its expectation
    for method in ("cholesky", "probes"):
        found = log_marginal(prior, likelihood, data, method=method, probes=probes)
        assert found.value.dtype == torch.float32
        assert abs(float(found.value.detach()) - float(truth.detach())) < 1e-3


def test_a_direct_method_that_misses_its_tolerance_is_an_error():
    prior, likelihood, data = PRIORS["diffusion x rbf"](), gaussian(0.2), observe(PLACES["scattered"]())
    with pytest.raises(ConvergenceError, match="cholesky ended with relative residual"):
        log_marginal(prior, likelihood, data, tolerance=1e-30)


def test_a_matrix_that_is_not_positive_definite_is_refused():
    prior = PRIORS["diffusion x rbf"]().to(torch.float32)
    prior.row_kernel.shift = 1e12
    prior.col_kernel.lengthscale = 1e6
    with pytest.raises(NotPositiveSemidefiniteError, match="raise it, or use float64"):
        log_marginal(prior, gaussian(1e-3), observe(torch.arange(M * N - 1)))


BAD = [
    (
        lambda p, d: log_marginal(p, gaussian(1.0), mvgp.ObservedMatrix([0], [0], [1.0], (N, M))),
        r"\(7, 11\).*\(11, 7\)",
    ),
    (lambda p, d: log_marginal(None, gaussian(1.0), d), "prior: expected mvgp.MatrixGP, got NoneType"),
    (lambda p, d: log_marginal(p, gaussian(1.0), None), "data: expected mvgp.ObservedMatrix, got NoneType"),
    (lambda p, d: log_marginal(p, torch.nn.Identity(), d), "expected gpytorch's GaussianLikelihood, got Identity"),
    (
        lambda p, d: log_marginal(p, GaussianLikelihood(batch_shape=torch.Size([2])), d),
        "expected one noise variance, got 2",
    ),
    (lambda p, d: log_marginal(p, gaussian(1.0), d, method="magic"), "method: expected"),
    (lambda p, d: log_marginal(p, gaussian(1.0), d, method="spectral"), "needs every cell observed"),
    (lambda p, d: log_marginal(p, gaussian(1.0), d, tolerance=0.0), "tolerance: expected a positive finite number"),
    (lambda p, d: log_marginal(p, gaussian(1.0), d, probe_tolerance=-1.0), "probe_tolerance: expected a positive"),
    (
        lambda p, d: log_marginal(p, gaussian(1.0), d, method="probes", probes=1),
        "probes: expected .* at least 2, got 1",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(PRIORS["diffusion x rbf"](), observe([1, 2, 3]))
