"""The central checks, and what used to be changed in silence or to end in a raw exception."""

import math
import sys
from pathlib import Path

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import mvgp
import mvgp.hyperparameters
from mvgp import checks, tensor_checks
from mvgp.errors import InputError, MvgpError, NotPositiveSemidefiniteError
from mvgp.kernels import DiffusionKernel, FeatureKernel, Graph, PrecomputedKernel
from mvgp.likelihoods import BipartiteRankingLikelihood, RankingLists, project_order
from mvgp.linalg.pairs import PairIndex
from mvgp.linalg.solvers import WoodburyPreconditioner
from mvgp.metrics import auc, compare
from mvgp.priors import ConstantMean, GivenMean, PopularityMean, RowBiasMean
from tests import randomness

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

NAN, INF = float("nan"), float("inf")
NO_NUMBERS = [None, "1", b"1", True, 1j, [1.0], {}, object(), torch.ones(2), np.array("1"), torch.tensor(True)]


@pytest.mark.parametrize("given", [*NO_NUMBERS, NAN, INF, -INF, 10**400])
def test_what_is_no_number_is_refused(given):
    for check in (checks.check_number, checks.check_positive, checks.check_not_negative, checks.check_share):
        with pytest.raises(InputError, match="x: expected"):
            check(given, "x")


@pytest.mark.parametrize("given", [*NO_NUMBERS, 0.5, 2.0, NAN, INF, 2**70, -1])
def test_what_is_no_whole_number_is_refused(given):
    for check in (checks.check_whole_number, checks.check_iterations, checks.check_seed):
        with pytest.raises(InputError, match="x: expected a .*whole number"):
            check(given, "x")


def test_numbers_of_numpy_and_torch_are_numbers():
    for given in (2, np.int8(2), np.uint64(2), torch.tensor(2), np.array(2)):
        assert checks.check_whole_number(given, "x") == 2
    for given in (0.5, np.float32(0.5), torch.tensor(0.5), np.array(0.5), np.longdouble(0.5)):
        assert checks.check_between(given, "x") == 0.5


STRANGE = {
    "masked": np.ma.masked_array([1.0, 999.0], [False, True]),
    "masked in a list": [1.0, np.ma.masked],
    "complex": np.array([1 + 1j, 2]),
    "complex tensor": torch.ones(2, dtype=torch.complex64),
    "text": ["1", "2"],
    "objects": np.array([1, None], dtype=object),
    "dates": np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"),
    "too large": np.array([2**64 - 1, 1], dtype=np.uint64),
    "beyond 64 bits": [2**70, 1],
    "a gap": pd.Series([1, None], dtype="Int64"),
    "sparse": torch.eye(2).to_sparse(),
    "scipy": sparse.eye_array(2),
    "meta": torch.ones(2, device="meta"),
    "generator": (one for one in (1.0, 2.0)),
    "booleans": [True, False],
    "ragged": [[1.0], [1.0, 2.0]],
}


@pytest.mark.filterwarnings("ignore")  # torch has deprecated them
def test_quantised_tensors_are_refused():
    with pytest.raises(InputError, match="quantised"):
        tensor_checks.as_tensor(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "x")


@pytest.mark.parametrize("case", STRANGE)
def test_what_is_no_vector_of_numbers_is_refused(case):
    with pytest.raises(InputError, match=r"^x(\[.*\])?: expected"):
        tensor_checks.check_values(STRANGE[case], None, "x")


@pytest.mark.parametrize(
    "given",
    [
        np.arange(3.0)[::-1],
        np.arange(6.0)[::2],
        np.arange(3.0).astype(">f8"),
        np.arange(3, dtype=np.uint16),
        np.ma.masked_array([0.0, 1.0, 2.0], False),
        torch.arange(3).half(),
        pd.Series([0, 1, 2], dtype="Int64"),
    ],
)
def test_any_layout_of_numbers_is_taken(given):
    assert tensor_checks.check_values(given, 3, "x").numel() == 3
    assert tensor_checks.check_values(given, 3, "x").sum() == np.asarray(given, dtype=float).sum()
    assert tensor_checks.check_values(given, 3, "x").dtype == torch.float64


