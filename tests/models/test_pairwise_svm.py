import pickle
import sys

import gpytorch
import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.svm import SVC

import mvgp
from mvgp import metrics
from mvgp.errors import ConvergenceError, InputError
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.models.pairwise_svm import PairwiseSVM
from mvgp.priors import ConstantMean
from tests import randomness

M, N = 14, 19
EVERYTHING = torch.arange(M * N) // N, torch.arange(M * N) % N


def ring(size):
    return Graph(np.stack([np.arange(size), (np.arange(size) + 1) % size], 1), size)


def make_prior(**options):
    x = torch.linspace(0, 4, N).double()
    return mvgp.MatrixGP(
        DiffusionKernel(ring(M), time=2.0, shift=0.2), gpytorch.kernels.RBFKernel(), col_inputs=x, **options
    )


def smooth():
    return np.sin(2 * np.pi * np.arange(M) / M)[:, None] * np.cos(np.arange(N) / 4)


def make_data(seed=0, count=120, weighted=False):
    """Labels by the sign of a smooth function with noise; fewer positives than negatives."""
    rng = randomness.numpy_generator(seed)
    truth = smooth()
    cells = rng.choice(M * N, count, replace=False)
    labels = np.where(truth.ravel()[cells] + 0.2 * rng.normal(size=count) > 0.25, 1.0, -1.0)
    weights = rng.uniform(0.5, 2.0, count) if weighted else None
    return truth, mvgp.ObservedMatrix(cells // N, cells % N, labels, (M, N), weights=weights)


def dense_kernel(prior, data):
    k_rows, k_cols = (axis.covariance().to_dense().detach() for axis in (prior.row_axis, prior.col_axis))
    everything = torch.kron(k_rows, k_cols)  # (M N, M N)
    cells = data.rows * N + data.cols
    return everything[:, cells], everything[cells][:, cells]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("positive_weight", [1.0, 3.0, "balanced"])
def test_svc_is_scikit_learn(positive_weight, weighted):
    prior, (_, data) = make_prior(), make_data(weighted=weighted)
    ranker = PairwiseSVM(prior, cost=2.0, positive_weight=positive_weight, tolerance=1e-6).fit(data)
    cross, kernel = dense_kernel(prior, data)
    labels = data.values.numpy()
    weights = np.ones(len(labels)) if data.weights is None else data.weights.numpy()
    ratio = positive_weight
    if positive_weight == "balanced":
        ratio = weights[labels < 0].sum() / weights[labels > 0].sum()
    each = np.where(labels > 0, ratio * weights, weights)
    machine = SVC(kernel="precomputed", C=2.0, tol=1e-8).fit(kernel.numpy(), labels, sample_weight=each)
    expected = machine.decision_function(cross.numpy())
    assert ranker.certificate.solver == "svc"
    assert ranker.certificate.converged
    np.testing.assert_allclose(ranker.scores().numpy().ravel(), expected, atol=1e-4)
    if positive_weight == "balanced" and not weighted:  # scikit-learn's own balance, up to its overall factor
        classes = {1.0: (labels < 0).sum() / (labels > 0).sum(), -1.0: 1.0}
        same = SVC(kernel="precomputed", C=2.0, tol=1e-8, class_weight=classes).fit(kernel.numpy(), labels)
        np.testing.assert_allclose(same.decision_function(cross.numpy()), expected, atol=1e-4)


def test_newton_costs_and_interface():
    """The optimality conditions of the squared hinge, with entry and class weights, at observed and at other cells."""
    prior, (_, data) = make_prior(), make_data(weighted=True)
    ranker = PairwiseSVM(prior, cost=2.0, positive_weight=3.0, solver="newton", tolerance=1e-13).fit(data)
    cross, _ = dense_kernel(prior, data)
    assert ranker.certificate.solver == "newton"
    assert ranker.shape == (M, N)
    a = ranker.coefficients.values
    scores = (cross @ a + ranker.bias).reshape(M, N)
    costs = 2.0 * data.weights * torch.where(data.values > 0, 3.0, 1.0)
    expected = costs * data.values * (1 - data.values * scores[data.rows, data.cols]).clamp(min=0)
    torch.testing.assert_close(a, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(ranker.scores(), scores, atol=1e-8, rtol=0)
    torch.testing.assert_close(ranker.scores([3, 1]), scores[[3, 1]], atol=1e-8, rtol=0)
    torch.testing.assert_close(ranker.mean(*EVERYTHING), scores.flatten(), atol=1e-8, rtol=0)
    at = prior.col_axis.inputs[[4, 7]]
    torch.testing.assert_close(ranker.mean([2, 2], [0, 1], col_inputs=at), scores[2, [4, 7]], atol=1e-8, rtol=0)
    assert repr(ranker) == "PairRanker(14 x 19, 120 observed)"
    torch.testing.assert_close(pickle.loads(pickle.dumps(ranker)).scores(), ranker.scores())


def test_both_solvers_rank_alike_and_well():
    """Nothing is drawn: more than half of the cells by a fixed rule, with the right labels."""
    truth = smooth()
    cells = np.flatnonzero((3 * np.arange(M)[:, None] + 5 * np.arange(N)) % 9 < 5)
    labels = np.where(truth.ravel()[cells] > 0.25, 1.0, -1.0)
    data = mvgp.ObservedMatrix(cells // N, cells % N, labels, (M, N))
    hinge, squared = (PairwiseSVM(make_prior(), solver=solver).fit(data).scores() for solver in ("svc", "newton"))
    assert spearmanr(hinge.flatten(), squared.flatten()).statistic > 0.95
    seen = torch.zeros(M, N, dtype=torch.bool)
    seen[data.rows, data.cols] = True
    unseen = (torch.from_numpy(truth > 0.25) & ~seen).nonzero(as_tuple=True)
    for scores in (hinge, squared):
        assert metrics.ranking_scores(scores, unseen, exclude=data, k=5).summary()["AUC"] > 0.9


def test_metrics_take_the_ranker():
    _, data = make_data()
    ranker = PairwiseSVM(make_prior(), solver="newton").fit(data)
    seen = torch.zeros(M, N, dtype=torch.bool)
    seen[data.rows, data.cols] = True
    unseen = (~seen).nonzero()[::3].T
    lazy = metrics.ranking_scores(ranker, tuple(unseen), exclude=data, k=3, chunk=4)
    dense = metrics.ranking_scores(ranker.scores(), tuple(unseen), exclude=data, k=3)
    torch.testing.assert_close(lazy.auc, dense.auc, equal_nan=True)


def test_the_fit_is_a_snapshot():
    prior, (_, data) = make_prior(), make_data()
    ranker = PairwiseSVM(prior).fit(data)
    before = ranker.mean([0], [0])
    prior.row_kernel.time = 0.1
    torch.testing.assert_close(ranker.mean([0], [0]), before)
    assert not any(parameter.grad_fn for parameter in ranker.prior.parameters())


def test_size_decides_the_solver():
    _, data = make_data()
    assert PairwiseSVM(make_prior(), dense_limit=len(data) - 1).fit(data).certificate.solver == "newton"
    assert PairwiseSVM(make_prior(), solver="svc").fit(data).certificate.solver == "svc"


def test_single_precision():
    _, data = make_data()
    double = PairwiseSVM(make_prior(), solver="newton").fit(data)
    single = PairwiseSVM(make_prior(dtype=torch.float32), solver="newton").fit(data)
    assert single.scores().dtype == torch.float32
    torch.testing.assert_close(single.scores().double(), double.scores(), atol=0.05, rtol=0)


def test_there_is_no_variance():
    _, data = make_data()
    ranker = PairwiseSVM(make_prior(), solver="newton").fit(data)
    for ask in (
        lambda: ranker.variance([0], [0]),
        lambda: ranker([0], [0]),
        lambda: ranker.sample([0], [0]),
        lambda: ranker.covariance(),
    ):
        with pytest.raises(InputError, match="no variance"):
            ask()


def test_a_missed_tolerance_is_told():
    _, data = make_data()
    with pytest.warns(RuntimeWarning, match="duality gap.*after 1 iterations of newton") as record:
        PairwiseSVM(make_prior(), cost=100.0, solver="newton", max_iterations=1).fit(data)
    assert record[0].filename == __file__
    with pytest.raises(ConvergenceError, match="duality gap"):
        PairwiseSVM(make_prior(), cost=100.0, solver="newton", max_iterations=1, strict=True).fit(data)


def test_without_scikit_learn(monkeypatch):
    _, data = make_data()
    monkeypatch.setitem(sys.modules, "sklearn.svm", None)
    with pytest.raises(ImportError, match="pip install scikit-learn.*solver='newton'"):
        PairwiseSVM(make_prior()).fit(data)
    assert PairwiseSVM(make_prior(), solver="newton").fit(data).certificate.converged


def test_bad_input():
    prior, (_, data) = make_prior(), make_data()
    for options, message in [
        ({"cost": 0.0}, "cost: expected a positive"),
        ({"cost": float("nan")}, "cost: expected a positive"),
        ({"cost": True}, "cost: expected a positive"),
        ({"positive_weight": -1.0}, "positive_weight"),
        ({"positive_weight": "even"}, "positive_weight"),
        ({"solver": "smo"}, "'auto', 'svc' or 'newton'"),
        ({"tolerance": 0.0}, "tolerance"),
    ]:
        with pytest.raises(InputError, match=message):
            PairwiseSVM(prior, **options)
    with pytest.raises(InputError, match="zero mean.*ConstantMean"):
        PairwiseSVM(make_prior(mean=ConstantMean(1.0)))
    with pytest.raises(InputError, match="prior: expected mvgp.MatrixGP"):
        PairwiseSVM(None)
    model = PairwiseSVM(prior)
    with pytest.raises(InputError, match="data: expected mvgp.ObservedMatrix"):
        model.fit(data.to_dense())
    with pytest.raises(InputError, match=r"labels \+1 and -1, got 0.5 at \(1, 2\)"):
        model.fit(mvgp.ObservedMatrix([0, 1], [0, 2], [1.0, 0.5], (M, N)))
    with pytest.raises(InputError, match=r"both classes, got 2 times \+1"):
        model.fit(mvgp.ObservedMatrix([0, 1], [0, 2], [1, 1], (M, N)))
    with pytest.raises(InputError, match=r"expected shape \(14, 19\)"):
        model.fit(mvgp.ObservedMatrix([0, 1], [0, 2], [1, -1], (M, N + 1)))
