"""The estimators of scikit-learn: its own checks, cells by ids and by inputs, and the same numbers as the models themselves."""

import importlib.util
import pickle
import re
import sys

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.sklearn import MatrixRanker, MatrixRegressor, best_threshold
from tests import randomness

# Nothing fails. A check that is added here needs a reason; one that passes is an error (``xfail_strict``).
EXPECTED: dict[str, dict[str, str]] = {"MatrixRegressor": {}, "MatrixRanker": {}}
ESTIMATORS = [MatrixRegressor(), MatrixRanker()]


@pytest.mark.slow
@pytest.mark.filterwarnings("default::Warning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda one: EXPECTED[type(one).__name__], xfail_strict=True)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_the_checks_are_those_of_a_regressor_and_of_a_classifier(estimator):
    names = {getattr(check, "func", check).__name__ for _, check in estimator_checks_generator(estimator)}
    assert len(names) > 50
    assert f"check_{'regressor' if isinstance(estimator, MatrixRegressor) else 'classifier'}s_train" in names
    assert set(EXPECTED[type(estimator).__name__]) <= names


# Cells -------------------------------------------------------------------------------------------


def problem():
    """Ids, graphs and values of some cells of a 6 x 8 matrix."""
    generator = randomness.numpy_generator(0)
    graphs = Graph([(i, (i + 1) % 6) for i in range(6)], 6), Graph([(i, i + 1) for i in range(7)], 8)
    people, items = [f"p{m}" for m in range(6)], list(range(10, 18))
    cells = generator.permutation(48)[:30]
    X = pd.DataFrame({"who": [people[c // 8] for c in cells], "what": [items[c % 8] for c in cells]})
    return graphs, people, items, cells, X, generator.normal(size=30)


@pytest.mark.parametrize(
    ("model", "recipe"),
    [
        ({}, lambda prior, likelihood: mvgp.FullGP(prior, likelihood)),
        ({"model": "trace", "strength": 0.2}, lambda prior, likelihood: mvgp.TraceGP(prior, likelihood, strength=0.2)),
        ({"model": "factor", "rank": 2}, lambda prior, likelihood: mvgp.FactorGP(prior, likelihood, 2)),
    ],
    ids=["full", "trace", "factor"],
)
def test_ids_give_what_the_model_gives(model, recipe):
    graphs, people, items, cells, X, y = problem()
    kernels = [DiffusionKernel(graph) for graph in graphs]
    fitted = MatrixRegressor(*kernels, row_ids=people, col_ids=items, noise=0.3, **model).fit(X, y)
    scaled = (y - y.mean()) / y.std()
    data = mvgp.ObservedMatrix(cells // 8, cells % 8, scaled, (6, 8))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.3
    posterior = recipe(mvgp.MatrixGP(*kernels), likelihood).fit(data)
    everything = pd.DataFrame({"who": np.repeat(people, 8), "what": items * 6})
    mean, std = fitted.predict(everything, return_std=True) if "rank" not in model else (fitted.predict(everything), 0)
    assert mean == pytest.approx(y.mean() + y.std() * posterior.scores().flatten().numpy(), abs=1e-6)
    if "rank" not in model:
        rows, cols = np.divmod(np.arange(48), 8)
        assert std == pytest.approx(y.std() * posterior.variance(rows, cols).sqrt().numpy(), rel=1e-6)


def test_inputs_may_be_new_and_go_with_ids():
    graphs, people, _, cells, X, y = problem()
    inputs = np.linspace(-1, 1, 8)
    X = X.assign(what=inputs[cells % 8])
    kernel = gpytorch.kernels.RBFKernel().double()
    fitted = MatrixRegressor(DiffusionKernel(graphs[0]), kernel, row_ids=people).fit(X, y)
    prior = mvgp.MatrixGP(DiffusionKernel(graphs[0]), kernel, col_inputs=torch.from_numpy(inputs))
    data = mvgp.ObservedMatrix(cells // 8, cells % 8, (y - y.mean()) / y.std(), (6, 8))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.1
    expected = mvgp.FullGP(prior, likelihood).fit(data).mean([0], [0], col_inputs=torch.tensor([[0.123]]).double())
    found = fitted.predict(pd.DataFrame({"who": ["p0"], "what": [0.123]}))
    assert found == pytest.approx(y.mean() + y.std() * expected.numpy(), abs=1e-6)


def test_weights_stand_for_repeated_lines():
    *_, X, y = problem()
    times = randomness.numpy_generator(1).integers(0, 3, len(y))
    model = MatrixRegressor(row_ids="fit", col_ids="fit", noise=0.2)
    weighted = model.fit(X[times > 0], y[times > 0], sample_weight=times[times > 0]).predict(X[times > 0])
    repeated = clone(model).fit(X.loc[np.repeat(X.index, times)], np.repeat(y, times)).predict(X[times > 0])
    assert weighted == pytest.approx(repeated, abs=1e-6)


def test_learning_raises_the_marginal_likelihood():
    generator = randomness.numpy_generator(2)
    X = np.stack(np.meshgrid(np.linspace(0, 4, 8), np.linspace(0, 4, 9)), -1).reshape(-1, 2)
    y = np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.1 * generator.normal(size=len(X))
    kernel = gpytorch.kernels.RBFKernel().double()
    before = kernel.lengthscale.item()
    learned = MatrixRegressor(kernel, learn=True).fit(X, y)
    assert kernel.lengthscale.item() == before  # a copy was changed
    assert learned.posterior_.noise != pytest.approx(0.1)
    assert learned.score(X, y) > 0.9


def test_a_ranker_orders_each_row():
    graphs, people, items, cells, X, y = problem()
    labels = np.where(y > 0, "yes", "no")
    kernels = [DiffusionKernel(graph) for graph in graphs]
    fitted = MatrixRanker(*kernels, row_ids=people, col_ids=items).fit(X, labels)
    data = mvgp.ObservedMatrix(cells // 8, cells % 8, np.where(y > 0, 1.0, -1.0), (6, 8))
    posterior = mvgp.FullGP(mvgp.MatrixGP(*kernels), mvgp.likelihoods.BipartiteRankingLikelihood()).fit(data)
    scores = posterior.mean(cells // 8, cells % 8).numpy()
    assert fitted.decision_function(X) + fitted.threshold_ == pytest.approx(scores, abs=1e-6)
    assert set(fitted.predict(X)) <= {"yes", "no"}
    full = torch.full((6, 8), -torch.inf).double()
    full[cells // 8, cells % 8] = torch.from_numpy(scores)
    positive = cells[y > 0] // 8, cells[y > 0] % 8
    rest = np.setdiff1d(np.arange(48), cells)
    expected = mvgp.metrics.auc(full.nan_to_num(neginf=-9.0), positive, exclude=(rest // 8, rest % 8)).nanmean()
    assert fitted.score(X, labels) == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("scores", "positive", "expected"),
    [([0.0, 1.0, 2.0, 3.0], [0, 0, 1, 1], 1.5), ([0.0, 1.0], [1, 1], -1.0), ([1.0, 1.0, 1.0], [0, 0, 1], 2.0)],
)
def test_best_threshold(scores, positive, expected):
    assert best_threshold(np.array(scores), np.array(positive, dtype=bool)) == expected


# In its company ----------------------------------------------------------------------------------


def test_a_search_over_settings_in_a_pipeline():
    generator = randomness.numpy_generator(3)
    X = generator.normal(size=(60, 3))
    y = X[:, 0] * X[:, 1]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), MatrixRegressor()),
        {"matrixregressor__noise": [1e-3, 100.0], "matrixregressor__row_columns": [1, 2]},
        cv=3,
    )
    assert search.fit(X, y).best_params_["matrixregressor__noise"] == 1e-3
    ranker = MatrixRanker().set_params(noise=0.5)
    assert clone(ranker).get_params()["noise"] == 0.5
    assert cross_val_score(ranker, X, y > 0, cv=3).shape == (3,)
    assert cross_val_score(ranker, X, y > 0, cv=3, scoring="roc_auc").min() >= 0


def test_kernels_are_cloned_and_fits_are_pickled():
    graphs, people, items, _, X, y = problem()
    model = MatrixRegressor(*map(DiffusionKernel, graphs), row_ids=people, col_ids=items)
    assert clone(model).row_kernel is not model.row_kernel
    fitted = clone(model).fit(X, y)
    assert (pickle.loads(pickle.dumps(fitted)).predict(X) == fitted.predict(X)).all()


@pytest.mark.parametrize(
    ("settings", "lines", "message"),
    [
        ({"model": "svm"}, None, "model: expected 'full', 'trace' or 'factor', got 'svm'"),
        ({"strength": 0.1}, None, "strength: expected None for model='full', got 0.1"),
        ({"row_ids": "all"}, None, "row_ids: expected 'fit', got 'all'"),
        ({"row_ids": "fit", "row_columns": 2}, None, "row_columns: expected None with row_ids"),
        ({"row_ids": ["p0", "p0"]}, None, "row_ids: expected different ids"),
        ({"row_ids": ["p0", "p1"]}, None, "expected one of the 2 ids of rows"),
        ({"noise": -1.0}, None, "noise: expected a positive"),
        (
            {},
            [["p9", 10]],
            r"X\[0\]: expected one of the 6 ids of rows \(p0, p1, p2, ...\), got 'p9'; row_ids may be a list, with",
        ),
    ],
)
def test_mistakes(settings, lines, message):
    *_, X, y = problem()
    model = MatrixRegressor(**{"row_ids": "fit", "col_ids": "fit", **settings})
    with pytest.raises(InputError, match=message):
        model.fit(X, y).predict(pd.DataFrame(lines or [], columns=X.columns))


def test_a_kernel_on_nodes_needs_an_id_for_each():
    graphs, people, _, _, X, y = problem()
    with pytest.raises(InputError, match="row_ids: expected 6 ids, one for each node of row_kernel, got 7"):
        MatrixRegressor(DiffusionKernel(graphs[0]), row_ids=[*people, "p6"], col_ids="fit").fit(X, y)
    with pytest.raises(InputError, match="y: expected one class for equal lines of X, got both for lines"):
        MatrixRanker(row_ids="fit", col_ids="fit").fit(pd.concat([X, X]), np.append(y > 0, y < 0))


@pytest.mark.parametrize(
    ("module", "package", "part"), [("sklearn", "scikit-learn", "base"), ("botorch", "botorch", "models.model")]
)
def test_a_missing_package_is_one_line(module, package, part, monkeypatch):
    monkeypatch.setitem(sys.modules, f"{module}.{part}", None)
    spec = importlib.util.find_spec(f"mvgp.{module}")
    line = f"mvgp.{module}: expected the package {package}, got none; pip install 'mvgp[{module}]'"
    with pytest.raises(ImportError, match=f"^{re.escape(line)}$"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
