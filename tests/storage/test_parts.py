"""Kernels, constraints, inputs and means survive a file bit for bit; what is not on the list is refused."""

import gpytorch.kernels as theirs
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.priors import GammaPrior

import mvgp
from mvgp.errors import InputError, StorageError
from mvgp.kernels import DiffusionKernel, Graph, GraphMaternKernel, RegularizedLaplacianKernel
from mvgp.priors import BiasedMean, ConstantMean, GivenMean, PopularityMean, RowBiasMean, ZeroMean
from mvgp.storage import archive, priors
from tests import randomness
from tests.storage.examples import COLS, M, N, X, gaussian, numbers, observed, precomputed

# linear_operator's samples of a sum
pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
WIDE = torch.cat([X, X.flip(0)], dim=1)  # (N, 4)

ON_NODES = {
    "diffusion": lambda: DiffusionKernel(COLS, 0.3),
    "diffusion, no shift": lambda: DiffusionKernel(COLS, 0.3, 0.0),
    "diffusion, polynomial": lambda: DiffusionKernel(COLS, method="chebyshev", tolerance=1e-7),
    "regularized": lambda: RegularizedLaplacianKernel(COLS, 2.0, 0.1, method="eigen"),
    "matern": lambda: GraphMaternKernel(COLS, 2.2, 0.7, 0.1, nu_constraint=Interval(0.3, 4.0)),
    "precomputed": lambda: precomputed(N),
    "no links": lambda: DiffusionKernel(Graph([], N)),
    "sum": lambda: DiffusionKernel(COLS) + precomputed(N),
    "scaled product": lambda: theirs.ScaleKernel(DiffusionKernel(COLS) * precomputed(N)),
}
ON_INPUTS = {
    "rbf": lambda: theirs.RBFKernel(),
    "rbf, ard": lambda: theirs.RBFKernel(ard_num_dims=4),
    "rbf, active": lambda: theirs.RBFKernel(active_dims=(3, 1)),
    "rbf, greater": lambda: theirs.RBFKernel(lengthscale_constraint=GreaterThan(1e-4)),
    "rbf, bounds of each": lambda: theirs.RBFKernel(
        ard_num_dims=4, lengthscale_constraint=Interval(torch.zeros(4), torch.arange(1.0, 5.0))
    ),
    "rbf, prior": lambda: theirs.RBFKernel(lengthscale_prior=GammaPrior(2.0, 2.0)),
    "matern 1/2": lambda: theirs.MaternKernel(nu=0.5),
    "matern 5/2, ard": lambda: theirs.MaternKernel(nu=2.5, ard_num_dims=2, active_dims=(0, 2)),
    "rq": lambda: theirs.RQKernel(alpha_constraint=Interval(0.1, 3.0)),
    "periodic": lambda: theirs.PeriodicKernel(),
    "periodic, ard": lambda: theirs.PeriodicKernel(ard_num_dims=4),
    "cosine": lambda: theirs.CosineKernel(active_dims=(0,)),
    "linear": lambda: theirs.LinearKernel(ard_num_dims=4),
    "polynomial": lambda: theirs.PolynomialKernel(power=2, offset_constraint=Positive()),
    "scale": lambda: theirs.ScaleKernel(theirs.RBFKernel(active_dims=(1,)), outputscale_constraint=Interval(0.5, 2.0)),
    "scale, active": lambda: theirs.ScaleKernel(theirs.RBFKernel(), active_dims=(1, 2)),
    "nested": lambda: (
        theirs.ScaleKernel(theirs.RBFKernel(active_dims=(0, 1)) * theirs.MaternKernel(nu=1.5) + theirs.LinearKernel())
        + theirs.ScaleKernel(theirs.PeriodicKernel(active_dims=(2,)))
    ),
}


def fit(kernel, inputs=None, dtype=torch.float64, mean=None):
    rows = DiffusionKernel(Graph([(0, 1), (1, 2), (4, 5)], M))
    prior = mvgp.MatrixGP(rows, kernel, col_inputs=inputs, dtype=dtype, mean=mean)
    generator = randomness.generator(3)
    with torch.no_grad():
        for values in prior.parameters():  # no parameter where it was made
            if values.requires_grad:
                values += 0.1 * torch.randn(values.shape, generator=generator, dtype=values.dtype)
    return mvgp.FullGP(prior, gaussian()).fit(observed())


def round_trip(posterior, tmp_path):
    posterior.save(tmp_path / "file")
    return mvgp.load(tmp_path / "file")