def test_whole_numbers_that_a_double_cannot_hold_are_refused():
    with pytest.raises(InputError, match=r"values\[0\].*2\*\*53"):
        mvgp.ObservedMatrix([0], [0], [2**53 + 1], (1, 1))
    with pytest.raises(InputError, match=r"2\*\*53"):
        mvgp.ObservedMatrix.from_frame(pd.DataFrame({"a": [2**53 + 1]}))


# Data changed in silence --------------------------------------------------------------------------


def test_masked_entries_are_missing():
    matrix = np.ma.masked_array([[1.0, 999.0], [2.0, 3.0]], [[False, True], [False, False]])
    data = mvgp.ObservedMatrix.from_dense(matrix)
    assert data.values.tolist() == [1.0, 2.0, 3.0]
    assert not data.is_complete
    chosen = mvgp.ObservedMatrix.from_mask(matrix, [[True, True], [False, True]])
    assert chosen.values.tolist() == [1.0, 3.0]


MASKED = np.ma.masked_array([1, 1], [False, True])
EDGES, TWO = [(0, 1), (1, 0)], torch.eye(2).double()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda bad: mvgp.ObservedMatrix(bad, [0, 1], [1.0, 2.0], (2, 2)), "rows"),
        (lambda bad: mvgp.ObservedMatrix([0, 1], bad, [1.0, 2.0], (2, 2)), "cols"),
        (lambda bad: mvgp.ObservedMatrix([0, 1], [0, 1], bad, (2, 2)), "values"),
        (lambda bad: mvgp.ObservedMatrix([0, 1], [0, 1], [1, 2], (2, 2), weights=bad), "weights"),
        (lambda bad: Graph(EDGES, 2, bad), "weights"),
        (lambda bad: FeatureKernel(bad), "features"),
        (lambda bad: PrecomputedKernel([bad, bad]), "matrix"),
        (lambda bad: GivenMean([bad, bad]), "matrix"),
        (lambda bad: RowBiasMean(bad), "bias"),
        (lambda bad: PopularityMean(bad), "counts"),
        (lambda bad: mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), PrecomputedKernel(TWO), bad), "row_inputs"),
        (lambda bad: auc([bad, bad], ([0], [1])), "scores"),
        (lambda bad: compare(bad, [0.1, 0.2]), "a"),
        (lambda bad: project_order(bad, [True, False], [0, 0]), "scores"),
        (lambda bad: RankingLists.from_labels(bad, [0, 0]), "labels"),
        (lambda bad: Graph.from_adjacency([bad, bad]), "adjacency"),
    ],
)
def test_masked_and_complex_input_is_refused_by_name(call, name):
    for bad in (MASKED, np.array([1 + 1j, 1 + 1j])):
        with pytest.raises(InputError, match=rf"^{name}"):
            call(bad)


def test_complex_sparse_matrices_are_refused():
    complex_ = sparse.csr_array(np.array([[0, 1j], [1j, 0]]))
    for call in (Graph.from_adjacency, FeatureKernel, mvgp.ObservedMatrix.from_scipy):
        with pytest.raises(InputError, match="real numbers"):
            call(complex_)


@pytest.mark.parametrize("bad", [NAN, None, pd.NA, pd.NaT, np.float32("nan"), b"a", True, ["a"]])
def test_names_that_are_missing_are_refused(bad):
    with pytest.raises(InputError, match=r"row_names\[1\]: expected a name"):
        mvgp.ObservedMatrix([0], [0], [1.0], (2, 1), row_names=["a", bad])
    with pytest.raises(InputError, match="row_names: expected 2 names"):
        mvgp.ObservedMatrix([0], [0], [1.0], (2, 1), row_names="ab")


