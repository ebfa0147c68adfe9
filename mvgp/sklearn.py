r"""Estimators of scikit-learn: a matrix as a table whose lines are cells, for pipelines and searches over settings.

``import mvgp.sklearn`` needs the extra ``mvgp[sklearn]``; nothing else in mvgp imports it.

A line of X is a cell of the matrix. Its first columns say which row the cell is in, the others which column:

- **by inputs** (the default): the first ``row_columns`` columns of X are the inputs of the row kernel, all others those
  of the column kernel. Equal inputs are one row, or one column. Predictions take new inputs.
- **by ids**: with ``row_ids`` the first column of X is the id of a row, with ``col_ids`` the last is the id of a
  column. Ids are strings or whole numbers; a kernel on nodes needs them, the m-th id is its m-th node.

Where no kernel is given, inputs have an RBF kernel of lengthscale :math:`\sqrt{d v / 2}`, with d the number of inputs
and v their variance (the ``gamma="scale"`` of scikit-learn's SVR), and ids have the identity: rows are then alike only
as far as their cells say so.
"""

from __future__ import annotations

import copy
from typing import Any

import gpytorch
import numpy as np
import torch

from .checks import check_choice, check_flag, check_positive, check_whole_number, shown
from .data.observed import ObservedMatrix
from .errors import InputError, missing_package
from .hyperparameters.learning import learn as learn_kernels
from .kernels.feature import PrecomputedKernel
from .likelihoods.ranking import BipartiteRankingLikelihood
from .metrics.ranking import auc
from .models.factor_gp import FactorGP
from .models.full_gp import FullGP
from .models.trace_gp import TraceGP
from .priors.matrix_gp import MatrixGP
from .tensor_checks import check_list, check_name

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise missing_package("mvgp.sklearn", "scikit-learn", "sklearn") from error

__all__ = ["MatrixRanker", "MatrixRegressor"]

FIT = "fit"  # ids are those that the fit sees
MODELS = {"full": (), "trace": ("strength", "trace_share"), "factor": ("rank",)}  # their own settings


class _Side:
    """The rows or the columns of a fit: where each line of X is, and the kernel with its inputs."""

    def __init__(self, name: str, part: np.ndarray, ids: Any, kernel: Any) -> None:
        self.name, self.positions = name, {}
        self.inputs: Any = None  # (n, d) of a side with inputs
        if ids is not None:
            self.ids, self.hint = self._known_ids(part, ids), ""
            if isinstance(ids, str):
                self.hint = f"; {name}_ids may be a list, with ids that the fit does not see"
            self.positions = {label: at for at, label in enumerate(self.ids)}
            self.lines = self.find(part)[0]
            self.kernel = _identity(len(self.ids)) if kernel is None else copy.deepcopy(kernel)
        elif part.shape[1] == 0:
            if kernel is not None:
                raise InputError(f"{name}_kernel: expected None without inputs or ids of {name}s, got {shown(kernel)}")
            self.lines, self.kernel = np.zeros(len(part), dtype=np.int64), _identity(1)
        else:
            unique, lines = np.unique(part, axis=0, return_inverse=True)
            self.inputs, self.lines = torch.from_numpy(unique), lines.reshape(-1)
            self.kernel = _scaled_rbf(unique) if kernel is None else copy.deepcopy(kernel)

    def _known_ids(self, part: np.ndarray, ids: Any) -> list[str]:
        """The ids in the order of the kernel's nodes; those of a fit are sorted."""
        if isinstance(ids, str):
            check_choice(ids, f"{self.name}_ids", (FIT,))
            return sorted({_label(value, f"X[{at}]") for at, value in enumerate(part[:, 0].tolist())})
        listed = check_list(ids, f"{self.name}_ids", "ids")
        labels = [_label(value, f"{self.name}_ids[{at}]") for at, value in enumerate(listed)]
        if len(set(labels)) < len(labels):
            raise InputError(f"{self.name}_ids: expected different ids, got some twice")
        return labels

    def find(self, part: np.ndarray) -> tuple[Any, Any]:
        """(n,) positions of lines of X, and the new inputs (n, d) they count within; None for those of the fit."""
        if self.positions:
            labels = [_label(value, f"X[{at}]") for at, value in enumerate(part[:, 0].tolist())]
            for at, label in enumerate(labels):
                if label not in self.positions:
                    known = f"one of the {len(self.ids)} ids of {self.name}s ({', '.join(self.ids[:3])}, ...)"
                    raise InputError(f"X[{at}]: expected {known}, got {label!r}{self.hint}")
            return np.array([self.positions[label] for label in labels], dtype=np.int64), None
        if self.inputs is None:
            return np.zeros(len(part), dtype=np.int64), None
        return np.arange(len(part)), torch.from_numpy(np.array(part))


