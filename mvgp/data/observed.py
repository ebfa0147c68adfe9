"""ObservedMatrix: observed entries, out of lists, dense arrays, masks, scipy matrices and pandas frames."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..checks import check_choice, check_instance, real, shown
from ..errors import InputError
from ..linalg.pairs import Pattern, cell_slots, sort_cells
from ..tensor_checks import (
    EXACT,
    as_reals,
    as_tensor,
    check_cells,
    check_name,
    check_names,
    check_shape,
    check_values,
    check_weights,
)

if TYPE_CHECKING:
    import pandas as pd

Replicates = Literal["error", "merge"]
Entries = tuple[Tensor, Tensor, Tensor, tuple[int, int]]  # rows, columns and values, (T,) each, and the shape


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ObservedMatrix:
    r"""T observed entries :math:`r_{mn}` of an M x N matrix; each pair at most once.

    The entries are checked, sorted row by row, and never change afterwards. There may be none: a posterior is then the
    prior. A weight ``w`` says that an entry was measured with noise variance :math:`\sigma^2 / w`. Values and weights
    may require gradients, which the marginal likelihoods of :mod:`mvgp.hyperparameters` carry. A fit, whose posterior
    is constant, refuses such data; give it :meth:`detach`.

    :param rows: (T,) row of each entry, in [0, M).
    :param cols: (T,) column of each entry, in [0, N).
    :param values: (T,) finite numbers. Whole numbers become float64.
    :param shape: (M, N).
    :param weights: (T,) positive numbers; all 1 when left out.
    :param replicates: what becomes of a pair that is given several times: ``error``, or ``merge`` into one entry, the
        mean weighted by precision with the sum of the weights. Under Gaussian noise that loses nothing: what the
        measurements of a pair say about each other, :meth:`replicate_log_prob`, does not depend on the matrix.
    :param row_names: M distinct names, optional.
    :param col_names: N distinct names, optional.

    Example:
        >>> import mvgp
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 0], [0.5, -1.0], shape=(3, 2))
        >>> len(data), data.shape
        (2, (3, 2))
        >>> mvgp.ObservedMatrix([0, 0], [1, 1], [0.5, 1.5], shape=(3, 2), replicates="merge").values.tolist()
        [1.0]

    """

    rows: Tensor
    cols: Tensor
    values: Tensor
    weights: Tensor | None
    shape: tuple[int, int]
    replicates: Replicates
    num_replicates: Tensor  # (T,) measurements of each entry
    _spread: Tensor  # (T,) sum of w (r - mean)^2 over the measurements of each entry
    _log_weights: Tensor  # (T,) sum of log w over the measurements of each entry, less the log of its own weight
    row_names: tuple[str, ...] | None
    col_names: tuple[str, ...] | None

    def __init__(
        self,
        rows: Any,
        cols: Any,
        values: Any,
        shape: tuple[int, int],
        *,
        weights: Any = None,
        replicates: Replicates = "error",
        row_names: Any = None,
        col_names: Any = None,
    ) -> None:
        shape = check_shape(shape)
        row, col = check_cells(rows, cols, shape)  # (T,) each
        number = check_values(values, len(row), "values", keep_gradient=True)
        weight = None if weights is None else check_weights(weights, len(row), number.dtype, keep_gradient=True)
        check_choice(replicates, "replicates", ("error", "merge"))
        counts, spread, log_weights = torch.ones_like(row), number.new_zeros(len(row)), number.new_zeros(len(row))
        if replicates == "merge":
            key, slot, counts = torch.unique(row * shape[1] + col, return_inverse=True, return_counts=True)
            if len(key) < len(row):
                number, weight, spread, log_weights = _merged(number, weight, slot, len(key))
                row, col = key // shape[1], key % shape[1]
            else:
                counts = torch.ones_like(row)
        row, col, order = sort_cells(row, col, shape[1])
        self.__dict__.update(  # it is frozen from here on
            rows=row,
            cols=col,
            values=number[order],
            weights=None if weight is None else weight[order],
            shape=shape,
            replicates=replicates,
            num_replicates=counts[order],
            _spread=spread[order],
            _log_weights=log_weights[order],
            row_names=check_names(row_names, shape[0], "row_names"),
            col_names=check_names(col_names, shape[1], "col_names"),
            _reordered=bool((order.diff() < 0).any()),  # whether the entries came in another order
        )

    @classmethod
    def from_dense(cls, matrix: Any, **options: Any) -> ObservedMatrix:
        """The entries of a dense (M, N) array or tensor that are neither NaN nor masked by numpy."""
        dense, missing = _dense(matrix)
        return cls(*_entries(dense, ~(torch.isnan(dense) | missing)), **options)

    @classmethod
    def from_mask(cls, matrix: Any, mask: Any, **options: Any) -> ObservedMatrix:
        """The entries of a dense (M, N) matrix where the boolean ``mask`` (M, N) is true."""
        (dense, missing), chosen = _dense(matrix), as_tensor(mask, "mask")
        if chosen.dtype != torch.bool:
            raise InputError(f"mask: expected booleans, got {chosen.dtype}")
        if chosen.shape != dense.shape:
            raise InputError(f"mask: expected the matrix's shape {tuple(dense.shape)}, got {tuple(chosen.shape)}")
        return cls(*_entries(dense, chosen.to(dense.device) & ~missing), **options)

    @classmethod
    def from_scipy(cls, matrix: Any, **options: Any) -> ObservedMatrix:
        """The stored entries of a scipy sparse matrix (stored zeros count as observed)."""
        from scipy import sparse

        if not sparse.issparse(matrix):
            raise InputError(f"matrix: expected a scipy sparse matrix, got {type(matrix).__name__}")
        array: Any = matrix
        if array.ndim != 2:
            raise InputError(f"matrix: expected two dimensions, got shape {array.shape}")
        coo = array.tocoo()
        rows, cols = (torch.from_numpy(part.astype(np.int64)) for part in (coo.row, coo.col))
        return cls(rows, cols, as_tensor(coo.data, "matrix"), tuple(coo.shape), **options)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        row: str | None = None,
        col: str | None = None,
        value: str | None = None,
        weight: str | None = None,
        **options: Any,
    ) -> ObservedMatrix:
        """A pandas frame: wide (index and columns are the names, NaN is missing), or long.

        A long frame has one line for each entry; ``row``, ``col`` and ``value`` say which columns hold the row name,
        the column name and the number, ``weight`` which holds its weight. Names are numbered in order of appearance.
        """
        if not all(hasattr(frame, part) for part in ("to_numpy", "columns", "index", "dtypes")):
            raise InputError(f"frame: expected a pandas DataFrame, got {shown(frame)}")
        chosen = {"row": row, "col": col, "value": value}
        missing = [name for name, column in chosen.items() if column is None]
        if len(missing) == 3:
            if weight is not None:
                raise InputError(f"weight={shown(weight)}: expected a long frame, with row, col and value")
            columns = [_numbers(frame.iloc[:, at], f"frame column {name!r}") for at, name in enumerate(frame.columns)]
            dense = np.stack(columns, axis=1) if columns else np.zeros((len(frame), 0))
            row_names = [check_name(name, f"frame.index[{at}]") for at, name in enumerate(frame.index)]
            col_names = [check_name(name, f"frame.columns[{at}]") for at, name in enumerate(frame.columns)]
            return cls.from_dense(dense, row_names=row_names, col_names=col_names, **options)
        if missing:
            raise InputError(f"a long frame needs row, col and value; missing: {', '.join(missing)}")
        known = [str(column) for column in frame.columns]
        if weight is not None:
            chosen["weight"] = weight
            options["weights"] = frame[weight].to_numpy() if weight in frame.columns else None
        for name, column in chosen.items():
            if not isinstance(column, str | int) or isinstance(column, bool) or column not in frame.columns:
                raise InputError(f"{name}={shown(column)}: the frame's columns are {known}")
            if list(frame.columns).count(column) > 1:
                raise InputError(f"{name}={column!r}: the frame has several columns of this name, {known}")
        rows, row_names = numbered(frame[row], "row")
        cols, col_names = numbered(frame[col], "col")
        values = as_tensor(_numbers(frame[value], f"value={value!r}"), "value")
        shape = (max(len(row_names), 1), max(len(col_names), 1))
        return cls(rows, cols, values, shape, row_names=row_names, col_names=col_names, **options)

    def to_frame(self) -> pd.DataFrame:
        """A long pandas frame with the columns row, col, value and, where there are weights, weight.

        Rows and columns are names, or numbers where there are none. :meth:`from_frame` reads it.
        """
        import pandas as pd

        columns: dict[str, Any] = {}
        for name, positions in (("row", self.rows), ("col", self.cols)):
            names = getattr(self, f"{name}_names")
            columns[name] = positions.tolist() if names is None else [names[at] for at in positions.tolist()]
        columns["value"] = self.values.detach().cpu().numpy()
        if self.weights is not None:
            columns["weight"] = self.weights.detach().cpu().numpy()
        return pd.DataFrame(columns)

    def to_scipy(self) -> Any:
        """A scipy CSR array (M, N) of the values; an observed 0 is stored, so that :meth:`from_scipy` finds it."""
        from scipy import sparse

        cells = self.rows.cpu().numpy(), self.cols.cpu().numpy()
        return sparse.coo_array((self.values.detach().cpu().numpy(), cells), shape=self.shape).tocsr()

    @property
    def requires_grad(self) -> bool:
        """Whether values or weights require a gradient."""
        return bool(self.values.requires_grad or (self.weights is not None and self.weights.requires_grad))

    def detach(self) -> ObservedMatrix:
        """The same entries as constants."""
        constant = copy.copy(self)
        weights = None if self.weights is None else self.weights.detach()
        spread, log_weights = self._spread.detach(), self._log_weights.detach()
        constant.__dict__.update(values=self.values.detach(), weights=weights, _spread=spread, _log_weights=log_weights)
        return constant

    @property
    def num_measurements(self) -> int:
        """How many measurements there are: T and those that were merged."""
        return int(self.num_replicates.sum())

    @property
    def replicate_spread(self) -> float:
        """The sum of w (r - mean)^2 over the measurements of each pair; 0 unless some were merged."""
        return float(self._spread.sum())

    def replicate_log_prob(self, noise: Tensor) -> Tensor:
        r"""() what the measurements of one pair say about each other: 0 unless some were merged.

        For measurements :math:`r_j` with weights :math:`w_j`, their mean :math:`\bar r` and W the sum of weights,

        .. math:: \prod_j N(r_j; z, \sigma^2 / w_j) = N(\bar r; z, \sigma^2 / W) \cdot c, \quad
            \log c = -\tfrac12 \Big( (n - 1) \log 2 \pi \sigma^2 - \sum_j \log w_j + \log W
            + \sum_j w_j (r_j - \bar r)^2 / \sigma^2 \Big).

        It does not depend on the matrix, but it does on the noise, so a marginal likelihood has it.

        :param noise: () noise variance of a measurement with weight 1.
        """
        more = self.num_measurements - len(self)
        spread, logs = self._spread.to(noise).sum(), self._log_weights.to(noise).sum()
        return -0.5 * (more * (2 * torch.pi * noise).log() - logs + spread / noise)

    def joined(self, more: ObservedMatrix) -> ObservedMatrix:
        """These entries and ``more``; a pair that is in both is an error, unless ``more`` merges replicates."""
        check_instance(more, "more", ObservedMatrix, "mvgp.ObservedMatrix")
        if more.shape != self.shape:
            raise InputError(f"more: expected shape {self.shape} as in the data, got {more.shape}")
        for name in ("row_names", "col_names"):
            if getattr(more, name) not in (None, getattr(self, name)):
                raise InputError(f"more.{name}: expected those of the data, got others")
        slots = cell_slots(more.rows, more.cols, self.rows, self.cols, self.shape[1])
        known = (slots >= 0).nonzero().squeeze(1)
        if len(known) and more.replicates != "merge":
            at = int(known[0])
            raise InputError(
                f"more: pair {(int(more.rows[at]), int(more.cols[at]))} is observed already; retract it first, or give "
                "more replicates='merge' to take both measurements"
            )
        both = None
        if self.weights is not None or more.weights is not None:
            both = torch.cat([torch.ones_like(d.values) if d.weights is None else d.weights for d in (self, more)])
        options: dict[str, Any] = {"row_names": self.row_names, "col_names": self.col_names, "weights": both}
        rows, cols = torch.cat([self.rows, more.rows]), torch.cat([self.cols, more.cols])
        result = ObservedMatrix(
            rows, cols, torch.cat([self.values, more.values]), self.shape, replicates="merge", **options
        )
        counts, spread, logs = result.num_replicates, result._spread, result._log_weights
        for part in (self, more):  # what was merged before counts as well
            where = cell_slots(part.rows, part.cols, result.rows, result.cols, self.shape[1])
            counts = counts.index_add(0, where, part.num_replicates - 1)
            spread, logs = spread.index_add(0, where, part._spread), logs.index_add(0, where, part._log_weights)
        replicates = "merge" if "merge" in (self.replicates, more.replicates) else "error"
        result.__dict__.update(num_replicates=counts, _spread=spread, _log_weights=logs, replicates=replicates)
        return result

    def without(self, rows: Any, cols: Any) -> ObservedMatrix:
        """All entries but the pairs (``rows``, ``cols``), (k,) each, which have to be observed."""
        row, col = check_cells(rows, cols, self.shape)
        slots = cell_slots(row, col, self.rows, self.cols, self.shape[1])
        if bool((slots < 0).any()):
            at = int((slots < 0).nonzero()[0])
            raise InputError(f"pairs: expected observed pairs, got {(int(row[at]), int(col[at]))}, which is not")
        kept = torch.ones(len(self), dtype=torch.bool, device=self.rows.device)
        kept[slots] = False
        weights = None if self.weights is None else self.weights[kept]
        names: dict[str, Any] = {"row_names": self.row_names, "col_names": self.col_names}
        parts = (self.rows[kept], self.cols[kept], self.values[kept])
        result = ObservedMatrix(*parts, self.shape, weights=weights, replicates=self.replicates, **names)
        for name in ("num_replicates", "_spread", "_log_weights"):
            result.__dict__[name] = getattr(self, name)[kept]
        return result

    @cached_property
    def pattern(self) -> Pattern:
        """Where the entries are, in CSR form with its transpose, ready for ``sampled_addmm``."""
        return Pattern(self.rows, self.cols, self.shape)

    @property
    def is_complete(self) -> bool:
        """Whether every entry of the matrix is observed."""
        return len(self) == self.shape[0] * self.shape[1]

    def to_dense(self) -> Tensor:
        """(M, N) with NaN where nothing was observed; for small matrices."""
        dense = torch.full(self.shape, torch.nan, dtype=self.values.dtype, device=self.values.device)
        dense[self.rows, self.cols] = self.values
        return dense

    def with_values(self, values: Any) -> ObservedMatrix:
        """The same entries with other ``values`` (T,), given in this object's sorted order, each one measurement."""
        names: dict[str, Any] = {"row_names": self.row_names, "col_names": self.col_names}
        return ObservedMatrix(self.rows, self.cols, values, self.shape, weights=self.weights, **names)

    def __len__(self) -> int:
        return int(self.rows.numel())

    def __repr__(self) -> str:
        share = len(self) / (self.shape[0] * self.shape[1])
        how = ", weighted" if self.weights is not None else ""
        if self.num_measurements > len(self):
            how += f", merged from {self.num_measurements} measurements"
        return f"ObservedMatrix({self.shape[0]} x {self.shape[1]}, {len(self)} observed ({share:.1%}){how})"