def test_frames_with_strange_cells_and_names_are_refused():
    long = {"row": "r", "col": "c", "value": "v"}
    for cells in (["1", "2"], [True, False], [1j, 2j], pd.to_datetime(["2020", "2021"])):
        with pytest.raises(InputError, match="numbers in every cell"):
            mvgp.ObservedMatrix.from_frame(pd.DataFrame({"r": ["a", "b"], "c": ["x", "y"], "v": cells}), **long)
    with pytest.raises(InputError, match=r"frame.index\[1\]: expected a name"):
        mvgp.ObservedMatrix.from_frame(pd.DataFrame({"x": [1.0, 2.0]}, index=["a", NAN]))
    with pytest.raises(InputError, match="1 and '1'"):
        mvgp.ObservedMatrix.from_frame(pd.DataFrame({"r": [1, "1"], "c": ["x", "y"], "v": [1, 2]}), **long)
    with pytest.raises(InputError, match="expected a pandas DataFrame"):
        mvgp.ObservedMatrix.from_frame([1.0])


@pytest.mark.parametrize("bad", [NAN, INF, -INF, "0.5", True, 1j, None])
def test_a_constant_mean_is_a_number(bad):
    with pytest.raises(InputError, match="constant: expected a finite number"):
        ConstantMean(bad)


@pytest.mark.parametrize("bad", [0.5, "float64", torch.int64, torch.float16, torch.complex64, float, None])
def test_a_dtype_is_single_or_double_precision(bad):
    graph = Graph(EDGES, 2)
    for call in (
        lambda: ConstantMean(0.0, dtype=bad),
        lambda: DiffusionKernel(graph, dtype=bad),
        lambda: FeatureKernel([1.0, 2.0], dtype=bad),
        lambda: mvgp.MatrixGP(DiffusionKernel(graph), DiffusionKernel(graph), dtype=bad),
    ):
        with pytest.raises(InputError, match="dtype: expected torch.float32 or torch.float64"):
            call()


def small():
    prior = mvgp.MatrixGP(DiffusionKernel(Graph(EDGES, 2)), DiffusionKernel(Graph(EDGES, 2)))
    return prior, gpytorch.likelihoods.GaussianLikelihood().double()


@pytest.mark.parametrize("bad", [-1.0, 0, NAN, INF, "1e-3", True, 1j, [1e-3]])
def test_tolerances_and_limits_are_checked_everywhere(bad):
    prior, likelihood = small()
    data = mvgp.ObservedMatrix([0, 1], [0, 1], [1.0, 2.0], (2, 2))
    for call in (
        lambda **o: mvgp.FullGP(prior, likelihood, **o),
        lambda **o: mvgp.TraceGP(prior, likelihood, **o),
        lambda **o: mvgp.PairwiseSVM(prior, **o),
        lambda **o: mvgp.hyperparameters.log_marginal(prior, likelihood, data, **o),
        lambda **o: mvgp.hyperparameters.MatrixMarginalLogLikelihood(likelihood, prior, **o),
    ):
        for name in ("tolerance", "max_iterations"):
            with pytest.raises(InputError, match=rf"{name}: expected"):
                call(**{name: bad})
    with pytest.raises(InputError, match="max_iterations: expected"):
        mvgp.FactorGP(prior, likelihood, 1, max_iterations=bad)
    with pytest.raises(InputError, match="tolerance: expected"):
        DiffusionKernel(Graph(EDGES, 2), tolerance=bad)


@pytest.mark.parametrize("bad", [INF, -INF, NAN, 1e300])
def test_a_task_is_a_number(bad):
    with pytest.raises(InputError, match=r"task\[1\]: expected a whole number"):
        project_order([1.0, 2.0], [True, False], [0, bad])


