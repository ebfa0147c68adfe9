"""The plain posterior against dense conditioning of the whole joint Gaussian."""

import copy
import pickle

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator

import mvgp
from mvgp.errors import ConvergenceError, InputError
from mvgp.kernels import DiffusionKernel, Graph, GraphMaternKernel, PrecomputedKernel, RegularizedLaplacianKernel
from mvgp.linalg.pair_operator import SpectralKroneckerLinearOperator
from mvgp.posteriors.covariance import PosteriorCovarianceLinearOperator
from mvgp.priors import ConstantMean, RowBiasMean
from tests import randomness
from tests.oracles import assert_moments, dense_posterior, random_edges

M, N = 7, 11
RNG = randomness.numpy_generator(0)
ROWS, COLS = Graph(random_edges(RNG, M, 9), M), Graph(random_edges(RNG, N, 20), N, RNG.random(25))
X = torch.from_numpy(RNG.normal(size=(N, 2)))


def precomputed(size):
    a = torch.from_numpy(randomness.numpy_generator(size).normal(size=(size, size - 2)))  # singular
    return PrecomputedKernel(a @ a.T / size)  # eigenvalues of up to about 4, so that single precision suffices


PRIORS = {
    "diffusion, eigenpairs": lambda: mvgp.MatrixGP(DiffusionKernel(ROWS), DiffusionKernel(COLS, 0.4, 0.2)),
    "diffusion, polynomial": lambda: mvgp.MatrixGP(
        DiffusionKernel(ROWS, method="chebyshev"),
        DiffusionKernel(COLS, 0.4, 0.2, method="chebyshev"),
        mean=ConstantMean(0.7),
    ),
    "regularized x matern": lambda: mvgp.MatrixGP(RegularizedLaplacianKernel(ROWS, 3.0), GraphMaternKernel(COLS)),
    "precomputed": lambda: mvgp.MatrixGP(precomputed(M), precomputed(N), mean=RowBiasMean(torch.randn(M))),
    "graph x inputs": lambda: mvgp.MatrixGP(
        gpytorch.kernels.ScaleKernel(DiffusionKernel(ROWS)), gpytorch.kernels.RBFKernel(), col_inputs=X
    ),
    "inputs x sum": lambda: mvgp.MatrixGP(
        gpytorch.kernels.MaternKernel(nu=1.5) + gpytorch.kernels.LinearKernel(),
        DiffusionKernel(COLS, method="chebyshev") + precomputed(N),
        row_inputs=torch.linspace(0, 3, M),
    ),
    "product": lambda: mvgp.MatrixGP(
        DiffusionKernel(ROWS) * precomputed(M), gpytorch.kernels.RBFKernel(), col_inputs=X
    ),
}


def gaussian(noise):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)  # gpytorch would round a plain number to float32
    return likelihood


