import pickle
import unittest

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
from linear_operator.operators import to_dense
from scipy import sparse

from mvgp.errors import InputError, NotPositiveSemidefiniteError, SizeError
from mvgp.kernels import (
    DiffusionKernel,
    FeatureKernel,
    Graph,
    GraphMaternKernel,
    PrecomputedKernel,
    RegularizedLaplacianKernel,
)
from mvgp.linalg import root
from mvgp.linalg.chebyshev import ChebyshevLinearOperator
from mvgp.linalg.spectra import SpectralLinearOperator
from mvgp.linalg.stacked import Features, GramLinearOperator
from tests import randomness
from tests.oracles import dense_laplacian, matrix_function, random_edges

EDGES = random_edges(randomness.numpy_generator(0), 20, 40)
GRAPH = Graph(EDGES, 20)
LAPLACIAN = dense_laplacian(EDGES, 20)
KERNELS = {
    "diffusion": (lambda **o: DiffusionKernel(GRAPH, 0.7, 0.3, **o), lambda x: torch.exp(-0.7 * x) + 0.3),
    "pure diffusion": (lambda **o: DiffusionKernel(GRAPH, 0.7, 0.0, **o), lambda x: torch.exp(-0.7 * x)),
    "regularized": (lambda **o: RegularizedLaplacianKernel(GRAPH, 2.5, **o), lambda x: 1 / (1 + 2.5 * x)),
    "matern": (lambda **o: GraphMaternKernel(GRAPH, 1.7, 1.2, 0.1, **o), lambda x: (1 + 1.44 * x / 3.4) ** -1.7 + 0.1),
}
METHODS = ["eigen", "chebyshev"]


class NodeKernelCase(BaseKernelTestCase):
    """gpytorch's own kernel tests, on node numbers; a kernel on nodes has one active dimension."""

    def create_data_no_batch(self):
        return torch.randint(20, (50, 10)).float()

    def create_data_single_batch(self):
        return torch.randint(20, (2, 3, 1)).float()

    def create_data_double_batch(self):
        return torch.randint(20, (3, 2, 50, 1)).float()

    def test_active_dims_list(self):
        x = self.create_data_no_batch()
        found = self.create_kernel_no_ard(active_dims=[4])(x).to_dense()
        self.assertAllClose(found, self.create_kernel_no_ard()(x[:, [4]]).to_dense())

    def test_active_dims_range(self):
        x = self.create_data_no_batch()
        found = self.create_kernel_no_ard(active_dims=list(range(3, 4)))(x).to_dense()
        self.assertAllClose(found, self.create_kernel_no_ard()(x[:, 3]).to_dense())


