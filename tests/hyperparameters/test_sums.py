"""The marginal likelihood of sums of Kronecker terms and its gradient, against dense algebra differentiated by torch."""

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.hyperparameters import MatrixMarginalLogLikelihood, learn, leave_one_out, log_marginal
from mvgp.kernels import DiffusionKernel, Graph, GraphMaternKernel
from mvgp.priors import ConstantMean, RowBiasMean
from tests import randomness

SHAPE = (6, 8)


def draw(*size, number):
    return torch.randn(*size, generator=randomness.generator(number), dtype=torch.float64)


def graph(size, number):
    return Graph(torch.randint(0, size, (2 * size, 2), generator=randomness.generator(number)), size)


def scaled(kernel, scale):
    outer = gpytorch.kernels.ScaleKernel(kernel).double()
    outer.outputscale = scale
    return outer


def mixed_prior():
    """Three terms: inputs on both axes, a graph by Chebyshev and inputs, low rank on both; a kernel serves two terms."""
    row_inputs, col_inputs = draw(SHAPE[0], 2, number=1), draw(SHAPE[1], 1, number=2)
    rbf = gpytorch.kernels.RBFKernel()
    terms = [
        mvgp.MatrixGP(rbf, gpytorch.kernels.MaternKernel(), row_inputs, col_inputs, mean=ConstantMean(0.3)),
        mvgp.MatrixGP(scaled(DiffusionKernel(graph(SHAPE[0], 3), method="chebyshev"), 0.5), rbf, col_inputs=col_inputs),
        mvgp.MatrixGP(
            gpytorch.kernels.LinearKernel(),
            DiffusionKernel(graph(SHAPE[1], 4), method="eigen"),
            row_inputs,
            mean=RowBiasMean(draw(SHAPE[0], number=5)),
        ),
    ]
    return sum(terms)


def graph_prior(method="eigen"):
    """Three terms whose kernels are functions of one Laplacian on each axis."""
    rows, cols = graph(SHAPE[0], 6), graph(SHAPE[1], 7)
    return sum(
        [
            mvgp.MatrixGP(DiffusionKernel(rows, time=1.0, method=method), DiffusionKernel(cols, method=method)),
            mvgp.MatrixGP(
                scaled(GraphMaternKernel(rows, method=method), 0.4),
                DiffusionKernel(cols, time=3.0, method=method),
                mean=ConstantMean(-0.2),
            ),
            mvgp.MatrixGP(DiffusionKernel(rows, time=0.3, method=method), GraphMaternKernel(cols, method=method)),
        ]
    )


def likelihood():
    gaussian = gpytorch.likelihoods.GaussianLikelihood().double()
    gaussian.noise = torch.tensor(0.2, dtype=torch.float64)
    return gaussian


def observations(share, weights):
    keep = torch.rand(SHAPE, generator=randomness.generator(8)) < share
    keep[0, 0] = True
    rows, cols = keep.nonzero().unbind(1)
    weight = 0.5 + torch.rand(len(rows), generator=randomness.generator(9)).double() if weights else None
    return mvgp.ObservedMatrix(rows, cols, draw(len(rows), number=10), SHAPE, weights=weight)


def dense_value(prior, gaussian, data):
    kernel = sum(
        torch.kron(term.row_axis.covariance().to_dense(), term.col_axis.covariance().to_dense()) for term in prior.terms
    )
    at = data.rows * SHAPE[1] + data.cols
    noise = gaussian.noise.reshape(()).expand(len(at)) / (1 if data.weights is None else data.weights)
    mean = prior.mean_matrix().reshape(-1)[at]
    return torch.distributions.MultivariateNormal(mean, kernel[at][:, at] + torch.diag(noise)).log_prob(data.values)


def learnable(*modules):
    return [p for module in modules for p in module.parameters() if p.requires_grad]


def gradients(value, *modules):
    parameters = learnable(*modules)
    return torch.autograd.grad(value, parameters, allow_unused=True)


def assert_same_gradients(first, second, atol):
    for a, b in zip(first, second, strict=True):
        a, b = (torch.zeros(()) if g is None else g for g in (a, b))
        torch.testing.assert_close(a.to(b).expand_as(b) if a.dim() == 0 else a, b, atol=atol, rtol=atol)


@pytest.mark.parametrize(
    ("make", "share", "weights", "method"),
    [
        (mixed_prior, 0.5, False, "cholesky"),
        (mixed_prior, 0.6, True, "cholesky"),
        (mixed_prior, 1.1, False, "cholesky"),  # complete, but without eigenvectors in common
        (graph_prior, 0.5, True, "cholesky"),
        (graph_prior, 1.1, False, "spectral"),
        (lambda: graph_prior("chebyshev"), 1.1, False, "spectral"),
    ],
)
def test_value_and_gradient_equal_dense_algebra(make, share, weights, method):
    prior, gaussian, data = make(), likelihood(), observations(share, weights)
    ours, truth = log_marginal(prior, gaussian, data), dense_value(prior, gaussian, data)
    assert ours.method == method
    assert ours.standard_error == 0
    assert ours.value.item() == pytest.approx(truth.item(), abs=1e-8)
    assert_same_gradients(gradients(ours.value, prior, gaussian), gradients(truth, prior, gaussian), 1e-7)