def _identity(size: int) -> PrecomputedKernel:
    return PrecomputedKernel(torch.eye(size, dtype=torch.float64))


def _scaled_rbf(inputs: np.ndarray) -> Any:
    """An RBF kernel whose lengthscale follows the spread of the inputs (n, d)."""
    kernel = gpytorch.kernels.RBFKernel().double()
    spread = inputs.var()
    if spread > 0:
        kernel.lengthscale = float(np.sqrt(inputs.shape[1] * spread / 2))
    return kernel


def _label(value: Any, name: str) -> str:
    """An id as text; 3 and 3.0 are one id, as a table of numbers may hold either."""
    return check_name(int(value) if isinstance(value, float) and value.is_integer() else value, name)


class _MatrixEstimator(BaseEstimator):
    """What both estimators share: lines of X as cells, the prior, and the posterior's answers."""

    row_kernel: Any
    col_kernel: Any
    row_columns: int | None
    row_ids: Any
    col_ids: Any
    model: str
    noise: float
    strength: float | None
    trace_share: float | None
    rank: int | None
    _default_columns = 1  # inputs of a row

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = self.row_ids is not None or self.col_ids is not None
        return tags

    def _width(self) -> int:
        """How many columns of X belong to the row."""
        if self.row_ids is None:
            count = self._default_columns if self.row_columns is None else self.row_columns
            return check_whole_number(count, "row_columns", 0)
        if self.row_columns not in (None, 1):
            raise InputError(f"row_columns: expected None with row_ids, one column of ids, got {self.row_columns!r}")
        return 1

    def _table(self, X: Any, y: Any = None, *, reset: bool) -> Any:
        """X (and y) as scikit-learn checks them: numbers, or objects where there are ids."""
        width, ids = self._width(), not self.row_ids is self.col_ids is None
        options = {"dtype": None if ids else np.float64, "reset": reset}
        if not reset:
            return validate_data(self, X, **options)
        return validate_data(self, X, y, ensure_min_features=width + 1, **options)

    def _parts(self, X: Any) -> tuple[Any, Any]:
        """The columns of X of the row and those of the column, each as its side takes them."""
        width, parts = self._width(), []
        for name, part, ids in (("row", X[:, :width], self.row_ids), ("col", X[:, width:], self.col_ids)):
            if ids is not None and part.shape[1] != 1:
                raise InputError(f"X: expected one column of ids for the {name}s, got {part.shape[1]}")
            parts.append(part if ids is not None else np.asarray(part, dtype=np.float64))
        return parts[0], parts[1]

    def _fit_cells(self, X: Any) -> MatrixGP:
        """Set the sides of the matrix, and return the prior."""
        parts = self._parts(X)
        self._row = _Side("row", parts[0], self.row_ids, self.row_kernel)
        self._col = _Side("col", parts[1], self.col_ids, self.col_kernel)
        prior = MatrixGP(self._row.kernel, self._col.kernel, self._row.inputs, self._col.inputs)
        for side, size in zip((self._row, self._col), prior.shape, strict=True):
            if side.positions and size != len(side.ids):
                expected = f"{size} ids, one for each node of {side.name}_kernel"
                raise InputError(f"{side.name}_ids: expected {expected}, got {len(side.ids)}")
        return prior

    def _recipe(self, prior: MatrixGP, likelihood: Any) -> Any:
        """The model of mvgp; a setting that it does not have is refused."""
        own = MODELS[check_choice(self.model, "model", MODELS)]
        given = {name: getattr(self, name) for name in ("strength", "trace_share", "rank")}
        chosen = {name: value for name, value in given.items() if value is not None}
        for name in chosen:
            if name not in own:
                raise InputError(f"{name}: expected None for model={self.model!r}, got {shown(given[name])}")
        if self.model == "factor":
            return FactorGP(prior, likelihood, **{"rank": 10, **chosen})
        return TraceGP(prior, likelihood, **chosen) if self.model == "trace" else FullGP(prior, likelihood)

    def _cells(self, X: Any) -> tuple[tuple[Any, Any], dict[str, Any]]:
        """Positions of lines of X, and new inputs, as a posterior takes them."""
        check_is_fitted(self)
        parts = self._parts(self._table(X, reset=False))
        (rows, row_inputs), (cols, col_inputs) = self._row.find(parts[0]), self._col.find(parts[1])
        new = {"row_inputs": row_inputs, "col_inputs": col_inputs}
        return (rows, cols), {name: inputs for name, inputs in new.items() if inputs is not None}