def observe(cells, weighted=False, seed=0):
    generator = randomness.generator(seed)
    cells = torch.as_tensor(cells)
    values = torch.randn(len(cells), generator=generator, dtype=torch.float64)
    weights = torch.rand(len(cells), generator=generator, dtype=torch.float64) + 0.5 if weighted else None
    return mvgp.ObservedMatrix(cells // N, cells % N, values, (M, N), weights=weights)


def oracle(prior, data, noise):
    with torch.no_grad():
        k_rows, k_cols = prior.row_axis.covariance().to_dense(), prior.col_axis.covariance().to_dense()
        each = noise if data.weights is None else noise / data.weights
        mean = prior.mean_matrix()
    return dense_posterior(k_rows, k_cols, data.rows, data.cols, data.values, each, mean)


def everything():
    cells = torch.arange(M * N)
    return cells // N, cells % N


def assert_close(found, truth, tolerance=1e-8):
    torch.testing.assert_close(found, truth, atol=tolerance, rtol=0)


@pytest.mark.slow
@settings(max_examples=15)
@given(cells=st.lists(st.integers(0, M * N - 1), min_size=1, unique=True), weighted=st.booleans(), data=st.data())
@pytest.mark.parametrize("method", ["cholesky", "cg"])
@pytest.mark.parametrize("name", PRIORS)
def test_equals_dense_conditioning(name, method, cells, weighted, data):
    prior = PRIORS[name]()
    noise = data.draw(st.sampled_from([0.05, 0.3, 2.0]))
    observed = observe(cells, weighted)
    posterior = mvgp.FullGP(prior, gaussian(noise), method=method, tolerance=1e-11).fit(observed)
    assert posterior.solve_report.converged
    mean, covariance = oracle(prior, observed, noise)
    rows, cols = everything()
    assert_close(posterior.mean(rows, cols), mean)
    assert_close(posterior.scores().flatten(), mean)
    assert_close(posterior.variance(rows, cols), covariance.diagonal())
    pick = torch.randperm(M * N)[: data.draw(st.integers(1, 12))]
    joint = posterior(rows[pick], cols[pick])
    assert_close(joint.mean, mean[pick])
    assert_close(joint.covariance_matrix, covariance[pick][:, pick])
    assert_close(joint.lazy_covariance_matrix.diagonal(), covariance.diagonal()[pick])
    vectors = torch.randn(M * N, 2, dtype=torch.float64)
    assert_close(posterior.covariance() @ vectors, covariance @ vectors, 1e-7)


def test_the_polynomial_at_its_default_tolerance_gives_the_exact_posterior():
    """Against eigenpairs of the same kernels, not against the polynomial itself."""
    data = observe(torch.randperm(M * N)[:50])
    found = []
    for method in ("eigen", "chebyshev"):
        prior = mvgp.MatrixGP(DiffusionKernel(ROWS, method=method), DiffusionKernel(COLS, 0.4, 0.2, method=method))
        found.append(mvgp.FullGP(prior, gaussian(0.1)).fit(data))
    assert_close(found[1].mean(*everything()), found[0].mean(*everything()))
    assert_close(found[1].variance(*everything()), found[0].variance(*everything()))


@pytest.mark.parametrize("name", PRIORS)
def test_full_grid_takes_the_spectral_shortcut(name):
    prior, data = PRIORS[name](), observe(torch.randperm(M * N))
    posterior = mvgp.FullGP(prior, gaussian(0.2), method="spectral").fit(data)
    mean, covariance = oracle(prior, data, 0.2)
    rows, cols = everything()
    assert_close(posterior.mean(rows, cols), mean)
    assert_close(posterior.variance(rows, cols), covariance.diagonal())
    op = posterior.covariance()
    assert isinstance(op, SpectralKroneckerLinearOperator)
    assert_close(op.to_dense(), covariance)
    assert_close(op.diagonal(), covariance.diagonal())
    assert_close(posterior(rows[:9], cols[:9]).covariance_matrix, covariance[:9, :9])


@pytest.mark.slow
def test_the_method_follows_size_and_structure():
    randomness.seed_torch(0)
    shape = (70, 60)
    x, y = torch.rand(70, 2), torch.rand(60, 2)
    prior = mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), gpytorch.kernels.RBFKernel(), x, y)
    full = torch.randn(shape).double()
    assert mvgp.FullGP(prior, gaussian(0.1)).fit(mvgp.ObservedMatrix.from_dense(full)).solve_report.method == "spectral"
    partial = full.clone()
    partial[torch.rand(shape) < 0.1] = torch.nan
    data = mvgp.ObservedMatrix.from_dense(partial)
    assert len(data) > 3000
    posterior = mvgp.FullGP(prior, gaussian(0.1)).fit(data)
    assert posterior.solve_report.method == "cg"
    assert (
        mvgp.FullGP(PRIORS["precomputed"](), gaussian(0.1)).fit(observe(range(M * N))).solve_report.method == "spectral"
    )
    assert posterior.conditional.solver.preconditioner is not None
    assert posterior.solve_report.iterations < 20
    exact = mvgp.FullGP(prior, gaussian(0.1), method="cholesky").fit(data)
    rows, cols = torch.arange(60), torch.arange(60)
    assert_close(posterior.mean(rows, cols), exact.mean(rows, cols), 1e-7)
    assert_close(posterior.variance(rows, cols), exact.variance(rows, cols), 1e-7)
    few = mvgp.ObservedMatrix([0], [0], [1.0], shape)
    assert mvgp.FullGP(prior, gaussian(0.1)).fit(few).solve_report.method == "cholesky"