def test_edge_weights_whose_sum_overflows_are_refused():
    most = np.finfo(np.float64).max
    with pytest.raises(InputError, match="node 0"):
        Graph([(0, 1), (0, 2)], 3, [most, most])
    with pytest.raises(InputError, match="overflow"):
        Graph([(0, 1), (1, 0)], 2, [most, most])
    with pytest.raises(InputError, match="overflow"):
        Graph.from_adjacency(np.array([[0, most, most], [most, 0, 0], [most, 0, 0]]))
    for weight in (most / 4, 5e-324):  # the ends of what can be told apart
        laplacian = Graph([(0, 1)], 2, [weight]).laplacian().toarray()
        np.testing.assert_allclose(laplacian, [[1, -1], [-1, 1]])


def test_numbers_that_overflow_in_single_precision_are_refused():
    with pytest.raises(InputError, match="float32"):
        FeatureKernel([1e300, 1.0], dtype=torch.float32)
    inputs = torch.tensor([1e300, 0.0], dtype=torch.float64)
    with pytest.raises(InputError, match="row_inputs"):
        mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), PrecomputedKernel(TWO), inputs, dtype=torch.float32)


def test_new_inputs_are_not_rounded_to_the_prior_s():
    prior = mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), PrecomputedKernel(TWO), torch.arange(3))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    posterior = mvgp.FullGP(prior, likelihood).fit(mvgp.ObservedMatrix([0], [0], [1.0], (3, 2)))
    with pytest.raises(InputError, match=r"row_inputs\[0, 0\]: expected a number that fits into torch.int64"):
        posterior.mean([0], [0], row_inputs=[[0.5]])  # was taken for input 0


# Raw exceptions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["row", "col", "observed cells"])
@pytest.mark.parametrize("solver", ["proximal", "dense", "hybrid"])
@pytest.mark.parametrize(
    "options",
    [
        {"strength": 0.5},
        {"strength": 0.5, "trace_share": 0.0},
        {"penalty": mvgp.SpectralElasticNet(0.3, 0.5)},
        {"penalty": mvgp.TraceBall(1.0, 0.1)},
    ],
)
def test_a_prior_without_variance_gives_the_zero_mean_with_a_certificate(side, solver, options):
    rows, cols = torch.eye(4).double(), torch.eye(5).double()
    (cols if side == "col" else rows).mul_(0)
    if side == "observed cells":
        rows[3, 3] = 1.0  # the one row that is not observed
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    prior = mvgp.MatrixGP(PrecomputedKernel(rows), PrecomputedKernel(cols), mean=ConstantMean(0.5))
    data = mvgp.ObservedMatrix([0, 1, 2], [0, 1, 2], [1.0, 2.0, 3.0], (4, 5))
    posterior = mvgp.TraceGP(prior, likelihood, solver=solver, **options).fit(data)
    assert (posterior.scores() == 0.5).all()
    assert posterior.rank == 0 or posterior.mean_factors is None
    assert posterior.certificate.converged
    assert math.isclose(posterior.certificate.primal, 0.5 * (0.25 + 2.25 + 6.25))