def assert_equal(loaded, posterior):
    found, expected = (list(p.prior.named_parameters()) for p in (loaded, posterior))
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (name, one), (_, other) in zip(found, expected, strict=True):
        assert torch.equal(one, other), name
        assert (one.dtype, one.requires_grad) == (other.dtype, other.requires_grad), name
    bounds, wanted = (
        {name: b for name, b in p.prior.named_buffers() if "prior" not in name} for p in (loaded, posterior)
    )
    assert bounds.keys() == wanted.keys()
    for name, bound in wanted.items():
        assert torch.equal(bounds[name], bound), name
        assert bounds[name].dtype == bound.dtype, name
    now, before = numbers(loaded), numbers(posterior)
    assert now.keys() == before.keys()
    for name, values in before.items():
        assert torch.equal(now[name], values), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("name", [*ON_NODES, *ON_INPUTS])
def test_kernels(name, dtype, tmp_path):
    on_nodes = name in ON_NODES
    posterior = fit((ON_NODES if on_nodes else ON_INPUTS)[name](), None if on_nodes else WIDE, dtype)
    loaded = round_trip(posterior, tmp_path)
    assert_equal(loaded, posterior)
    for one, other in zip(loaded.prior.col_kernel.modules(), posterior.prior.col_kernel.modules(), strict=False):
        if hasattr(other, "active_dims"):
            assert (one.active_dims is None) == (other.active_dims is None)
    names = {type(k).__name__ for k in posterior.prior.col_kernel.modules() if isinstance(k, theirs.Kernel)}
    assert names == {type(k).__name__ for k in loaded.prior.col_kernel.modules() if isinstance(k, theirs.Kernel)}


def test_a_shift_of_zero_stays_a_constant(tmp_path):
    loaded = round_trip(fit(DiffusionKernel(COLS, 0.3, 0.0)), tmp_path).prior.col_kernel
    assert loaded.shift == 0
    assert not loaded.raw_shift.requires_grad
    assert not loaded.raw_time.requires_grad  # a posterior is constant, whatever its prior may learn


def test_constraints_keep_their_kind_and_bounds(tmp_path):
    made = theirs.RBFKernel(lengthscale_constraint=GreaterThan(1e-4)) + theirs.RQKernel(
        alpha_constraint=Interval(0.1, 3.0)
    )
    made = made + theirs.PolynomialKernel(power=3, offset_constraint=LessThan(2.0))
    posterior = fit(made, WIDE)
    loaded = round_trip(posterior, tmp_path)
    found = dict(loaded.prior.named_constraints())
    for name, constraint in posterior.prior.named_constraints():
        assert type(found[name]) is type(constraint)
        assert torch.equal(found[name].lower_bound, constraint.lower_bound)
        assert torch.equal(found[name].upper_bound, constraint.upper_bound)
        raw = torch.linspace(-3, 3, 5, dtype=torch.float64)
        assert torch.equal(found[name].transform(raw), constraint.transform(raw))
    assert loaded.prior.col_kernel.kernels[-1].power == 3


@pytest.mark.parametrize(
    "inputs",
    [torch.arange(N), torch.tensor([3, 1, 3, 0, 9, 10, 2, 2, 2, 5, 6]), torch.arange(N, dtype=torch.float64)],
    ids=["all", "some, repeated", "floating"],
)
def test_nodes_given_as_inputs(inputs, tmp_path):
    posterior = fit(DiffusionKernel(COLS), inputs)
    loaded = round_trip(posterior, tmp_path)
    assert_equal(loaded, posterior)
    assert torch.equal(
        loaded.mean([0, 1], [0, 1], col_inputs=[4, 7]), posterior.mean([0, 1], [0, 1], col_inputs=[4, 7])
    )


@pytest.mark.parametrize(
    ("inputs", "kernel"),
    [
        (WIDE.T.contiguous().T, theirs.PolynomialKernel(power=2) + theirs.RBFKernel()),
        (WIDE[:, ::2], theirs.LinearKernel() + theirs.RBFKernel()),
        (WIDE.T.contiguous().T[:, :2], theirs.LinearKernel() + theirs.RBFKernel()),
        (X[:, 0], theirs.PolynomialKernel(power=2)),
        (torch.arange(N), theirs.RBFKernel()),
    ],
    ids=["by columns", "every other column", "some columns", "vector", "whole numbers"],
)
def test_inputs_in_any_order(inputs, kernel, tmp_path):
    posterior = fit(kernel, inputs)
    assert_equal(round_trip(posterior, tmp_path), posterior)