@pytest.mark.slow
def test_new_inputs_on_either_axis():
    kernels = gpytorch.kernels.RBFKernel, gpytorch.kernels.MaternKernel
    x, y = torch.rand(M + 3, 1).double(), torch.rand(N + 2, 2).double()
    data = observe(torch.randperm(M * N)[:30])
    known = mvgp.MatrixGP(kernels[0](), kernels[1](), x[:M], y[:N], mean=ConstantMean(0.5))
    grown = mvgp.MatrixGP(known.row_kernel, known.col_kernel, x, y, mean=ConstantMean(0.5))
    wide = mvgp.ObservedMatrix(data.rows, data.cols, data.values, grown.shape)
    small, large = (mvgp.FullGP(p, gaussian(0.1)).fit(d) for p, d in ((known, data), (grown, wide)))
    q_rows, q_cols = torch.tensor([0, 2, 1, 2]), torch.tensor([1, 0, 1, 1])
    cases = [
        (dict(row_inputs=x[M:], col_inputs=y[N:]), (q_rows + M, q_cols + N)),
        (dict(row_inputs=x[M:]), (q_rows + M, q_cols)),
        (dict(col_inputs=y[N:]), (q_rows, q_cols + N)),
    ]
    for inputs, (rows, cols) in cases:
        assert_close(small.mean(q_rows, q_cols, **inputs), large.mean(rows, cols))
        assert_close(small.variance(q_rows, q_cols, **inputs), large.variance(rows, cols))
        ours, theirs = small(q_rows, q_cols, **inputs), large(rows, cols)
        assert_close(ours.covariance_matrix, theirs.covariance_matrix)
        randomness.seed_torch(1)
        assert_moments(small.sample(q_rows, q_cols, 20_000, **inputs), theirs.mean, theirs.covariance_matrix)


def test_rows_and_columns_without_an_observation_fall_back_to_what_the_kernel_knows():
    prior = PRIORS["diffusion, eigenpairs"]()
    data = mvgp.ObservedMatrix([0, 0], [1, 2], [1.0, -1.0], (M, N))
    posterior = mvgp.FullGP(prior, gaussian(0.1)).fit(data)
    isolated = M - 1  # no link: the data say nothing about it
    cols = torch.arange(N)
    rows = torch.full((N,), isolated)
    assert_close(posterior.mean(rows, cols), torch.zeros(N).double())
    k_rows, k_cols = prior.row_axis.covariance().diagonal(), prior.col_axis.covariance().diagonal()
    assert_close(posterior.variance(rows, cols), (k_rows[isolated] * k_cols).detach())


@pytest.mark.filterwarnings("ignore:The input matches the stored training data")
def test_gpytorch_gets_the_variance_of_missing_cells_wrong_and_we_do_not():
    """gpytorch's NaN policy returns the variance as if every cell had been observed."""
    x, y = torch.linspace(0, 1, 6).double(), torch.linspace(0, 1, 5).double()
    truth = torch.randn(6, 5).double()
    truth[torch.rand(6, 5) < 0.5] = torch.nan
    rows, cols = gpytorch.kernels.RBFKernel().double(), gpytorch.kernels.RBFKernel().double()
    rows.lengthscale = cols.lengthscale = 0.2
    likelihood = gaussian(0.1)

    class Grid(gpytorch.models.ExactGP):
        def __init__(self):
            index = torch.arange(30).double().unsqueeze(1)
            super().__init__(index, truth.flatten(), likelihood)

        def forward(self, index):
            m, n = index.squeeze(1).long() // 5, index.squeeze(1).long() % 5
            covariance = rows(x).to_dense()[m][:, m] * cols(y).to_dense()[n][:, n]
            return gpytorch.distributions.MultivariateNormal(
                torch.zeros(len(index)).double(), to_linear_operator(covariance)
            )

    data = mvgp.ObservedMatrix.from_dense(truth)
    prior = mvgp.MatrixGP(rows, cols, x, y)
    ours = mvgp.FullGP(prior, likelihood).fit(data)
    with torch.no_grad():
        mean, covariance = dense_posterior(
            rows(x).to_dense(), cols(y).to_dense(), data.rows, data.cols, data.values, 0.1
        )
    at = torch.arange(30) // 5, torch.arange(30) % 5
    assert_close(ours.mean(*at), mean)
    assert_close(ours.variance(*at), covariance.diagonal())
    with torch.no_grad(), gpytorch.settings.observation_nan_policy("mask"):
        theirs = Grid().eval()(torch.arange(30).double().unsqueeze(1))
        assert_close(theirs.mean, mean, 1e-6)
        assert (theirs.variance - covariance.diagonal()).abs().max() > 0.1
        assert (theirs.variance - covariance.diagonal()).max() < 1e-6  # too certain, everywhere