class TestDiffusionEigen(NodeKernelCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return DiffusionKernel(GRAPH, dtype=torch.get_default_dtype(), **kwargs)


class TestDiffusionChebyshev(NodeKernelCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return DiffusionKernel(GRAPH, method="chebyshev", dtype=torch.get_default_dtype(), **kwargs)


class TestRegularized(NodeKernelCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return RegularizedLaplacianKernel(GRAPH, dtype=torch.get_default_dtype(), **kwargs)


class TestMatern(NodeKernelCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return GraphMaternKernel(GRAPH, method="chebyshev", dtype=torch.get_default_dtype(), **kwargs)


class TestPrecomputed(NodeKernelCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        points = torch.linspace(0, 3, 20)
        return PrecomputedKernel(torch.exp(-(points.unsqueeze(1) - points).abs()), **kwargs)


FEATURES = torch.randn(20, 6, generator=randomness.generator(0), dtype=torch.float64).relu()


class TestFeature(NodeKernelCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return FeatureKernel(FEATURES, dtype=torch.get_default_dtype(), **kwargs)


class TestSparseFeature(NodeKernelCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return FeatureKernel(sparse.csr_array(FEATURES.numpy()), dtype=torch.get_default_dtype(), **kwargs)


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: f.numpy(), lambda f: sparse.coo_array(f.numpy())])
def test_a_feature_kernel_equals_its_dense_twin(wrap):
    kernel, truth = FeatureKernel(wrap(FEATURES), 0.7), 0.7 * FEATURES @ FEATURES.T
    op = kernel(torch.arange(20)).evaluate_kernel()
    assert isinstance(op, GramLinearOperator)
    torch.testing.assert_close(op.to_dense(), truth)
    torch.testing.assert_close(op.diagonal(), truth.diagonal())
    some, others = torch.tensor([3, 19, 3]), torch.tensor([0, 7, 8, 8])
    torch.testing.assert_close(kernel(some, others).to_dense(), truth[some][:, others])
    torch.testing.assert_close(kernel(some, diag=True), truth.diagonal()[some])
    g = root(op).to_dense()
    torch.testing.assert_close(g @ g.T, truth)
    rhs = torch.randn(20, 200, dtype=torch.float64)
    torch.testing.assert_close(op @ rhs, truth @ rhs)
    (op @ rhs).sum().backward()
    expected = (FEATURES @ FEATURES.T @ rhs).sum() * torch.sigmoid(kernel.raw_variance.detach())
    torch.testing.assert_close(kernel.raw_variance.grad, expected)
    copy = pickle.loads(pickle.dumps(kernel)).float()
    torch.testing.assert_close(copy(torch.arange(20)).to_dense(), truth.float())


def test_feature_kernels_refuse_what_is_no_feature():
    for bad in ([[1.0, float("nan")]], torch.zeros(0, 3), torch.zeros(2, 2, 2), sparse.csr_array([[float("inf")]])):
        with pytest.raises(InputError, match="features"):
            FeatureKernel(bad)
    for bad in (0.0, -1.0, float("inf")):
        with pytest.raises(InputError, match="variance"):
            FeatureKernel(FEATURES, bad)
    with pytest.raises(SizeError, match="cells"):
        root(GramLinearOperator(torch.tensor(1.0), Features(torch.zeros(9000, 1).expand(9000, 9000))))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_equal_their_dense_twins(name, method):
    make, function = KERNELS[name]
    kernel, truth = make(method=method), matrix_function(LAPLACIAN, function)
    everything = torch.arange(20)
    op = kernel(everything).evaluate_kernel()
    assert isinstance(op, SpectralLinearOperator if method == "eigen" else ChebyshevLinearOperator)
    tolerance = {"atol": 1e-9, "rtol": 0}
    torch.testing.assert_close(op.to_dense(), truth, **tolerance)
    torch.testing.assert_close(op.diagonal(), truth.diagonal(), **tolerance)
    some, others = torch.tensor([3, 19, 3]), torch.tensor([0, 7, 8, 8])
    torch.testing.assert_close(kernel(some, others).to_dense(), truth[some][:, others], **tolerance)
    torch.testing.assert_close(kernel(some, diag=True), truth.diagonal()[some], **tolerance)
    torch.testing.assert_close(kernel(some).diagonal(), truth.diagonal()[some], **tolerance)
    g = root(op).to_dense()
    torch.testing.assert_close(g @ g.T, truth, **tolerance)
    rhs = torch.randn(20, 70, dtype=torch.float64)
    torch.testing.assert_close(op @ rhs, truth @ rhs, atol=1e-8, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", KERNELS)
def test_gradients_of_the_parameters(name, method):
    kernel = KERNELS[name][0](method=method, **({"tolerance": 1e-13} if method == "chebyshev" else {}))
    raws = {key: p for key, p in kernel.named_parameters() if p.requires_grad}
    some = torch.tensor([3, 19, 5])
    rhs = torch.randn(20, 2, dtype=torch.float64)

    def values(*parameters):
        found = torch.func.functional_call(
            Outputs(kernel, some, rhs), {f"kernel.{k}": p for k, p in zip(raws, parameters, strict=True)}
        )
        return found

    assert torch.autograd.gradcheck(values, tuple(raws.values()), atol=1e-6)


class Outputs(torch.nn.Module):
    """Product, sub-block and diagonal in one module, so that gradcheck can move the parameters."""

    def __init__(self, kernel, some, rhs):
        super().__init__()
        self.kernel, self.some, self.rhs = kernel, some, rhs

    def forward(self):
        everything = torch.arange(20)
        return (
            self.kernel(everything) @ self.rhs,
            self.kernel(self.some, everything).to_dense(),
            self.kernel(self.some, diag=True),
            self.kernel(everything).diagonal(),
        )


@pytest.mark.parametrize("method", METHODS)
def test_inside_gpytorch_sums_products_and_scales(method):
    a, b = DiffusionKernel(GRAPH, 0.7, method=method), RegularizedLaplacianKernel(GRAPH, 2.0, method=method)
    scaled = gpytorch.kernels.ScaleKernel(a).double()
    scaled.outputscale = 2.5
    x = torch.arange(20)
    first = matrix_function(LAPLACIAN, lambda v: torch.exp(-0.7 * v) + 1)
    second = matrix_function(LAPLACIAN, lambda v: 1 / (1 + 2 * v))
    for kernel, truth in (
        (a + b, first + second),
        (a * b, first * second),
        (scaled, 2.5 * first),
        (scaled + b, 2.5 * first + second),
    ):
        torch.testing.assert_close(to_dense(kernel(x)), truth, atol=1e-9, rtol=0)
        torch.testing.assert_close(to_dense(kernel(x[:5], x[3:])), truth[:5, 3:], atol=1e-9, rtol=0)
        op = kernel(x).evaluate_kernel()
        g = root(op).to_dense()
        torch.testing.assert_close(g @ g.T, truth, atol=1e-8, rtol=0)
    assert isinstance(scaled(x).evaluate_kernel(), SpectralLinearOperator | ChebyshevLinearOperator)


def test_a_graph_kernel_learns_inside_a_stock_gp():
    """The parameters are ordinary: an ExactGP on nodes moves them towards the data."""
    randomness.seed_torch(0)
    big = Graph(random_edges(randomness.numpy_generator(1), 60, 150), 60)
    true = DiffusionKernel(big, 3.0, 0.01)
    y = torch.distributions.MultivariateNormal(torch.zeros(60).double(), true(torch.arange(60)).to_dense()).sample()

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean, self.kernel = gpytorch.means.ZeroMean(), DiffusionKernel(big, 0.3, 0.01)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.01
    x = torch.arange(60).double()
    model = Model(x, y, likelihood)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    start = mll(model(x), y).item()
    optimizer = torch.optim.Adam(model.kernel.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        optimizer.step()
    assert model.kernel.time > 0.5
    assert -loss.item() > start + 0.01


def test_precision_device_and_state():
    kernel = GraphMaternKernel(GRAPH, 2.0, 0.5, 0.2)
    assert kernel.dtype == torch.float64
    assert set(kernel.state_dict()) >= {"raw_nu", "raw_reach", "raw_shift"}
    other = GraphMaternKernel(GRAPH)
    other.load_state_dict(kernel.state_dict())
    torch.testing.assert_close(other(torch.arange(20)).to_dense(), kernel(torch.arange(20)).to_dense())
    single = pickle.loads(pickle.dumps(kernel)).to(torch.float32)
    found = single(torch.arange(20)).to_dense()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), kernel(torch.arange(20)).to_dense(), atol=1e-5, rtol=0)
    kernel.reach = 0.9
    assert kernel.reach.item() == pytest.approx(0.9, abs=1e-15)
    assert DiffusionKernel(GRAPH, time=0.3).time.item() == pytest.approx(0.3, abs=1e-15)


def test_a_shift_of_zero_is_a_constant():
    kernel = DiffusionKernel(GRAPH, shift=0.0)
    assert kernel.shift.item() == 0.0
    assert not kernel.raw_shift.requires_grad
    kernel(torch.arange(20)).to_dense().sum().backward()
    assert torch.isfinite(kernel.raw_time.grad)


def test_constraints_are_the_users():
    kernel = DiffusionKernel(GRAPH, 1.5, time_constraint=gpytorch.constraints.Interval(1.0, 2.0))
    assert kernel.time.item() == pytest.approx(1.5)
    kernel.raw_time.data.fill_(50.0)
    assert kernel.time.item() <= 2.0


def test_large_graphs_take_the_polynomial_by_themselves():
    n = 1600
    ring = Graph(np.stack([np.arange(n), (np.arange(n) + 1) % n], 1), n)
    kernel = DiffusionKernel(ring, 2.0, 0.5)
    assert not kernel.uses_eigenpairs
    op = kernel(torch.arange(n)).evaluate_kernel()
    assert isinstance(op, ChebyshevLinearOperator)
    # on a ring every eigenvector is a wave: K e_0 is known in closed form
    eigenvalues = 1 - torch.cos(2 * torch.pi * torch.arange(n, dtype=torch.float64) / n)
    spectrum = torch.exp(-2 * eigenvalues) + 0.5
    truth = torch.fft.ifft(spectrum.to(torch.complex128)).real
    column = op @ torch.eye(n, 1, dtype=torch.float64)
    torch.testing.assert_close(column.squeeze(1), truth, atol=1e-10, rtol=0)
    torch.testing.assert_close(op.diagonal(), truth[0].expand(n), atol=1e-10, rtol=0)


BAD = [
    (lambda: DiffusionKernel(GRAPH, time=0.0), "time.*positive"),
    (lambda: DiffusionKernel(GRAPH, time=float("nan")), "time"),
    (lambda: DiffusionKernel(GRAPH, shift=-1.0), "shift.*not negative"),
    (lambda: DiffusionKernel(EDGES), "Graph"),
    (lambda: DiffusionKernel(GRAPH, method="magic"), "method"),
    (lambda: DiffusionKernel(GRAPH)(torch.tensor([20])).to_dense(), r"\[0, 20\), got 20"),
    (lambda: DiffusionKernel(GRAPH)(torch.tensor([0.5])).to_dense(), "0.5"),
    (lambda: DiffusionKernel(GRAPH)(torch.zeros(3, 2)).to_dense(), "one input column"),
    (lambda: PrecomputedKernel([[1.0, 2.0]]), r"square matrix, got shape \(1, 2\)"),
    (lambda: PrecomputedKernel([[1.0, 0.5], [0.4, 1.0]]), "symmetric.*0.5 against 0.4"),
    (lambda: PrecomputedKernel([[1.0, float("nan")], [0.0, 1.0]]), r"\[0, 1\].*finite"),
    (lambda: PrecomputedKernel(np.eye(2) * 1j), "real"),
    (lambda: PrecomputedKernel(np.eye(3))(torch.tensor([3])).to_dense(), "got 3"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_matrix_that_is_no_covariance_is_refused():
    with pytest.raises(NotPositiveSemidefiniteError, match="smallest eigenvalue is -1"):
        PrecomputedKernel([[0.0, 1.0], [1.0, 0.0]])
    low_rank = torch.randn(30, 2, dtype=torch.float64)
    PrecomputedKernel(low_rank @ low_rank.T)  # singular is fine
    PrecomputedKernel(np.zeros((2, 2)))
    PrecomputedKernel(np.eye(2, dtype=int))


def test_a_series_that_would_never_end_is_refused():
    with pytest.raises(SizeError, match="shorten the time"):
        DiffusionKernel(GRAPH, time=1e8, shift=0.0, method="chebyshev").operator()


def test_copies_of_a_precomputed_kernel_share_the_matrix():
    import copy

    kernel = PrecomputedKernel(np.eye(3))
    other = copy.deepcopy(kernel)
    assert other.matrix.data_ptr() == kernel.matrix.data_ptr()
    assert other.to(torch.float32).matrix.dtype == torch.float32
    assert kernel.matrix.dtype == torch.float64
    assert kernel.state_dict() == {}
