"""A user's own kernels and means are saved once they are registered; without, the error says how."""

import json
import os
import subprocess
import sys

import gpytorch.kernels as theirs
import pytest
import torch

import mvgp
from mvgp.errors import InputError, StorageError
from mvgp.kernels import GraphKernel
from mvgp.priors import MatrixMean
from mvgp.storage import archive, register, registry
from tests.storage import examples
from tests.storage.test_parts import assert_equal, fit, round_trip

pytestmark = pytest.mark.usefixtures("one_thread")


class TiltedKernel(theirs.RBFKernel):
    """Another kernel around this one, and a slope that may be negative."""

    def __init__(self, inner, power, **options):
        super().__init__(**options)
        self.inner, self.power = inner, power
        self.register_parameter("raw_slope", torch.nn.Parameter(torch.tensor(-0.5, dtype=torch.float64)))

    def forward(self, x1, x2, diag=False, **params):
        near = super().forward(x1, x2, diag=diag, **params) ** self.power
        return near + self.raw_slope**2 * self.inner.forward(x1, x2, diag=diag, **params)


class WalkKernel(GraphKernel):
    """A random walk on a graph."""

    def __init__(self, graph, steps, **options):
        super().__init__(graph, **options)
        self.steps = steps

    def spectrum(self, eigenvalues):
        return (1 - eigenvalues / 4) ** self.steps


class SlopeMean(MatrixMean):
    """Grows with the column."""

    def __init__(self, columns, dtype):
        super().__init__(dtype)
        self.register_buffer("columns", columns.to(dtype), persistent=False)
        self.register_parameter("raw_slope", torch.nn.Parameter(torch.tensor(0.2, dtype=dtype)))

    def col_part(self, cols):
        return self.raw_slope * self.columns[cols]


def restore_mean(parts, context):
    return SlopeMean(parts.finite("columns", context.dtype, (context.shape[1],)), context.dtype)


def register_all():
    register(
        TiltedKernel,
        lambda kernel: {"inner": kernel.inner, "power": kernel.power},
        lambda parts, context: TiltedKernel(
            context.kernel(parts.fields("inner")), parts.positive("power"), **context.options
        ),
    )
    register(
        WalkKernel,
        lambda kernel: {"graph": kernel.graph, "steps": kernel.steps},
        lambda parts, context: WalkKernel(
            context.graph(parts.fields("graph")), parts.whole("steps"), **context.options
        ),
        name="tests.walk",
    )
    register(SlopeMean, lambda mean: {"columns": mean.columns}, restore_mean)


@pytest.fixture
def registered():
    before = dict(registry._ENTRIES)
    register_all()
    yield
    registry._ENTRIES.clear()
    registry._ENTRIES.update(before)


def tilted():
    inputs = torch.cat([examples.X, examples.X.flip(0)], dim=1)
    kernel = theirs.ScaleKernel(TiltedKernel(theirs.LinearKernel(), 2, ard_num_dims=4))
    return fit(kernel, inputs, mean=SlopeMean(torch.arange(examples.N), torch.float64))


def walk():
    return fit(WalkKernel(examples.COLS, 3, shift=0.1) + examples.DiffusionKernel(examples.COLS))


@pytest.mark.parametrize("make", [tilted, walk])
def test_own_parts_come_back(make, tmp_path, registered):
    posterior = make()
    loaded = round_trip(posterior, tmp_path)
    assert_equal(loaded, posterior)
    assert type(loaded.prior.mean_module) is type(posterior.prior.mean_module)
    if make is walk:
        own, shared = loaded.prior.col_kernel.kernels
        assert own.graph is shared.graph
    else:
        assert type(loaded.prior.col_kernel.base_kernel) is TiltedKernel
        assert loaded.prior.col_kernel.base_kernel.power == 2


SCRIPT = """
import json, sys
import mvgp
from tests.storage import test_registry
from tests.storage.examples import bits
try:
    mvgp.load(sys.argv[1])
except mvgp.errors.StorageError as error:
    message = str(error)
test_registry.register_all()
print(json.dumps([message, bits(mvgp.load(sys.argv[1]))]))
"""


def test_another_process_has_to_register_too(tmp_path, registered):
    posterior = tilted()
    posterior.save(tmp_path / "file")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "file")], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    message, bits = json.loads(done.stdout.splitlines()[-1])
    assert "base_kernel.kind: expected one of DiffusionKernel, " in message
    assert message.endswith(
        "got 'TiltedKernel'; for a class of your own, call mvgp.storage.register(its class, describe, restore) first"
    )
    assert bits == examples.bits(posterior)