def test_a_preconditioner_bears_noise_that_rounding_swallows():
    """Kernels of size 1e10 beside noise of 1e-12: it used to break down."""
    generator = randomness.generator(0)
    kernels = []
    for _ in range(2):
        a = torch.randn(30, 30, generator=generator, dtype=torch.float64)
        kernels.append(PrecomputedKernel(1e3 * a @ a.T))
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-30))
    likelihood.double().noise = torch.tensor(1e-12, dtype=torch.float64)
    cells = torch.randperm(900, generator=generator)[:500]
    data = mvgp.ObservedMatrix(cells // 30, cells % 30, torch.ones(500).double(), (30, 30))
    posterior = mvgp.FullGP(mvgp.MatrixGP(*kernels), likelihood, method="cg", tolerance=1e-8).fit(data)
    fitted = posterior.mean(cells // 30, cells % 30)
    # what the solver promises: the noise is nothing here, so the residual is the distance from the data
    assert float((fitted - 1).norm() / 500**0.5) <= 1e-7


def test_a_preconditioner_that_breaks_down_is_told():
    pairs = PairIndex(torch.tensor([0, 1]), torch.tensor([0, 1]), (2, 2))
    values, vectors = torch.ones(2).double(), torch.eye(2).double()
    with pytest.raises(NotPositiveSemidefiniteError, match="smallest noise variance is 0.1"):
        WoodburyPreconditioner((values, vectors * torch.nan), (values, vectors), pairs, torch.full((2,), 0.1).double())


@pytest.mark.parametrize("bad", [5, "a", randomness.numpy_generator(0), torch.ones(1)])
def test_samples_take_a_generator(bad):
    prior, likelihood = small()
    with pytest.raises(InputError, match=r"generator: expected a torch.Generator or None"):
        prior.sample(bad)
    posterior = mvgp.FullGP(prior, likelihood).fit(mvgp.ObservedMatrix([0], [0], [1.0], (2, 2)))
    with pytest.raises(InputError, match=r"generator: expected a torch.Generator or None"):
        posterior.sample([0], [0], generator=bad)


class Target:
    """A target set that answers with whatever it was given."""

    supports_weights, shift_invariant = True, False

    def __init__(self, answer):
        self.answer = answer

    def projection(self, lists, weight=None):
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        lambda psi: psi * NAN,
        lambda psi: psi + INF,
        lambda psi: psi[:1],
        lambda psi: psi.unsqueeze(0),
        lambda psi: psi.long(),
        lambda psi: psi.half(),
        lambda psi: psi.tolist(),
        lambda psi: None,
    ],
)
def test_a_target_set_that_answers_nonsense_is_told(answer):
    prior, _ = small()
    likelihood = BipartiteRankingLikelihood(target=Target(answer))
    data = mvgp.ObservedMatrix([0, 0, 1, 1], [0, 1, 0, 1], [1.0, -1.0, 1.0, -1.0], (2, 2))
    psi, labels, task = torch.zeros(4).double(), [1, -1, 1, -1], [0, 0, 1, 1]
    for call in (
        lambda: likelihood.retarget(psi, labels, task),
        lambda: likelihood.loss(psi, labels, task),
        lambda: mvgp.TraceGP(prior, likelihood).fit(data),
        lambda: mvgp.FullGP(prior, likelihood).fit(data),
    ):
        with pytest.raises(InputError, match="retarget"):
            call()


def test_negative_strides_are_taken():
    data = mvgp.ObservedMatrix(np.arange(3)[::-1], np.arange(3), np.arange(3.0)[::-1], (3, 3))
    assert data.values.tolist() == [0.0, 1.0, 2.0]
    dense = np.arange(6.0).reshape(2, 3)[::-1, ::-1]
    assert torch.equal(mvgp.ObservedMatrix.from_dense(dense).to_dense(), torch.from_numpy(dense.copy()))
    assert PrecomputedKernel(np.eye(3)[::-1, ::-1]).num_nodes == 3
    assert Graph(np.array(EDGES)[::-1], 2).num_links == 1


def test_a_noise_that_vanishes_in_the_prior_s_precision_is_refused():
    prior, likelihood = small()
    likelihood.noise_covar.register_constraint("raw_noise", gpytorch.constraints.Positive())
    likelihood.noise_covar.raw_noise.data.fill_(-300.0)
    with pytest.raises(InputError, match="positive finite noise"):
        mvgp.FullGP(prior.to(torch.float32), likelihood).fit(mvgp.ObservedMatrix([0], [0], [1.0], (2, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_wrong_calls_are_refused_by_name(seed):
    import hostile_calls

    count = 400
    outcomes = hostile_calls.hostile_round(seed, count)
    raw = [one.text for one in outcomes if one.kind == "RAW" and not one.case.startswith("load")]
    assert not [one.text for one in outcomes if one.kind == "SILENT"]
    assert len(raw) <= count // 100, raw
    assert sum(one.kind == "refused" for one in outcomes) > count // 2
    assert issubclass(InputError, MvgpError)