def _merged(values: Tensor, weights: Tensor | None, slot: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(D,) each: means, summed weights, and the two sums of :meth:`ObservedMatrix.replicate_log_prob`.

    :param slot: (T,) the entry that each measurement goes into.
    :param count: D.
    """
    each, zero = torch.ones_like(values) if weights is None else weights, values.new_zeros(count)
    total = zero.index_add(0, slot, each)
    mean = zero.index_add(0, slot, each * values) / total
    spread = zero.index_add(0, slot, each * (values - mean[slot]).square())
    return mean, total, spread, zero.index_add(0, slot, each.log()) - total.log()


def _dense(matrix: Any) -> tuple[Tensor, Tensor]:
    """(M, N) the numbers, NaN included, and (M, N) where numpy has masked them; a mask says that they are missing."""
    missing = None
    if isinstance(matrix, np.ma.MaskedArray):
        missing = torch.from_numpy(np.ma.getmaskarray(matrix).copy())
        matrix = matrix.data
    dense = as_tensor(matrix, "matrix", keep_gradient=True)
    if dense.dim() != 2:
        raise InputError(f"matrix: expected two dimensions (M, N), got shape {tuple(dense.shape)}")
    dense = dense if dense.is_floating_point() else as_reals(dense, "matrix", keep_gradient=True)
    return dense, torch.zeros(dense.shape, dtype=torch.bool, device=dense.device) if missing is None else missing


def _entries(dense: Tensor, chosen: Tensor) -> Entries:
    """The entries of ``dense`` (M, N) where ``chosen`` (M, N) is true, all finite."""
    rows, cols = chosen.nonzero(as_tuple=True)
    values = dense[rows, cols]
    bad = ~torch.isfinite(values)
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InputError(f"matrix[{rows[at]}, {cols[at]}]: expected a finite number, got {values[at].item()}")
    return rows, cols, values, (dense.shape[0], dense.shape[1])


def _numbers(column: Any, name: str) -> np.ndarray:
    """(T,) float64 from a pandas column of numbers, NaN where one is missing; strings, booleans, dates are none."""
    kind = getattr(column.dtype, "kind", "O")
    blank = column.isna().to_numpy()
    if kind not in "iufO":
        raise InputError(f"{name}: expected numbers in every cell, got {column.dtype}")
    if kind != "f":  # whole numbers or objects: one by one
        for at, entry in enumerate(column):
            if blank[at]:
                continue
            if real(entry) is None:
                raise InputError(f"{name}: expected numbers in every cell, got {shown(entry)} in line {at}")
            if isinstance(entry, Integral) and abs(int(entry)) > EXACT:
                raise InputError(f"{name}: expected numbers of at most 2**53, got {entry} in line {at}")
    numbers: np.ndarray = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers


def numbered(column: Any, name: str, known: Sequence[str] = ()) -> tuple[Tensor, list[str]]:
    """Positions of the names in a pandas column, numbered in order of appearance, or those of ``known`` names."""
    blank = column.isna().to_numpy()
    if blank.any():
        raise InputError(f"{name}: entry {int(blank.argmax())} of the frame has no name")
    names = [check_name(entry, f"{name}: entry {at} of the frame") for at, entry in enumerate(column)]
    number = {text: at for at, text in enumerate(known)}
    first: dict[str, Any] = {}
    for entry, text in zip(column, names, strict=True):
        if known and text not in number:
            raise InputError(f"{name}: expected one of the {len(known)} {name}_names, got {text!r}")
        number.setdefault(text, len(number))
        if type(first.setdefault(text, entry)) is not type(entry):
            raise InputError(f"{name}: expected different names, got {first[text]!r} and {entry!r}, both {text!r}")
    return torch.tensor([number[text] for text in names], dtype=torch.int64), list(number)