def test_without_registering_nothing_is_written(tmp_path):
    for make, name in ((tilted, "TiltedKernel"), (walk, "WalkKernel")):
        advice = rf"{name} cannot be saved; .* call mvgp.storage.register\({name}, describe, restore\) first"
        with pytest.raises(InputError, match=advice):
            make().save(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_subclass_is_another_class(tmp_path, registered):
    class Other(TiltedKernel):
        pass

    posterior = tilted()
    posterior.prior.col_kernel.base_kernel.__class__ = Other
    with pytest.raises(InputError, match="Other cannot be saved"):
        posterior.save(tmp_path / "file")


@pytest.mark.parametrize(
    ("describe", "restore", "message"),
    [
        (lambda kernel: 3, None, "expected a dictionary from describe of TiltedKernel, got int"),
        (lambda kernel: {"f": print}, None, "base_kernel.f: expected a plain value, a tensor, .* got builtin_function"),
        (lambda kernel: {"$array": 1}, None, "expected texts that do not begin with"),
        (lambda kernel: {1: 1}, None, "expected texts that do not begin with"),
        (lambda kernel: {}, lambda parts, context: TiltedKernel(), "cannot be saved: .*TypeError: "),
        (lambda kernel: {}, lambda parts, context: theirs.RBFKernel(), "expected .*TiltedKernel, got RBFKernel"),
        (lambda kernel: {}, lambda parts, context: parts.number("power"), "own: expected a part 'power'"),
        (
            lambda kernel: {},
            lambda parts, context: TiltedKernel(theirs.LinearKernel(), 2),
            r"raw_lengthscale.values: expected an array of shape \(1, 1\)",
        ),
    ],
)
def test_mistakes_show_when_it_is_saved(describe, restore, message, tmp_path, registered):
    register(TiltedKernel, describe, restore or (lambda parts, context: None))
    with pytest.raises(InputError, match=message):
        tilted().save(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


class DeepKernel(theirs.RBFKernel):
    """A network in front of it, whose weights are no parameters of the kernel itself."""

    def __init__(self, **options):
        super().__init__(**options)
        self.net = torch.nn.Linear(2, 3, bias=False, dtype=torch.float64)

    def forward(self, x1, x2, diag=False, **params):
        return super().forward(self.net(x1), self.net(x2), diag=diag, **params)


def test_values_that_would_be_lost_show_when_it_is_saved(tmp_path, registered):
    posterior = fit(DeepKernel(), examples.X)
    register(DeepKernel, lambda kernel: {}, lambda parts, context: DeepKernel(**context.options))
    with pytest.raises(InputError, match=r"kernel.net.weight: expected the same values after restoring, got others"):
        posterior.save(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []

    def restore(parts, context):
        kernel = DeepKernel(**context.options)
        kernel.net.weight.data = parts.finite("weight", context.dtype, (3, 2))
        return kernel

    register(DeepKernel, lambda kernel: {"weight": kernel.net.weight}, restore)
    assert_equal(round_trip(posterior, tmp_path), posterior)


def test_what_is_registered_is_checked(registered):
    none = lambda *_: {}  # noqa: E731
    for kind in (3, int, theirs.RBFKernel(), torch.nn.Linear, None):
        with pytest.raises(
            InputError, match="kind: expected a class of gpytorch kernels, of mvgp.priors.MatrixMean or of"
        ):
            register(kind, none, none)
    with pytest.raises(InputError, match="describe: expected a function"):
        register(TiltedKernel, {}, none)
    with pytest.raises(InputError, match="restore: expected a function"):
        register(TiltedKernel, none, None)
    for name in ("", 3, "a\n", "a" * 101):
        with pytest.raises(InputError, match="name: expected a text of 1 to 100 letters"):
            register(TiltedKernel, none, none, name=name)
    with pytest.raises(
        InputError, match="name: 'RBFKernel' stands for gpytorch.*give tests.*TiltedKernel another name="
    ):
        register(TiltedKernel, none, none, name="RBFKernel")


def test_a_file_names_parts_where_they_belong(tmp_path, registered):
    """A mean is no kernel, and no name leads out of the registry."""
    tilted().save(tmp_path / "file")
    tree = archive.read(tmp_path / "file")
    kernel, mean = tree["prior"]["col"]["kernel"], tree["prior"]["mean"]
    for name in ("SlopeMean", "WalkKernel", "os.system", "gpytorch.kernels.RBFKernel"):
        tree["prior"]["col"]["kernel"] = {**kernel, "kind": name}
        archive.write(tmp_path / "file", tree)
        with pytest.raises(StorageError, match="kernel.kind: expected one of DiffusionKernel"):
            mvgp.load(tmp_path / "file")
    tree["prior"]["col"]["kernel"], tree["prior"]["mean"] = kernel, {**mean, "kind": "RBFKernel"}
    archive.write(tmp_path / "file", tree)
    with pytest.raises(StorageError, match="mean.kind: expected one of ZeroMean"):
        mvgp.load(tmp_path / "file")


def test_a_walk_beyond_the_limit_is_refused_like_any_kernel_of_a_graph(tmp_path, registered):
    walk().save(tmp_path / "file")
    tree = archive.read(tmp_path / "file")
    empty = torch.zeros(0, dtype=torch.int64)
    graph = {"starts": torch.zeros(1401, dtype=torch.int64), "ends": empty, "weights": empty.double()}
    tree["prior"]["col"]["kernel"]["own"]["kernels"][0]["own"]["graph"] = graph
    archive.write(tmp_path / "file", tree)
    with pytest.raises(StorageError, match="operations, got 27,"):
        mvgp.load(tmp_path / "file", budget=mvgp.storage.Budget(operations=10**9))