class MatrixRegressor(RegressorMixin, _MatrixEstimator):
    r"""Numbers in a matrix, with an estimate of how certain they are: the mean of a posterior of mvgp.

    Values are centred and scaled to variance 1 before the fit (weights count), and brought back in predictions. Cells
    that X has several times are merged, see :class:`mvgp.ObservedMatrix`.

    :param row_kernel: a gpytorch kernel of the rows; a copy of it is used.
    :param col_kernel: of the columns.
    :param row_columns: how many columns of X are inputs of the row, from the first; 1 when left out. 0: there is one
        row.
    :param row_ids: ids of the rows in the order of the kernel's nodes, or "fit" for those that the fit sees; the first
        column of X then holds ids.
    :param col_ids: of the columns; the only further column of X then holds ids.
    :param model: "full" (:class:`mvgp.FullGP`), "trace" (:class:`mvgp.TraceGP`) or "factor" (:class:`mvgp.FactorGP`).
    :param noise: variance of a measurement with weight 1, relative to the variance of y.
    :param strength: of "trace"; 0.1 when left out.
    :param trace_share: of "trace"; 1 when left out.
    :param rank: of "factor"; 10 when left out.
    :param learn: whether kernels and noise are learned by the marginal likelihood (:func:`mvgp.hyperparameters.learn`)
        before the fit.

    After a fit ``posterior_`` is the posterior, of the scaled values; ``y_mean_`` and ``y_scale_`` bring them back.

    Example:
        >>> import numpy as np
        >>> from mvgp.sklearn import MatrixRegressor
        >>> X = np.array([["ann", "soup"], ["ann", "tea"], ["bob", "soup"], ["bob", "tea"], ["eve", "soup"]])
        >>> y = [5.0, 1.0, 4.0, 2.0, 5.0]
        >>> model = MatrixRegressor(row_ids="fit", col_ids="fit", model="trace", strength=0.01).fit(X, y)
        >>> bool(model.predict([["eve", "tea"]]) < model.predict([["eve", "soup"]]))
        True

    """

    def __init__(
        self,
        row_kernel: Any = None,
        col_kernel: Any = None,
        *,
        row_columns: int | None = None,
        row_ids: Any = None,
        col_ids: Any = None,
        model: str = "full",
        noise: float = 0.1,
        strength: float | None = None,
        trace_share: float | None = None,
        rank: int | None = None,
        learn: bool = False,
    ) -> None:
        self.row_kernel = row_kernel
        self.col_kernel = col_kernel
        self.row_columns = row_columns
        self.row_ids = row_ids
        self.col_ids = col_ids
        self.model = model
        self.noise = noise
        self.strength = strength
        self.trace_share = trace_share
        self.rank = rank
        self.learn = learn

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MatrixRegressor:
        """Fit to the cells X (T, D) with values y (T,); a cell of weight w has noise variance ``noise / w``.

        Lines of weight 0 are left out, as if they were not in X.
        """
        X, y = self._table(X, y, reset=True)
        y, weights = np.asarray(y, dtype=np.float64), None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]
            if len(X) == 0:
                raise InputError("sample_weight: expected at least one positive weight, got none")
        prior = self._fit_cells(X)
        self.y_mean_ = float(np.average(y, weights=weights))
        spread = float(np.sqrt(np.average((y - self.y_mean_) ** 2, weights=weights)))
        self.y_scale_ = spread if spread > 1e-12 * max(1.0, abs(self.y_mean_)) else 1.0
        values, cells = (y - self.y_mean_) / self.y_scale_, (self._row.lines, self._col.lines)
        data = ObservedMatrix(*cells, values, prior.shape, weights=weights, replicates="merge")
        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive()).double()
        likelihood.noise = check_positive(self.noise, "noise")
        if check_flag(self.learn, "learn"):
            learn_kernels(prior, likelihood, data, errors=False)
        self.posterior_ = self._recipe(prior, likelihood).fit(data)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """(n,) predictions for the cells X (n, D); with ``return_std`` also (n,) standard deviations.

        They are those of the matrix itself, without the noise of a measurement.
        """
        cells, new = self._cells(X)
        mean = self.y_mean_ + self.y_scale_ * self.posterior_.mean(*cells, **new).numpy()
        if not return_std:
            return mean
        return mean, self.y_scale_ * self.posterior_.variance(*cells, **new).sqrt().numpy()