MEANS = {
    "zero": lambda: ZeroMean(),
    "constant": lambda: ConstantMean(0.3),
    "row bias": lambda: RowBiasMean(torch.linspace(0, 1, M)),
    "popularity": lambda: PopularityMean(torch.arange(N), 0.3),
    "given": lambda: GivenMean(torch.arange(M * N).reshape(N, M).T / 9.0),
    "biased": lambda: BiasedMean(
        BiasedMean(ConstantMean(0.3), torch.ones(M), torch.linspace(0, 1, N)), torch.rand(M), torch.zeros(N)
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("name", MEANS)
def test_means(name, dtype, tmp_path):
    posterior = fit(theirs.RBFKernel(), WIDE, dtype, MEANS[name]())
    loaded = round_trip(posterior, tmp_path)
    assert_equal(loaded, posterior)
    assert torch.equal(loaded.prior.mean_matrix(), posterior.prior.mean_matrix())
    assert type(loaded.prior.mean_module) is type(posterior.prior.mean_module)


def test_kernels_on_one_graph_share_it_again(tmp_path):
    square = mvgp.MatrixGP(DiffusionKernel(COLS), RegularizedLaplacianKernel(COLS) + DiffusionKernel(COLS, 0.2))
    data = mvgp.ObservedMatrix([0, 1], [2, 3], [1.0, 2.0], (N, N))
    loaded = round_trip(mvgp.FullGP(square, gaussian()).fit(data), tmp_path).prior
    parts = [loaded.row_kernel, *loaded.col_kernel.kernels]
    assert all(part.graph is parts[0].graph for part in parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
def test_a_precomputed_matrix_is_checked_again(dtype, tmp_path):
    """By the check of the constructor; a file may hold anything."""
    posterior = fit(precomputed(N), dtype=dtype)  # singular, and what rounding to single precision leaves of that
    assert torch.equal(round_trip(posterior, tmp_path).scores(), posterior.scores())
    tree = archive.read(tmp_path / "file")
    own = tree["prior"]["col"]["kernel"]["own"]
    matrix = own["matrix"].clone()
    for wrong in (
        -torch.eye(N, dtype=dtype),
        matrix - 0.01 * torch.eye(N, dtype=dtype),
        torch.zeros(0, 0, dtype=dtype),
    ):
        own["matrix"] = wrong
        archive.write(tmp_path / "file", tree)
        with pytest.raises(StorageError, match="expected a positive semi-definite matrix|expected at least one item"):
            mvgp.load(tmp_path / "file")


def test_a_matrix_that_serves_many_kernels_is_checked_once(tmp_path, monkeypatch):
    one = precomputed(N)
    posterior = fit(one + theirs.ScaleKernel(one) + one)
    posterior.save(tmp_path / "file")
    seen, check = [], priors.check_covariance
    monkeypatch.setattr(priors, "check_covariance", lambda matrix, name: seen.append(check(matrix, name)))
    mvgp.load(tmp_path / "file")
    assert len(seen) == 1


class MyKernel(theirs.RBFKernel):
    """A subclass may compute anything."""


class MyConstraint(Positive):
    """So may this."""


def RBFKernel():
    """A kernel of another class with a name of the list."""
    return type("RBFKernel", (theirs.MaternKernel,), {})()


REFUSED = {
    "subclass": (lambda: MyKernel(), "MyKernel cannot be saved; these kernels can"),
    "same name": (RBFKernel, "RBFKernel cannot be saved"),
    "inside": (
        lambda: theirs.ScaleKernel(MyKernel() + theirs.RBFKernel()),
        r"base_kernel.kernels\[0\].*MyKernel cannot",
    ),
    "unknown": (lambda: theirs.CylindricalKernel(3, theirs.RBFKernel()), "CylindricalKernel cannot be saved"),
    "constraint": (
        lambda: theirs.RBFKernel(lengthscale_constraint=MyConstraint()),
        "raw_lengthscale: a constraint can",
    ),
    "transform": (
        lambda: theirs.RBFKernel(lengthscale_constraint=Positive(transform=torch.exp, inv_transform=torch.log)),
        "with its default transform",
    ),
    "no transform": (
        lambda: theirs.RBFKernel(lengthscale_constraint=Interval(0.1, 2.0, transform=None)),
        "with its default transform",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_kernels_are_refused_when_saved(name, tmp_path):
    make, message = REFUSED[name]
    posterior = fit(theirs.RBFKernel(), WIDE)
    posterior.prior.col_axis.kernel = make().double()
    with pytest.raises(InputError, match=message):
        posterior.save(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_parameter_of_another_shape_is_refused_when_saved(tmp_path):
    posterior = fit(theirs.RBFKernel(), WIDE)
    posterior.prior.col_kernel.raw_lengthscale = torch.nn.Parameter(torch.zeros(1, 4, dtype=torch.float64))
    with pytest.raises(
        InputError, match=r"the prior cannot be saved: .*raw_lengthscale.values: expected an array of shape"
    ):
        posterior.save(tmp_path / "file")