@pytest.mark.parametrize(("make", "weights"), [(mixed_prior, True), (graph_prior, False)])
def test_probes(make, weights):
    prior, gaussian, data = make(), likelihood(), observations(0.7, weights)
    options = {"method": "probes", "probes": 64, "probe_tolerance": 1e-10, "tolerance": 1e-12}
    mll = MatrixMarginalLogLikelihood(gaussian, prior, seed=randomness.seed(0), **options)

    def value():
        return mll(prior(data.rows, data.cols), data.values, weights=data.weights) * len(data)

    estimate, truth = value(), dense_value(prior, gaussian, data)
    last = mll.last
    assert last.method == "probes"
    assert abs(estimate.item() - truth.item()) <= 9 * last.standard_error + 1e-6
    found = gradients(estimate, prior, gaussian)
    # the gradient belongs to the estimate itself, whose probes stay the same
    parameters = learnable(prior, gaussian)
    for parameter, gradient in zip(parameters, found, strict=True):
        if gradient is None:
            continue
        step = torch.zeros_like(parameter)
        step.view(-1)[0] = 1e-5
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step
                ends.append(value().item())
                parameter -= sign * step
        slope = (ends[0] - ends[1]) / 2e-5
        assert float(gradient.reshape(-1)[0]) == pytest.approx(slope, abs=1e-5 * (1 + abs(slope)))


def test_a_sum_of_one_term_is_the_term():
    prior, data = mixed_prior().terms[0], observations(0.5, True)
    wrapped = mvgp.priors.SumGP(prior)
    for method in ("cholesky", "probes"):
        ours, truth = (log_marginal(each, likelihood(), data, method=method) for each in (wrapped, prior))
        assert ours.value.item() == pytest.approx(truth.value.item(), abs=1e-10)


def test_spectral_needs_eigenvectors_in_common():
    data = observations(1.1, False)
    with pytest.raises(InputError, match="share their eigenvectors"):
        log_marginal(mixed_prior(), likelihood(), data, method="spectral")


def test_second_derivatives_are_refused_where_they_would_be_wrong():
    prior, gaussian = graph_prior(), likelihood()
    value = log_marginal(prior, gaussian, observations(1.1, False)).value
    with pytest.raises(InputError, match="create_graph"):
        torch.autograd.grad(value, next(gaussian.parameters()), create_graph=True)


def test_learning_the_weights_of_two_terms():
    """From data of two terms, a smooth one and each cell's own, their variances are found again."""
    generator = randomness.generator(11)
    size = (14, 16)
    inputs = [torch.linspace(0, 3, n, dtype=torch.float64) for n in size]

    def make(first, second):
        smooth = mvgp.MatrixGP(scaled(gpytorch.kernels.RBFKernel(), first), gpytorch.kernels.RBFKernel(), *inputs)
        flat = DiffusionKernel(Graph([(0, 1)], size[0]), time=1e-6, shift=0.0)  # the identity
        rough = mvgp.MatrixGP(scaled(flat, second), gpytorch.kernels.RBFKernel(), col_inputs=inputs[1])
        return smooth + rough

    truth = make(2.0, 0.5)
    noise = 0.1 * torch.randn(size, generator=generator, dtype=torch.float64)
    data = mvgp.ObservedMatrix.from_dense(truth.sample(generator) + noise)
    prior, gaussian = make(0.7, 0.7), likelihood()
    begin = log_marginal(prior, gaussian, data).value.item()
    result = learn(prior, gaussian, data, errors=False, max_steps=60, tolerance=1e-2)
    assert float(result.log_marginal.value) > begin
    # no worse than the parameters that the data came from
    known = likelihood()
    known.noise = torch.tensor(0.01, dtype=torch.float64)
    assert float(result.log_marginal.value) >= log_marginal(truth, known, data).value.item() - 1e-3


def test_leaving_one_out():
    prior, gaussian, data = graph_prior(), likelihood(), observations(0.6, True)
    found = leave_one_out(mvgp.FullGP(prior, gaussian).fit(data), data)
    for out in (0, len(data) - 1):
        keep = torch.arange(len(data)) != out
        rest = mvgp.ObservedMatrix(
            data.rows[keep], data.cols[keep], data.values[keep], SHAPE, weights=data.weights[keep]
        )
        posterior = mvgp.FullGP(prior, gaussian).fit(rest)
        mean = posterior.mean(data.rows[[out]], data.cols[[out]])
        assert float(found.mean[out]) == pytest.approx(float(mean), abs=1e-7)