class MatrixRanker(ClassifierMixin, _MatrixEstimator):
    r"""Which columns of each row come first, from two classes of cells: a ranking posterior of mvgp.

    The fit orders the cells of the second class (``classes_[1]``) above those of the first, row by row, and says
    nothing of cells in different rows. ``decision_function`` is the posterior mean minus one threshold, that which
    puts the most cells of the fit on the right side; ``predict`` is its sign. Order rows by ``decision_function``.

    :param row_kernel: a gpytorch kernel of the rows; a copy of it is used.
    :param col_kernel: of the columns.
    :param row_columns: how many columns of X are inputs of the row, from the first; 0 when left out: there is one row,
        one list of items.
    :param row_ids: ids of the rows in the order of the kernel's nodes, or "fit" for those that the fit sees; the first
        column of X then holds ids.
    :param col_ids: of the columns; the only further column of X then holds ids.
    :param model: "full" (:class:`mvgp.FullGP`), "trace" (:class:`mvgp.TraceGP`) or "factor" (:class:`mvgp.FactorGP`).
    :param noise: variance of the ranking likelihood.
    :param strength: of "trace"; 0.1 when left out.
    :param trace_share: of "trace"; 1 when left out.
    :param rank: of "factor"; 10 when left out.
    :param margin: between the scores of the two classes.

    After a fit ``posterior_`` is the posterior and ``threshold_`` the threshold.

    Example:
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> from mvgp.sklearn import MatrixRanker
        >>> genes = DiffusionKernel(Graph([(0, 1), (1, 2), (3, 4)], 5))
        >>> X = [["asthma", "g0"], ["asthma", "g3"], ["eczema", "g3"], ["eczema", "g1"]]
        >>> model = MatrixRanker(col_kernel=genes, row_ids="fit", col_ids=[f"g{n}" for n in range(5)])
        >>> scores = model.fit(X, [1, 0, 1, 0]).decision_function([["asthma", "g1"], ["asthma", "g4"]])
        >>> bool(scores[0] > scores[1])
        True

    """

    _default_columns = 0

    def __init__(
        self,
        row_kernel: Any = None,
        col_kernel: Any = None,
        *,
        row_columns: int | None = None,
        row_ids: Any = None,
        col_ids: Any = None,
        model: str = "full",
        noise: float = 0.1,
        strength: float | None = None,
        trace_share: float | None = None,
        rank: int | None = None,
        margin: float = 1.0,
    ) -> None:
        self.row_kernel = row_kernel
        self.col_kernel = col_kernel
        self.row_columns = row_columns
        self.row_ids = row_ids
        self.col_ids = col_ids
        self.model = model
        self.noise = noise
        self.strength = strength
        self.trace_share = trace_share
        self.rank = rank
        self.margin = margin

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> MatrixRanker:
        """Fit to the cells X (T, D) with their classes y (T,), two different ones.

        A cell that X has several times counts as often; it may have one class only.
        """
        X, y = self._table(X, y, reset=True)
        check_classification_targets(y)
        kind = type_of_target(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) > 2:
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        if len(self.classes_) < 2:
            raise InputError(f"y: expected two classes, got one class, {self.classes_[0]!r}")
        prior = self._fit_cells(X)
        positive = y == self.classes_[1]
        labels, cells = np.where(positive, 1.0, -1.0), (self._row.lines, self._col.lines)
        data = ObservedMatrix(*cells, labels, prior.shape, replicates="merge")
        if bool((data.values.abs() < 1).any()):
            at = int((data.values.abs() < 1).nonzero()[0])
            same = (cells[0] == int(data.rows[at])) & (cells[1] == int(data.cols[at]))
            raise InputError(
                f"y: expected one class for equal lines of X, got both for lines {same.nonzero()[0].tolist()}"
            )
        likelihood = BipartiteRankingLikelihood(margin=self.margin, noise=self.noise)
        self.posterior_ = self._recipe(prior, likelihood).fit(data)
        scores = self.posterior_.mean(*cells).numpy()
        self.threshold_ = best_threshold(scores, positive)
        return self

    def decision_function(self, X: Any) -> Any:
        """(n,) scores of the cells X (n, D), above 0 for ``classes_[1]``; they order the cells of a row."""
        cells, new = self._cells(X)
        return self.posterior_.mean(*cells, **new).numpy() - self.threshold_

    def predict(self, X: Any) -> Any:
        """(n,) classes of the cells X (n, D)."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.int64)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean AUC over the rows of X that have cells of both classes; ``sample_weight`` has no place in it."""
        if sample_weight is not None:
            raise InputError("sample_weight: expected None, as the AUC is that of each row, got weights")
        scores, classes = self.decision_function(X), np.asarray(y)
        width, values = self._width(), []
        table = np.asarray(self._table(X, reset=False))
        lines = [tuple(line) for line in table[:, :width].tolist()]
        for row in dict.fromkeys(lines):
            own = np.array([line == row for line in lines])
            positive = (classes[own] == self.classes_[1]).nonzero()[0]
            if 0 < len(positive) < own.sum():
                values.append(float(auc(scores[own][None], (np.zeros_like(positive), positive))))
        if not values:
            raise InputError("y: expected cells of both classes in some row of X, got none")
        return float(np.mean(values))


def best_threshold(scores: Any, positive: Any) -> float:
    """The threshold with the most of ``scores`` (n,) on the side that ``positive`` (n,) says; the middle of its gap.

    Of several the largest; equal scores stay together.
    """
    levels, first = np.unique(scores, return_inverse=True)
    above = np.bincount(first, positive, len(levels))
    below = np.bincount(first, ~positive, len(levels))
    # right with the threshold below level k, k = 0, ..., K: negatives below it and positives from it on
    right = np.append(0, below.cumsum()) + np.append(above[::-1].cumsum()[::-1], 0)
    at = len(levels) - int(right[::-1].argmax())
    edges = np.concatenate([[levels[0] - 1.0], (levels[1:] + levels[:-1]) / 2, [levels[-1] + 1.0]])
    return float(edges[at])