@pytest.mark.slow
def test_samples_have_the_posterior_covariance():
    prior, data = PRIORS["diffusion, polynomial"](), observe(torch.randperm(M * N)[:25])
    posterior = mvgp.FullGP(prior, gaussian(0.1)).fit(data)
    mean, covariance = oracle(prior, data, 0.1)
    pick = torch.tensor([3, 17, 18, 60, 76])
    rows, cols = pick // N, pick % N
    samples = posterior.sample(rows, cols, 20_000, generator=randomness.generator(0))
    joint = posterior(rows, cols)
    for found in (samples, joint.rsample(torch.Size([20_000])).detach()):
        assert_moments(found, mean[pick], covariance[pick][:, pick])
    again = posterior.sample(rows, cols, 3, generator=randomness.generator(0))
    assert_close(again, posterior.sample(rows, cols, 3, generator=randomness.generator(0)), 0)


def test_variances_stay_between_zero_and_the_prior():
    prior = PRIORS["precomputed"]()
    posterior = mvgp.FullGP(prior, gaussian(1e-3)).fit(observe(torch.arange(M * N)))
    variance = posterior.variance(*everything())
    assert (variance >= 0).all()
    assert (variance <= prior.covariance().diagonal().detach()).all()


@pytest.mark.parametrize("name", PRIORS)
def test_single_precision(name):
    double, data = PRIORS[name](), observe(torch.randperm(M * N)[:40])
    single = copy.deepcopy(double).to(torch.float32)
    assert single.dtype == torch.float32
    truth = mvgp.FullGP(double, gaussian(0.3)).fit(data)
    for method in ("cholesky", "cg"):
        found = mvgp.FullGP(single, gaussian(0.3), method=method).fit(data)
        mean, variance = found.mean(*everything()), found.variance(*everything())
        assert mean.dtype == variance.dtype == torch.float32
        assert found(torch.tensor([1]), torch.tensor([2])).covariance_matrix.dtype == torch.float32
        torch.testing.assert_close(mean.double(), truth.mean(*everything()), atol=3e-3, rtol=0)
        torch.testing.assert_close(variance.double(), truth.variance(*everything()), atol=3e-3, rtol=0)


def test_a_posterior_does_not_change_with_its_recipe():
    prior, data = PRIORS["diffusion, eigenpairs"](), observe([1, 5, 40])
    model = mvgp.FullGP(prior, gaussian(0.1))
    posterior = model.fit(data)
    before = posterior.mean(*everything()), posterior.variance(*everything())
    prior.row_kernel.time = 5.0
    model.likelihood.noise = 3.0
    assert_close(posterior.mean(*everything()), before[0], 0)
    assert_close(posterior.variance(*everything()), before[1], 0)
    assert (model.fit(data).mean(*everything()) - before[0]).abs().max() > 0.01


def test_posteriors_and_their_operators_pickle():
    posterior = mvgp.FullGP(PRIORS["graph x inputs"](), gaussian(0.1)).fit(observe([1, 5, 40]))
    other = pickle.loads(pickle.dumps(posterior))
    assert_close(other.mean(*everything()), posterior.mean(*everything()), 0)
    joint = posterior(torch.tensor([0, 1]), torch.tensor([1, 2]))
    op = pickle.loads(pickle.dumps(joint.lazy_covariance_matrix))
    assert isinstance(op, PosteriorCovarianceLinearOperator)
    assert_close(op.to_dense(), joint.covariance_matrix, 0)


def test_the_covariance_of_all_cells_is_lazy():
    """(M N)^2 entries would take 2.9 TB."""
    n = 600
    ring = Graph(np.stack([np.arange(n), (np.arange(n) + 1) % n], 1), n)
    prior = mvgp.MatrixGP(DiffusionKernel(ring), DiffusionKernel(ring))
    cells = torch.randperm(n * n)[:50]
    data = mvgp.ObservedMatrix(cells // n, cells % n, torch.randn(50).double(), (n, n))
    posterior = mvgp.FullGP(prior, gaussian(0.1)).fit(data)
    op = posterior.covariance()
    assert isinstance(op, LinearOperator)
    assert op.shape == (n * n, n * n)
    vector = torch.zeros(n * n, 1).double()
    vector[cells[0]] = 1
    column = (op @ vector).squeeze(1)
    near = cells[:20]
    assert_close(column[near], posterior(near // n, near % n).covariance_matrix[:, 0])


def test_missing_the_tolerance_is_an_error_with_the_residual():
    model = mvgp.FullGP(PRIORS["diffusion, eigenpairs"](), gaussian(0.1), method="cg", max_iterations=2)
    with pytest.raises(ConvergenceError, match=r"relative residual .*e-.* after"):
        model.fit(observe(torch.arange(60)))


BAD = [
    (
        lambda p: mvgp.FullGP(p, gpytorch.likelihoods.SoftmaxLikelihood(num_classes=2, num_features=1)),
        "FullGP takes gpytorch's GaussianLikelihood, .* or one with a method data_loss, got a Softmax",
    ),
    (lambda p: mvgp.FullGP(DiffusionKernel(ROWS), gaussian(1.0)), "expected mvgp.MatrixGP, got DiffusionKernel"),
    (lambda p: mvgp.FullGP(p, gaussian(1.0), method="magic"), "method"),
    (lambda p: mvgp.FullGP(p, gaussian(1.0), tolerance=0.0), "tolerance"),
    (lambda p: mvgp.FullGP(p, gaussian(1.0), method="spectral").fit(observe([1])), "every cell observed"),
    (lambda p: mvgp.FullGP(p, gaussian(1.0)).fit(torch.zeros(M, N)), "expected mvgp.ObservedMatrix, got Tensor"),
    (
        lambda p: mvgp.FullGP(p, gaussian(1.0)).fit(mvgp.ObservedMatrix([0], [0], [1.0], (N, M))),
        r"\(7, 11\).*\(11, 7\)",
    ),
    (lambda p: mvgp.FullGP(p, gaussian(1.0)).fit(observe([1])).mean([0], [N]), r"cols\[0\].*\[0, 11\), got 11"),
    (
        lambda p: mvgp.FullGP(p, gaussian(1.0)).fit(observe([1])).variance([0, 1], [0, 1, 2]),
        "differ in length: 2 and 3",
    ),
    (lambda p: mvgp.FullGP(p, gaussian(1.0)).fit(observe([1])).scores([-1]), r"rows\[0\].*got -1"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(PRIORS["diffusion, eigenpairs"]())


def test_new_inputs_are_checked():
    prior = PRIORS["graph x inputs"]()
    posterior = mvgp.FullGP(prior, gaussian(1.0)).fit(observe([1]))
    with pytest.raises(InputError, match="col_inputs: expected 2 columns as in the prior, got 3"):
        posterior.mean([0], [0], col_inputs=torch.zeros(1, 3))
    with pytest.raises(InputError, match=r"cols\[0\].*\[0, 1\), got 4"):
        posterior.mean([0], [4], col_inputs=torch.zeros(1, 2))
    biased = mvgp.MatrixGP(
        gpytorch.kernels.RBFKernel(), gpytorch.kernels.RBFKernel(), torch.zeros(M, 1), X, mean=RowBiasMean(M)
    )
    posterior = mvgp.FullGP(biased, gaussian(1.0)).fit(observe([1]))
    with pytest.raises(InputError, match="no bias for new row inputs"):
        posterior.mean([0], [0], row_inputs=torch.zeros(1, 1))
